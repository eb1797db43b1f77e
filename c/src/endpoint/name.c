/* Names of addresses. They are in the heap of the member that publishes them. TWIN shm/names.go. */
#include <inttypes.h>
#include <string.h>

#include "endpoint/progress_wait.h"
#include "linux/clock.h"
#include "shm/fabric_name.h"
#include "shm/heap.h"
#include "shm/liveness.h"
#include "shm/member.h"

enum { NAMES = 16, WORDS = 8 /* of a name */ };
#define LOOK_INTERVAL INT64_C(1000000)
#define SLEEP_INTERVAL INT64_C(20000000)

/* published_word is what an entry contains. number changes whenever an entry is used. */
static uint64_t published_word(snd_address a, uint16_t number)
{
	return (uint64_t)a.host << SNDL_NAME_IP_SHIFT | (uint64_t)number << SNDL_NAME_NUMBER_SHIFT | (uint64_t)a.port << SNDL_NAME_PORT_SHIFT;
}

static snd_address published_address(uint64_t word)
{
	return (snd_address){(uint32_t)(word >> SNDL_NAME_IP_SHIFT & SNDL_NAME_IP_MASK), (uint16_t)(word >> SNDL_NAME_PORT_SHIFT & SNDL_NAME_PORT_MASK), 0};
}

/* words makes the words of a name that snd_check_name has accepted, with zeros behind it. */
static void words(const char *name, uint64_t to[WORDS])
{
	memset(to, 0, WORDS * sizeof *to);
	memcpy(to, name, strlen(name));
}

static bool has_name(const struct snd_name_entry *e, const uint64_t name[WORDS])
{
	for (int i = 0; i < WORDS; i++) {
		if (snd_load(&e->name[i]) != name[i])
			return false;
	}
	return true;
}

/* entries returns the names of a peer. A peer that stores another offset has none. */
static const struct snd_name_entry *entries(const struct snd_fabric *f, const struct snd_peer *p)
{
	const uint64_t offset = snd_load(&p->record->names); /* ORDER name-entry: before the entries; pairs with the store in snd_fabric_publish */
	if (offset == 0 || offset % 8 != 0 || !snd_peer_owns(f, p, offset, NAMES * sizeof(struct snd_name_entry)))
		return NULL;
	return (const struct snd_name_entry *)(const void *)(f->arena.base + offset);
}

/* find returns the word of an entry with a name of a live member; 0 if there is none. The entry is not except. */
static uint64_t find(struct snd_fabric *f, const uint64_t name[WORDS], const struct snd_name_entry *except)
{
	const uint32_t slots = snd_used_slots(&f->arena);
	for (uint32_t slot = 0; slot < slots; slot++) {
		struct snd_peer p;
		const struct snd_name_entry *e = snd_peer_in_slot(f, slot, &p) ? entries(f, &p) : NULL;
		for (int i = 0; e != NULL && i < NAMES; i++) {
			/* A word that is the same after the comparison belongs to the name that was compared. */
			const uint64_t word = snd_load(&e[i].address); /* ORDER name-entry: before the name; pairs with the stores in snd_fabric_publish */
			if (word != 0 && &e[i] != except && has_name(&e[i], name) && snd_load(&e[i].address) == word && (p.id == f->id || snd_check_alive(f, &p)))
				return word;
		}
	}
	return 0;
}

static snd_status taken(const char *name, const char *op)
{
	return snd_fail(SND_SHARING_VIOLATION, "%s: the name \"%s\" is taken: choose another, or withdraw it first", op, name);
}

/* reserve allocates the entries, which are free. */
static snd_status reserve(struct snd_fabric *f, const char *op)
{
	uint64_t offset;
	snd_status s = snd_alloc(&f->heap, NAMES * sizeof *f->names, false, &offset, op);
	if (s != SND_SUCCESS)
		return s;
	f->names = (struct snd_name_entry *)(void *)(f->arena.base + offset);
	snd_set(&f->record->names, offset); /* ORDER name-entry: after the words of the entries; pairs with the load in entries */
	return SND_SUCCESS;
}

