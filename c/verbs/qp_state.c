/* States of queue pairs. */
#include <errno.h>
#include <stdio.h>

#include "endpoint/cm_number.h"
#include "endpoint/qp.h"
#include "qp.h"

enum { ALTERNATE = IBV_QP_ALT_PATH | IBV_QP_PATH_MIG_STATE }; /* are accepted, but there is one path */

/* A transition needs the attributes required, and takes the optional ones. The table is that of IBTA for RC, without SQD and SQE. Each state
 * but RESET has a transition to ERR, and each one to RESET, with no attributes. */
static const struct transition {
	enum ibv_qp_state from, to;
	int required, optional;
} transitions[] = {
	{IBV_QPS_RESET, IBV_QPS_INIT, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS, 0},
	{IBV_QPS_INIT, IBV_QPS_INIT, 0, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS},
	{IBV_QPS_INIT, IBV_QPS_RTR, IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER,
		IBV_QP_ALT_PATH | IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX},
	{IBV_QPS_RTR, IBV_QPS_RTS, IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC,
		ALTERNATE | IBV_QP_CUR_STATE | IBV_QP_ACCESS_FLAGS | IBV_QP_MIN_RNR_TIMER},
	{IBV_QPS_RTS, IBV_QPS_RTS, 0, ALTERNATE | IBV_QP_CUR_STATE | IBV_QP_ACCESS_FLAGS | IBV_QP_MIN_RNR_TIMER},
};

static const char *state_name(enum ibv_qp_state s)
{
	static const char *const names[] = {"RESET", "INIT", "RTR", "RTS", "SQD", "SQE", "ERR"};
	return s >= IBV_QPS_RESET && s <= IBV_QPS_ERR ? names[s] : "an unknown state";
}

/* name_attributes lists the attributes of a mask, for messages. */
static const char *name_attributes(int mask, char *text, size_t size)
{
	static const char *const names[] = {"STATE", "CUR_STATE", "EN_SQD_ASYNC_NOTIFY", "ACCESS_FLAGS", "PKEY_INDEX", "PORT", "QKEY", "AV", "PATH_MTU", "TIMEOUT", "RETRY_CNT",
		"RNR_RETRY", "RQ_PSN", "MAX_QP_RD_ATOMIC", "ALT_PATH", "MIN_RNR_TIMER", "SQ_PSN", "MAX_DEST_RD_ATOMIC", "PATH_MIG_STATE", "CAP", "DEST_QPN"};
	const int count = sizeof names / sizeof names[0];
	size_t n = 0;
	text[0] = '\0';
	for (int i = 0; i < count && n < size; i++)
		if (mask >> i & 1)
			n += (size_t)snprintf(text + n, size - n, "%sIBV_QP_%s", n == 0 ? "" : ", ", names[i]);
	if (mask >> count != 0 && n < size)
		(void)snprintf(text + n, size - n, "%s%#x", n == 0 ? "" : ", ", (unsigned)(mask >> count << count));
	return text;
}

/* find_transition stores the transition between two states, or NULL for one without attributes. It returns EINVAL if there is none. */
static int find_transition(enum ibv_qp_state from, enum ibv_qp_state to, const struct transition **found)
{
	*found = NULL;
	if (to == IBV_QPS_RESET || (to == IBV_QPS_ERR && from != IBV_QPS_RESET))
		return 0;
	for (size_t i = 0; i < sizeof transitions / sizeof transitions[0]; i++)
		if (transitions[i].from == from && transitions[i].to == to)
			*found = &transitions[i];
	if (*found != NULL)
		return 0;
	return refuse(to == IBV_QPS_SQD ? EOPNOTSUPP : EINVAL, "modify queue pair: from %s to %s: no such transition", state_name(from), state_name(to));
}

static int check_mask(enum ibv_qp_state from, enum ibv_qp_state to, int mask)
{
	const struct transition *t;
	const int error = find_transition(from, to, &t), given = mask & ~IBV_QP_STATE;
	if (error != 0)
		return error;
	const int required = t == NULL ? 0 : t->required, missing = required & ~given, extra = given & ~(required | (t == NULL ? 0 : t->optional));
	char text[400];
	if (missing != 0)
		return refuse(EINVAL, "modify queue pair: from %s to %s: lacks %s", state_name(from), state_name(to), name_attributes(missing, text, sizeof text));
	if (extra != 0)
		return refuse(EINVAL, "modify queue pair: from %s to %s: does not take %s", state_name(from), state_name(to), name_attributes(extra, text, sizeof text));
	return 0;
}

