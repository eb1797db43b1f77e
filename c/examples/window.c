/* Rank 0 gives rank 1 access to memory through a window, and rank 1 ends the access: ndrun -n 2 ./window */
#include <softnd/softnd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LIMIT INT64_C(30000000000) /* 30 s, for each call that waits */

static snd_cq *received, *finished;
static snd_endpoint *ep;

static void must(snd_status s)
{
	if (s != SND_SUCCESS) {
		fprintf(stderr, "window: %s: %s\n", snd_status_name(s), snd_last_error());
		exit(1);
	}
}

/* take returns the next result of a queue. */
static snd_result take(snd_cq *cq)
{
	snd_result r;
	uint32_t n;
	must(snd_cq_wait(cq, &r, 1, LIMIT, &n));
	return r;
}

/* done takes the next result, of a request that must have succeeded. */
static snd_result done(snd_cq *cq)
{
	snd_result r = take(cq);
	if (r.status != SND_SUCCESS)
		must(snd_endpoint_error(ep)); /* why it has failed */
	return r;
}

/* own binds a window on 1024 bytes, sends its descriptor, and waits until rank 1 has invalidated it. */
static void own(snd_job *job, snd_mr *mr)
{
	char *memory = snd_mr_buffer(mr);
	uint8_t message[SND_WINDOW_DESCRIPTOR_SIZE];
	snd_window *window;
	snd_window_descriptor d;
	must(snd_window_create(snd_job_adapter(job), &window));
	must(snd_endpoint_bind(ep, 1, mr, window, memory, 1024, SND_ALLOW_WRITE));
	done(finished);
	must(snd_window_query(window, &d)); /* address, length and token for the peer */
	snd_window_descriptor_encode(&d, message);
	snd_sge sge = {message, sizeof message, 0}; /* with SND_INLINE, the buffer needs no registration */
	must(snd_endpoint_send(ep, 2, &sge, 1, SND_INLINE));
	done(finished);
	snd_result r = done(received); /* the message of rank 1 */
	printf("window invalidated: %s; memory: %.5s\n", r.invalidated_token == d.token ? "yes" : "no", memory);
	must(snd_window_close(window, LIMIT));
}

/* use writes through the window, invalidates it, and tries to write once more. */
static void use(snd_mr *mr, const uint8_t *message)
{
	snd_window_descriptor d;
	done(received);
	snd_window_descriptor_decode(message, &d);
	snd_sge hello = {snd_mr_buffer(mr), 5, snd_mr_local_token(mr)};
	memcpy(hello.buffer, "hello", 5);
	must(snd_endpoint_write(ep, 1, &hello, 1, d.address, d.token, 0));
	must(snd_endpoint_send_and_invalidate(ep, 2, NULL, 0, d.token, 0)); /* arrives after the data of the Write */
	done(finished);
	done(finished);
	must(snd_endpoint_write(ep, 3, &hello, 1, d.address, d.token, 0));
	snd_result r = take(finished); /* the window is invalidated: this Write ends the connection */
	snd_endpoint_error(ep);
	printf("too late: %s: %s\n", snd_status_name(r.status), snd_last_error());
}

int main(void)
{
	snd_job *job;
	snd_mr *mr;
	must(snd_job_init(NULL, LIMIT, &job));
	if (snd_job_size(job) != 2) {
		fprintf(stderr, "start two ranks: ndrun -n 2 ./window\n");
		return 1;
	}
	snd_adapter *adapter = snd_job_adapter(job);
	must(snd_mr_allocate(adapter, 4096, SND_ALLOW_LOCAL_WRITE, &mr));
	must(snd_cq_create(adapter, 16, &received));
	must(snd_cq_create(adapter, 16, &finished));
	snd_endpoint_config config = {.receive_cq = received, .initiator_cq = finished, .inline_size = 64};
	must(snd_job_connect(job, 1 - snd_job_rank(job), &config, LIMIT, &ep));
	uint8_t *message = (uint8_t *)snd_mr_buffer(mr) + 2048;
	snd_sge sge = {message, SND_WINDOW_DESCRIPTOR_SIZE, snd_mr_local_token(mr)};
	must(snd_endpoint_receive(ep, 0, &sge, 1)); /* each rank receives one message */
	if (snd_job_rank(job) == 0)
		own(job, mr);
	else
		use(mr, message);
	must(snd_job_barrier(job, LIMIT)); /* the connection lasts until both are done */
	must(snd_job_close(job));
	return 0;
}
