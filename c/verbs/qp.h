/* Queue pairs. */
#ifndef SOFTND_VERBS_QP_H
#define SOFTND_VERBS_QP_H

#include "objects.h"

/* wr_list has the requests that the program makes between ibv_wr_start and ibv_wr_complete. Each has its place in the three arrays; the one
 * after the last takes what does not fit. */
struct wr_list {
	pthread_mutex_t mutex; /* from ibv_wr_start to ibv_wr_complete or ibv_wr_abort */
	uint32_t count;
	int error; /* of the first request that is refused */
	snd_request *requests;
	snd_sge *entries;
	unsigned char *inline_data;
};

struct qp {
	union {
		struct ibv_qp base;
		struct ibv_qp_ex ex;
	} public;
	snd_endpoint *core;
	struct ibv_qp_cap cap; /* that is granted */
	bool signals_all, is_extended;
	pthread_mutex_t changing; /* held by calls that change or query the state */
	struct ibv_qp_attr attr;  /* as the program has set it, but for the states and cap */
	struct wr_list list;      /* if is_extended */
	struct event failure, last;
	uint32_t taken; /* of both */
};

/* new_endpoint makes the endpoint of a queue pair that is in RESET, and stores it into *core. It returns an errno. */
int new_endpoint(struct qp *qp, snd_endpoint **core);
/* serve_rest serves what the peer has sent already: a card would have taken it before the call. */
snd_status serve_rest(snd_endpoint *core);
/* softnd_has_completions reports whether completions of a queue pair may wait to be polled. librdmacm calls it. */
bool softnd_has_completions(struct ibv_qp *qp);
/* softnd_watch_destroyed sets a function of librdmacm, which ibv_destroy_qp calls first. */
void softnd_watch_destroyed(void (*call)(struct ibv_qp *qp));
/* end_endpoint ends an endpoint, and drops its results. It returns an errno. */
int end_endpoint(snd_endpoint *core);

/* open_list and close_list make and free the requests of ibv_wr_start. open_list returns false without memory. */
bool open_list(struct qp *qp);
void close_list(struct qp *qp);
/* set_builders sets the functions behind ibv_wr_start and its kin. */
void set_builders(struct ibv_qp_ex *public);

/* check_sends returns EINVAL unless the queue pair takes requests in its state. */
int check_sends(const struct qp *qp);
/* request_flags returns flags of a request of the core for those of ibv_post_send. */
uint32_t request_flags(const struct qp *qp, enum ibv_wr_opcode opcode, unsigned int flags);

/* set_bind makes r a request to bind a window; info of no bytes: to invalidate it. set_keyed_bind does so for a window of type 2 and the key that
 * the program has chosen. They return an errno. */
int set_bind(const struct qp *qp, struct ibv_mw *mw, const struct ibv_mw_bind_info *info, snd_request *r);
int set_keyed_bind(const struct qp *qp, struct ibv_mw *mw, uint32_t rkey, const struct ibv_mw_bind_info *info, snd_request *r);

/* Entries of the context's tables. */
struct ibv_qp *create_qp_ex(struct ibv_context *context, struct ibv_qp_init_attr_ex *attr);
int post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad);
int post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad);

#endif
