/* The two members of the fabric target, and the damage that their peers may do. */
#ifndef SND_FUZZ_DAMAGE_H
#define SND_FUZZ_DAMAGE_H

#include "endpoint/cm_connector.h"
#include "endpoint/cm_listener.h"
#include "endpoint/cm_number.h"
#include "endpoint/cm_teardown.h"
#include "endpoint/cq.h"
#include "endpoint/endpoint.h"
#include "endpoint/srq.h"
#include "fuzz.h"

enum { ENDPOINTS = 2, WINDOWS = 2, PAGE = 4096, GRANTED = 5096, GRANTED_BYTES = 100, SINK = 6144, ARENA = 112 << 20 };

struct side {
	snd_job *job;
	snd_fabric *f;
	snd_adapter *a;
	snd_cq *cq;
	snd_srq *srq;
	snd_mr *shared, *own;
	snd_window *windows[WINDOWS];
	snd_endpoint *endpoints[ENDPOINTS];
	uint32_t numbers[ENDPOINTS]; /* of them; 0 = none yet */
	uint64_t posted, done;
	/* Private memory, of which the middle page is registered. Peers may change the granted bytes while a window is bound to
	 * them, and the member's own requests may change the bytes from SINK on. Nothing may change the rest. */
	unsigned char memory[3 * PAGE];
};

extern struct side sides[2];

/* damage overwrites one shared word. forge puts an entry into a ring. arm_damage does the former after some loads of the library. */
void damage(struct input *in);
void forge(struct input *in);
void arm_damage(struct input *in);
void disarm_damage(void);

#endif
