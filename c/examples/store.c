/* A store of numbers: rank 0 serves, and each other rank is a client. ndrun -n 4 ./store
 *
 * Rank 0 does not know its clients in advance: it accepts each request to connect. A client sends a request, and receives the answer. */
#include <softnd/softnd.h>
#include <stdio.h>
#include <stdlib.h>

#define LIMIT INT64_C(30000000000)

enum { KEYS = 100, MOST_CLIENTS = 64, SET = 1, GET = 2 };

/* message is a request, or an answer. */
struct message {
	uint32_t what, key;
	uint64_t value;
};

/* link is one connection, with a buffer for each direction. */
struct link {
	snd_endpoint *ep;
	snd_connector *connector;
	snd_sge in, out;
};

static void must(snd_status s)
{
	if (s != SND_SUCCESS) {
		fprintf(stderr, "store: %s: %s\n", snd_status_name(s), snd_last_error());
		exit(1);
	}
}

/* prepare makes an endpoint that is not connected, and posts its first Receive. number is in all of its results. */
static void prepare(snd_adapter *adapter, snd_cq *cq, uint64_t number, struct link *l)
{
	snd_mr *mr;
	must(snd_mr_allocate(adapter, 2 * sizeof(struct message), SND_ALLOW_LOCAL_WRITE, &mr));
	struct message *m = snd_mr_buffer(mr);
	l->in = (snd_sge){m, sizeof *m, snd_mr_local_token(mr)};
	l->out = (snd_sge){m + 1, sizeof *m, snd_mr_local_token(mr)};
	snd_endpoint_config config = {.receive_cq = cq, .initiator_cq = cq, .context = number};
	must(snd_endpoint_create(adapter, &config, &l->ep));
	must(snd_endpoint_receive(l->ep, 0, &l->in, 1));
}

static void serve(snd_adapter *adapter, snd_listener *listener, uint32_t clients)
{
	static struct link links[MOST_CLIENTS];
	static uint64_t values[KEYS];
	snd_cq *cq;
	uint32_t connected = 0, ended = 0, n;
	must(snd_cq_create(adapter, 4 * MOST_CLIENTS, &cq));
	while (ended < clients) {
		snd_connector *c;
		if (connected < clients && snd_listener_request(listener, 0, &c) == SND_SUCCESS) { /* 0: it does not wait */
			struct link *l = &links[connected];
			l->connector = c;
			prepare(adapter, cq, connected++, l);
			if (snd_connector_accept(c, l->ep, NULL, LIMIT) != SND_SUCCESS) { /* the client has given up, or died */
				fprintf(stderr, "store: %s\n", snd_last_error());
				(void)snd_connector_close(c);
				(void)snd_endpoint_close(l->ep); /* its Receive ends with SND_CANCELED, and counts the client as ended below */
			}
		}
		snd_result r;
		snd_status s = snd_cq_wait(cq, &r, 1, 1000000, &n); /* 1 ms, and then it looks for requests to connect again */
		if (s == SND_IO_TIMEOUT)
			continue;
		must(s);
		struct link *l = &links[r.endpoint_context];
		if (r.type != SND_REQUEST_RECEIVE)
			continue; /* of an answer that was sent */
		if (r.status != SND_SUCCESS || r.bytes == 0) { /* an empty message is the last one of a client, or it has died */
			(void)snd_connector_disconnect(l->connector, LIMIT);
			(void)snd_endpoint_close(l->ep);
			ended++;
			continue;
		}
		const struct message *q = l->in.buffer;
		struct message *a = l->out.buffer;
		if (q->key < KEYS && q->what == SET)
			values[q->key] = q->value;
		*a = (struct message){q->what, q->key, q->key < KEYS ? values[q->key] : 0};
		must(snd_endpoint_receive(l->ep, 0, &l->in, 1)); /* before the answer, after which the next request may come */
		must(snd_endpoint_send(l->ep, 0, &l->out, 1, 0));
	}
}

/* finish waits until a request and its answer are done. */
static void finish(snd_cq *cq, snd_endpoint *ep, int results)
{
	while (results-- > 0) {
		snd_result r;
		uint32_t n;
		must(snd_cq_wait(cq, &r, 1, LIMIT, &n));
		if (r.status != SND_SUCCESS)
			must(snd_endpoint_error(ep));
	}
}

static uint64_t ask(struct link *l, snd_cq *cq, uint32_t what, uint32_t key, uint64_t value)
{
	*(struct message *)l->out.buffer = (struct message){what, key, value};
	must(snd_endpoint_send(l->ep, 0, &l->out, 1, 0));
	finish(cq, l->ep, 2); /* the Send, and the Receive of the answer */
	const uint64_t answer = ((struct message *)l->in.buffer)->value;
	must(snd_endpoint_receive(l->ep, 0, &l->in, 1));
	return answer;
}

static void use(snd_job *job, snd_address server)
{
	struct link l;
	snd_cq *cq;
	const uint32_t rank = snd_job_rank(job);
	must(snd_cq_create(snd_job_adapter(job), 16, &cq));
	prepare(snd_job_adapter(job), cq, 0, &l);
	must(snd_connector_create(snd_job_adapter(job), &l.connector));
	must(snd_connector_connect(l.connector, l.ep, server, NULL, LIMIT));
	must(snd_connector_complete(l.connector));
	ask(&l, cq, SET, rank, 100 + rank);
	printf("rank %u reads %lu\n", rank, (unsigned long)ask(&l, cq, GET, rank, 0));
	must(snd_endpoint_send(l.ep, 0, NULL, 0, 0)); /* the last message, which is empty */
	finish(cq, l.ep, 1);
	must(snd_connector_disconnect(l.connector, LIMIT)); /* blocks until the server has called it, too */
}

int main(void)
{
	snd_job *job;
	snd_listener *listener;
	snd_address mine = {0}, all[MOST_CLIENTS + 1];
	must(snd_job_init(NULL, LIMIT, &job));
	const uint32_t size = snd_job_size(job);
	if (size < 2 || size > MOST_CLIENTS + 1) {
		fprintf(stderr, "start 2 to %d ranks: ndrun -n 4 ./store\n", MOST_CLIENTS + 1);
		return 1;
	}
	if (snd_job_rank(job) == 0) {
		must(snd_listener_create(snd_job_adapter(job), &listener));
		must(snd_listener_bind(listener, (snd_address){0}));
		must(snd_listener_listen(listener, 0));
		must(snd_listener_address(listener, &mine));
	}
	must(snd_job_exchange(job, &mine, sizeof mine, all, LIMIT)); /* the clients learn the server's address, which listens already */
	if (snd_job_rank(job) == 0)
		serve(snd_job_adapter(job), listener, size - 1);
	else
		use(job, all[0]);
	must(snd_job_close(job));
	return 0;
}
