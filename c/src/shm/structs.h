/* The structures in the arena. layout_check.c compares them with internal/layout/LAYOUT.txt. docs/shared-memory.md
 * says which process writes each word. TWIN shm/structs_unsafe.go. */
#ifndef SND_SHARED_H
#define SND_SHARED_H

#include "atomic.h"
#include "shm/layout.h"

#define SND_MAGIC UINT64_C(0x31444e54464f53ff) /* "\xffSOFTND1" in memory order */

struct snd_header {
	snd_word magic;
	snd_half version; /* ORDER arena-ready: stored last by the creator, loaded first */
	snd_half ranks;
	snd_word layout;
	snd_word size;
	snd_word secret[2];
	snd_word id[2];
	snd_word checksum;
	char build[56];
	snd_word deaths;
	snd_half rules; /* fault rules of the job; written by the creator, before version */
	snd_half host; /* number of the arena's host in the job; likewise */
	snd_word relay; /* MemberID of the relay to other hosts, 0 = none so far */
	snd_word formed_by; /* MemberID of the rank 0 that has formed the group last, or is forming it */
	snd_word slots; /* the member records from this number on have never been in use; it only grows; see snd_used_slots */
	char pad1[88];
	snd_word arrived;
	char pad2[120];
	snd_word opened;
	char pad3[120];
};

/* A rule of the job's fault plan. A member uses a copy of its own, so the fields are plain. */
struct snd_fault_rule {
	uint64_t operations;
	uint64_t endpoint;
	uint64_t window;
	uint64_t min_size;
	uint64_t max_size;
	uint64_t nth;
	uint64_t every;
	uint64_t threshold;
	uint64_t times;
	uint64_t seed;
	uint64_t after;
	uint64_t delay;
	uint64_t offset;
	uint32_t status;
	uint32_t phase;
	uint32_t action;
	uint32_t flip;
	uint32_t reserved[2];
	uint64_t ranks[16]; /* bits; none = all */
	uint64_t peers[16];
	char name[64];
};

struct snd_fault_record {
	struct snd_fault_rule rule; /* written by the creator of the arena */
	struct {
		snd_word matched;
		snd_word fired;
	} counters;
	char pad[48];
};

struct snd_doorbell {
	snd_half armed;
	snd_half seq;
};

struct snd_member_record {
	snd_word state;
	snd_word death_epoch;
	snd_word deaths_seen;
	snd_half pid;
	snd_half rank; /* rank + 1 */
	snd_word pid_ns;
	snd_word names; /* offset of SND_NAMES name entries in the member's heap; 0 = none */
	char pad1[80];
	snd_word inbox;
	snd_half liveness_requests;
	char pad2[52];
	snd_word bytes, requests; /* of queue pairs, see snd_show_traffic */
	char pad5[48];
	struct snd_doorbell waiters;
	char pad3[120];
	struct snd_doorbell engine;
	char pad4[120];
};

/* snd_name_entry is a name that a member has published. */
struct snd_name_entry {
	snd_word address; /* IPv4 address, number of the use, port; 0 = the entry is free */
	char pad[56];
	snd_word name[8]; /* zeros behind it */
};

/* Bits of the member of a rank record, beside its number. Without one, the member is admitted to the group. */
#define SND_RANK_TAKEN (UINT64_C(1) << 63) /* the member is not ready to be admitted, and still changes the other words of the record */
#define SND_RANK_WAITS (UINT64_C(1) << 62) /* the member waits until the group is formed */
#define SND_RANK_LEFT (UINT64_C(1) << 61)    /* the member has left in good order */
#define SND_RANK_REFUSED (UINT64_C(1) << 60) /* the member does not take part */
#define SND_RANK_BITS (SND_RANK_TAKEN | SND_RANK_WAITS | SND_RANK_LEFT | SND_RANK_REFUSED)
#define SND_RANK_DEATH (UINT64_C(1) << 48) /* one death: how many members of the rank have died since the group was formed */
#define SND_RANK_DEATHS (SND_RANK_REFUSED - SND_RANK_DEATH)
#define SND_RANK_MEMBER (SND_RANK_DEATH - 1)

