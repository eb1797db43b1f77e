/* A rank that hangs, for a report of ndrun: a queue pair sends to one without a Receive, and others name numbers that do not name them. */
#include "sides.h"

#include <stdio.h>

int main(void)
{
	static struct side a, b, waits, lost;
	struct ibv_context *c = open_device();
	struct side *const all[] = {&a, &b, &waits, &lost};
	for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
		open_side(all[i], c, 0);
		make_qp(all[i], 0, 0);
		CHECK(receive(all[i], 0, 0, 8) == EINVAL); /* not in RESET */
	}
	join(&a, &b);
	join(&b, &a);
	join(&waits, &b);
	CHECK(move(lost.qp, IBV_QPS_INIT, 0) == 0 && move(lost.qp, IBV_QPS_RTR, 0xfffff0) == 0);
	CHECK(transfer(&a, &b, 1, IBV_WR_SEND, 8) == 0);
	printf("%#x %#x %#x %#x\n", a.qp->qp_num, b.qp->qp_num, waits.qp->qp_num, lost.qp->qp_num);
	fflush(stdout);
	struct ibv_wc wc;
	while (ibv_poll_cq(a.cq, 1, &wc) == 0)
		;
	return 1;
}