static int check_values(const struct ibv_qp_attr *a, int mask)
{
	const struct { int bit; uint32_t value, least, most; } values[] = {
		{IBV_QP_PKEY_INDEX, a->pkey_index, 0, 0},
		{IBV_QP_PORT, a->port_num, PORT, PORT},
		{IBV_QP_PATH_MTU, (uint32_t)a->path_mtu, IBV_MTU_256, IBV_MTU_4096},
		{IBV_QP_DEST_QPN, a->dest_qp_num, 0, 0xffffff},
		{IBV_QP_MAX_QP_RD_ATOMIC, a->max_rd_atomic, 0, SND_MAX_READS},
		{IBV_QP_MAX_DEST_RD_ATOMIC, a->max_dest_rd_atomic, 0, SND_MAX_READS},
		{IBV_QP_MIN_RNR_TIMER, a->min_rnr_timer, 0, 31},
		{IBV_QP_TIMEOUT, a->timeout, 0, 31},
		{IBV_QP_RETRY_CNT, a->retry_cnt, 0, 7},
		{IBV_QP_RNR_RETRY, a->rnr_retry, 0, 7},
	};
	char text[64];
	for (size_t i = 0; i < sizeof values / sizeof values[0]; i++)
		if (mask & values[i].bit && (values[i].value < values[i].least || values[i].value > values[i].most))
			return refuse(EINVAL, "modify queue pair: %s %u, allowed %u to %u", name_attributes(values[i].bit, text, sizeof text), values[i].value, values[i].least, values[i].most);
	return 0;
}

/* merge stores the attributes of a mask. */
static void merge(struct ibv_qp_attr *to, const struct ibv_qp_attr *from, int mask)
{
#define MERGE(bit, field) \
	if (mask & (bit)) \
		to->field = from->field
	MERGE(IBV_QP_ACCESS_FLAGS, qp_access_flags);
	MERGE(IBV_QP_PKEY_INDEX, pkey_index);
	MERGE(IBV_QP_PORT, port_num);
	MERGE(IBV_QP_AV, ah_attr);
	MERGE(IBV_QP_PATH_MTU, path_mtu);
	MERGE(IBV_QP_TIMEOUT, timeout);
	MERGE(IBV_QP_RETRY_CNT, retry_cnt);
	MERGE(IBV_QP_RNR_RETRY, rnr_retry);
	MERGE(IBV_QP_RQ_PSN, rq_psn);
	MERGE(IBV_QP_MAX_QP_RD_ATOMIC, max_rd_atomic);
	MERGE(IBV_QP_MIN_RNR_TIMER, min_rnr_timer);
	MERGE(IBV_QP_SQ_PSN, sq_psn);
	MERGE(IBV_QP_MAX_DEST_RD_ATOMIC, max_dest_rd_atomic);
	MERGE(IBV_QP_DEST_QPN, dest_qp_num);
#undef MERGE
}

/* rnr_timer returns the nanoseconds that a code of IBTA stands for: 0.01 ms, 0.02, 0.03, 0.04, 0.06, and so on, and 0 for the longest. */
static uint64_t rnr_timer(unsigned code)
{
	const uint64_t unit = 10000;
	if (code == 0)
		return unit << 16;
	return code == 1 ? unit : code % 2 == 0 ? unit << code / 2 : 3 * unit << (code - 3) / 2;
}

static snd_number_params params_of(const struct qp *qp, const struct ibv_qp_attr *a)
{
	const unsigned access = a->qp_access_flags;
	return (snd_number_params){
		.number = qp->public.base.qp_num,
		.dest = a->dest_qp_num,
		.inbound_reads = a->max_dest_rd_atomic,
		.outbound_reads = a->max_rd_atomic,
		.access = (access & IBV_ACCESS_REMOTE_READ ? (uint32_t)SNDL_RIGHT_READ : 0) | (access & IBV_ACCESS_REMOTE_WRITE ? (uint32_t)SNDL_RIGHT_WRITE : 0) |
			(access & IBV_ACCESS_REMOTE_ATOMIC ? (uint32_t)SNDL_RIGHT_ATOMIC : 0),
		.rnr_timer = rnr_timer(a->min_rnr_timer),
		.rnr_retry = a->rnr_retry,
		.retry_deadline = a->timeout == 0 ? 0 : (a->retry_cnt + 1) * (INT64_C(4096) << a->timeout),
	};
}

