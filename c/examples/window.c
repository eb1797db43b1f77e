/* Rank 0 gives rank 1 access to memory through a window, and rank 1 ends the access: ndrun -n 2 ./window */
#include <softnd/softnd.h>
#include <stdio.h>
#include <string.h>

static snd_cq *received, *finished;
static snd_endpoint *ep;

/* own binds a window on 1024 bytes, sends its descriptor, and waits until rank 1 has invalidated it. */
static void own(snd_job *job, snd_mr *mr)
{
	uint8_t message[SND_WINDOW_DESCRIPTOR_SIZE];
	snd_window *window;
	snd_window_descriptor d;
	snd_result r;
	snd_check(snd_window_create(snd_job_adapter(job), &window));
	snd_check(snd_endpoint_bind(ep, 1, mr, window, snd_mr_buffer(mr), 1024, SND_ALLOW_WRITE | SND_SILENT_SUCCESS));
	snd_check(snd_window_query(window, &d)); /* address, length and token for the peer */
	snd_window_descriptor_encode(&d, message);
	const snd_sge sge = {message, sizeof message, 0}; /* with SND_INLINE, the buffer needs no registration */
	snd_check(snd_endpoint_send(ep, 2, &sge, 1, SND_INLINE));
	snd_check(snd_cq_wait_one(finished, ep, SND_FOREVER, NULL));
	snd_check(snd_cq_wait_one(received, ep, SND_FOREVER, &r)); /* the message of rank 1 */
	printf("window invalidated: %s; memory: %.5s\n", r.invalidated_token == d.token ? "yes" : "no", (char *)snd_mr_buffer(mr));
	snd_check(snd_window_close(window, SND_FOREVER));
}

/* use writes through the window, invalidates it, and tries to write once more. */
static void use(snd_mr *mr, const uint8_t *message)
{
	snd_window_descriptor d;
	snd_check(snd_cq_wait_one(received, ep, SND_FOREVER, NULL));
	snd_window_descriptor_decode(message, &d);
	const snd_sge hello = snd_mr_sge(mr, 0, 5);
	memcpy(hello.buffer, "hello", 5);
	snd_check(snd_endpoint_write(ep, 1, &hello, 1, d.address, d.token, SND_SILENT_SUCCESS));
	snd_check(snd_endpoint_send_and_invalidate(ep, 2, NULL, 0, d.token, 0)); /* arrives after the data of the Write */
	snd_check(snd_cq_wait_one(finished, ep, SND_FOREVER, NULL));
	snd_check(snd_endpoint_write(ep, 3, &hello, 1, d.address, d.token, 0));
	const snd_status late = snd_cq_wait_one(finished, ep, SND_FOREVER, NULL); /* this Write ends the connection */
	printf("too late: %s: %s\n", snd_status_name(late), snd_last_error());
}

int main(void)
{
	snd_job *job;
	snd_mr *mr;
	snd_check(snd_job_init(NULL, SND_FOREVER, &job));
	snd_check(snd_mr_allocate(snd_job_adapter(job), 4096, SND_ALLOW_LOCAL_WRITE, &mr));
	snd_check(snd_cq_create(snd_job_adapter(job), 16, &received));
	snd_check(snd_cq_create(snd_job_adapter(job), 16, &finished));
	const snd_endpoint_config config = {.receive_cq = received, .initiator_cq = finished, .inline_size = 64};
	snd_check(snd_job_connect(job, 1 - snd_job_rank(job), &config, SND_FOREVER, &ep));
	const snd_sge message = snd_mr_sge(mr, 2048, SND_WINDOW_DESCRIPTOR_SIZE);
	snd_check(snd_endpoint_receive(ep, 0, &message, 1)); /* each rank receives one message */
	snd_job_rank(job) == 0 ? own(job, mr) : use(mr, message.buffer);
	snd_check(snd_job_barrier(job, SND_FOREVER)); /* the connection lasts until both are done */
	snd_check(snd_job_close(job));
}