static snd_status publish(struct snd_fabric *f, const char *name, snd_address address, const char *op)
{
	uint64_t w[WORDS];
	words(name, w);
	if (find(f, w, NULL) != 0)
		return taken(name, op);
	snd_status s = f->names == NULL ? reserve(f, op) : SND_SUCCESS;
	if (s != SND_SUCCESS)
		return s;
	int i = 0;
	while (i < NAMES && snd_load(&f->names[i].address) != 0)
		i++;
	if (i == NAMES)
		return snd_fail(SND_INSUFFICIENT_RESOURCES, "%s: %d names are published: withdraw one", op, NAMES);
	struct snd_name_entry *e = &f->names[i];
	for (int k = 0; k < WORDS; k++)
		snd_set(&e->name[k], w[k]);
	snd_store_full(&e->address, published_word(address, ++f->name_number)); /* ORDER name-entry: after the name, before the look at other members; pairs with the loads in find */
	if (find(f, w, e) == 0)
		return SND_SUCCESS;
	snd_store_full(&e->address, 0);
	return taken(name, op);
}

snd_status snd_fabric_publish(snd_fabric *fabric, const char *name, snd_address address)
{
	SND_KEEP_ERRNO;
	const char *op = "publish";
	snd_status s = snd_check_name(name, op);
	if (s != SND_SUCCESS)
		return s;
	if (address.host == 0 || address.port == 0 || address.reserved != 0)
		return snd_fail(SND_INVALID_ADDRESS, "%s: host %#" PRIx32 ", port %u: pass the address of a listener", op, address.host, address.port);
	SND_ENTER(fabric, SND_TYPE_FABRIC, op);
	return snd_leave_with(fabric, publish(fabric, name, address, op));
}

snd_status snd_fabric_withdraw(snd_fabric *fabric, const char *name)
{
	SND_KEEP_ERRNO;
	const char *op = "withdraw";
	snd_status s = snd_check_name(name, op);
	if (s != SND_SUCCESS)
		return s;
	SND_ENTER(fabric, SND_TYPE_FABRIC, op);
	uint64_t w[WORDS];
	words(name, w);
	for (int i = 0; fabric->names != NULL && i < NAMES; i++) {
		if (snd_load(&fabric->names[i].address) != 0 && has_name(&fabric->names[i], w)) {
			snd_store_full(&fabric->names[i].address, 0);
			return snd_leave_with(fabric, SND_SUCCESS);
		}
	}
	return snd_leave_with(fabric, snd_fail(SND_INVALID_PARAMETER, "%s: this process has not published \"%s\"", op, name));
}

struct look {
	struct snd_fabric *f;
	uint64_t name[WORDS];
	uint64_t word; /* 0 = not found */
	int64_t next;  /* time of the next look */
};

static bool is_found(void *arg)
{
	struct look *l = arg;
	const int64_t now = snd_clock();
	if (now < l->next)
		return false;
	l->next = now + LOOK_INTERVAL;
	l->word = find(l->f, l->name, NULL);
	return l->word != 0;
}

snd_status snd_fabric_lookup(snd_fabric *fabric, const char *name, int64_t timeout, snd_address *address)
{
	SND_KEEP_ERRNO;
	const char *op = "look up";
	SND_CHECK_TIMEOUT(timeout, op);
	SND_CHECK_POINTER(address, op);
	*address = (snd_address){0, 0, 0};
	snd_status s = snd_check_name(name, op);
	if (s != SND_SUCCESS)
		return s;
	SND_ENTER(fabric, SND_TYPE_FABRIC, op);
	struct look l = {.f = fabric};
	words(name, l.name);
	const int64_t deadline = timeout < 0 ? timeout : snd_deadline(timeout);
	do { /* no ring announces a name */
		const int64_t left = snd_time_left(deadline);
		l.next = 0;
		s = snd_wait(fabric, left >= 0 && left < SLEEP_INTERVAL ? left : SLEEP_INTERVAL, is_found, NULL, &l, &(struct snd_call){.op = op, .object = "fabric"});
	} while (s == SND_IO_TIMEOUT && snd_time_left(deadline) != 0);
	if (s == SND_SUCCESS)
		*address = published_address(l.word);
	else if (s == SND_IO_TIMEOUT)
		s = snd_fail(s, "%s: no process of the fabric has published \"%s\" within %s", op, name, snd_duration(timeout).text);
	else
		s = snd_fail(s, "%s: the fabric was closed", op);
	return snd_leave_with(fabric, s);
}
