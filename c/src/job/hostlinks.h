/* The connections of a host's leader with those of the other hosts, see hostlinks.go. They are endpoints of the job's fabric,
 * which closes them. The callers do not hold the fabric's lock. */
#ifndef SND_LINKS_H
#define SND_LINKS_H

#include "job/job.h"

/* snd_call_kind distinguishes collective calls that leaders must make together. */
enum snd_call_kind { SND_CALL_BARRIER = 1, SND_CALL_EXCHANGE = 2, SND_CALL_FAILED = 3, SND_CALL_READ = 100 };

/* snd_pack is what a leader passes for its host. */
struct snd_pack {
	unsigned char *bytes; /* of malloc; NULL = none */
	uint64_t length;
};

struct snd_links;

/* snd_links_open makes this rank reachable for other leaders. snd_links_connect connects it with them, which have these
 * addresses by host. */
snd_status snd_links_open(struct snd_job *j, struct snd_links **links, const char *op);
snd_status snd_links_connect(struct snd_links *x, const uint32_t *leaders, int64_t deadline, const char *op);
/* snd_links_exchange passes mine to the other leaders, and stores their packs by host. The caller frees these, also after a
 * failure. The call fails if one has more than limit bytes. */
snd_status snd_links_exchange(struct snd_links *x, enum snd_call_kind kind, const struct snd_pack *mine, struct snd_pack *packs, uint64_t limit, int64_t deadline, const char *op);
/* snd_links_fail lets the exchange of the other leaders fail with this status and text. */
void snd_links_fail(struct snd_links *x, snd_status status, const char *text);

#endif