struct snd_rank_record {
	snd_word member;
	snd_word blob;
	snd_word length;
	snd_word round;
	snd_half membarrier;
	snd_half unused;
	snd_word published_round;
	snd_word lost_peer;
	snd_word lost_peer_at;
};

/* snd_number_entry is a number of an endpoint, by which the peer finds it. */
struct snd_number_entry {
	snd_word word;
	snd_word dest;
	char pad[48];
};

struct snd_status_page {
	snd_word seq;
	snd_word last_progress;
	snd_word written_at;
	snd_word length;
	snd_half requested;
	snd_half answered;
	snd_word stacks;
	snd_word stacks_length;
	char pad[8];
	snd_word text[1016];
};

struct snd_slot {
	snd_word seq;
	snd_word words[7];
};

struct snd_access_entry {
	snd_word word;
	snd_word base;
	snd_word length;
	snd_word offset;
	snd_word owner;
	snd_word scope;
	snd_half binds;
	snd_half ends; /* bytes at the start and at the end that only the owner can access */
	char pad[8];
};

struct snd_shared_qp {
	snd_word ring;
	snd_word ring_slots;
	snd_word receives;
	snd_word receive_count;
	snd_word receive_stride;
	snd_word endpoint;
	snd_word shared_receive;
	snd_word membarrier;
	snd_word responder_copies;
	snd_word extended;
	snd_word number;
	snd_word access;
	snd_word rnr_timer;
	char pad1[24];
	snd_word released;
	snd_word fault;
	snd_half fault_status;
	snd_half end_cause;
	char pad2[40];
	snd_word read_hashes[8];
	snd_word posted;
	snd_word small_receives_end;
	snd_word small_receive_bytes;
	char pad3[104];
	snd_word hazard;
	char pad4[120];
	snd_half need_wakeup;
	char pad5[60];
	snd_word results[SNDL_RESULTS];
	snd_half receive_status;
	snd_half reason_length;
	char reason[376];
};

struct snd_connection_record {
	snd_word link;
	snd_half state;
	uint32_t pad;
	snd_half disconnected[2];
	snd_half detached[2];
	snd_word member[2];
	snd_word adapter[2];
	snd_word qp[2];
	snd_half port[2];
	snd_half read_in[2];
	snd_half read_out[2];
	snd_half data_len[2];
	snd_half address[2];
	unsigned char data[2][512];
};

#define SND_MAX_PRIVATE_DATA 512u
#define SND_MAX_HOST 178u

/* A member's identity. */
static inline uint32_t snd_member_slot(uint64_t id) { return (uint32_t)(id & SNDL_MEMBER_SLOT_MASK); }
static inline uint64_t snd_member_id(uint32_t slot, uint32_t incarnation)
{
	return (uint64_t)incarnation << SNDL_MEMBER_INCARNATION_SHIFT | slot;
}
static inline uint32_t snd_member_incarnation(uint64_t id) { return (uint32_t)(id >> SNDL_MEMBER_INCARNATION_SHIFT); }

/* The state word of a member record. A status that no correct process stores counts as dead. */
static inline uint64_t snd_state_of(uint32_t status, uint32_t incarnation)
{
	return (uint64_t)incarnation << SNDL_STATE_INCARNATION_SHIFT | status;
}
static inline uint32_t snd_state_status(uint64_t state)
{
	uint32_t status = (uint32_t)(state & SNDL_STATE_STATUS_MASK);
	return status < SNDL_STATUS_DEAD ? status : SNDL_STATUS_DEAD;
}
static inline uint32_t snd_state_incarnation(uint64_t state) { return (uint32_t)(state >> SNDL_STATE_INCARNATION_SHIFT); }

#endif