static int reset(struct qp *qp)
{
	snd_endpoint *core;
	int error = new_endpoint(qp, &core);
	if (error != 0)
		return error;
	error = end_endpoint(qp->core);
	if (error != 0) {
		(void)snd_endpoint_close(core);
		return error;
	}
	qp->core = core;
	qp->attr = (struct ibv_qp_attr){0};
	return 0;
}

/* enter does what a transition needs. It returns an errno. */
static int enter(struct qp *qp, enum ibv_qp_state from, enum ibv_qp_state to, const struct ibv_qp_attr *attr)
{
	const snd_number_params params = params_of(qp, attr);
	snd_status s = SND_SUCCESS;
	switch (to) {
	case IBV_QPS_RESET: return from == IBV_QPS_RESET ? 0 : reset(qp);
	case IBV_QPS_RTR: s = snd_endpoint_connect_number(qp->core, &params); break;
	case IBV_QPS_RTS: s = snd_number_update(qp->core, &params); break;
	case IBV_QPS_ERR:
		(void)serve_rest(qp->core);
		(void)snd_endpoint_flush(qp->core, 0); /* it has ended; the results may come later */
		break;
	default: break;
	}
	return s == SND_SUCCESS ? 0 : refuse_status(s);
}

/* is_broken reports whether a failure has ended the endpoint. */
static bool is_broken(snd_endpoint *core)
{
	SND_GET(core, SND_TYPE_ENDPOINT, "state of queue pair", bool, snd_is_broken(core), true);
}

/* refresh returns the state, after failures that the program has not asked for. */
static enum ibv_qp_state refresh(struct qp *qp)
{
	struct ibv_qp *public = &qp->public.base;
	if ((public->state == IBV_QPS_RTR || public->state == IBV_QPS_RTS) && is_broken(qp->core))
		public->state = IBV_QPS_ERR;
	return public->state;
}

static int modify(struct qp *qp, const struct ibv_qp_attr *attr, int mask)
{
	const enum ibv_qp_state from = refresh(qp), to = mask & IBV_QP_STATE ? attr->qp_state : from;
	if (mask & IBV_QP_CUR_STATE && attr->cur_qp_state != from)
		return refuse(EINVAL, "modify queue pair: it is in %s, not in %s", state_name(from), state_name(attr->cur_qp_state));
	int error = check_mask(from, to, mask);
	if (error == 0)
		error = check_values(attr, mask);
	if (error == 0 && mask & IBV_QP_AV)
		error = check_path("modify queue pair", &attr->ah_attr);
	if (error != 0)
		return error;
	struct ibv_qp_attr merged = qp->attr;
	merge(&merged, attr, mask);
	error = enter(qp, from, to, &merged);
	if (error != 0)
		return error;
	if (to != IBV_QPS_RESET)
		qp->attr = merged;
	qp->public.base.state = to;
	return 0;
}

int ibv_modify_qp(struct ibv_qp *public, struct ibv_qp_attr *attr, int mask)
{
	struct qp *qp = (struct qp *)public;
	(void)pthread_mutex_lock(&qp->changing);
	const int error = modify(qp, attr, mask);
	(void)pthread_mutex_unlock(&qp->changing);
	return error;
}

int ibv_query_qp(struct ibv_qp *public, struct ibv_qp_attr *attr, int mask, struct ibv_qp_init_attr *init)
{
	struct qp *qp = (struct qp *)public;
	(void)mask; /* programs may read only what they ask for */
	(void)pthread_mutex_lock(&qp->changing);
	*attr = qp->attr;
	attr->qp_state = attr->cur_qp_state = refresh(qp);
	(void)pthread_mutex_unlock(&qp->changing);
	attr->cap = qp->cap;
	*init = (struct ibv_qp_init_attr){
		.qp_context = public->qp_context,
		.send_cq = public->send_cq,
		.recv_cq = public->recv_cq,
		.srq = public->srq,
		.cap = qp->cap,
		.qp_type = public->qp_type,
		.sq_sig_all = qp->signals_all,
	};
	return 0;
}
