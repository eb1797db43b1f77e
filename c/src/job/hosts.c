/* The begin of a job over several hosts, and the numbers and addresses of its ranks. TWIN hosts.go. */
#include "job/hosts.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "encoding.h"
#include "endpoint/cm_ports.h"
#include "job/abort.h"
#include "job/hostcalls.h"
#include "job/hostrelay.h"
#include "linux/clock.h"
#include "linux/memory_limit.h"

enum { ADDRESS = 4 };

uint32_t snd_rank_at(const struct snd_job *j, uint32_t local)
{
	const struct snd_hosts *h = j->hosts;
	if (h == NULL)
		return local;
	for (uint32_t rank = 0; rank < h->size; rank++)
		if (h->of[rank] == h->number && h->position[rank] == local)
			return rank;
	return local;
}

bool snd_is_remote(const struct snd_job *j, uint32_t rank) { return j->hosts != NULL && j->hosts->of[rank] != j->hosts->number; }

/* An announcement is what a leader tells all ranks: the control address of the host's relay, or why there is none. */
static bool announce(char *text, size_t size, const char *relay, const char *why)
{
	char quoted[600], escaped[SND_PMI_VALUE + 1];
	snd_json_quote(why, quoted, sizeof quoted);
	snprintf(text, size, "{\"Relay\":\"%s\",\"Error\":%s}", relay, quoted);
	return snd_escape(text, escaped, sizeof escaped);
}

/* announce_failure cuts a reason that would be too long. */
static void announce_failure(char *text, size_t size, const char *cause)
{
	char why[512];
	snprintf(why, sizeof why, "%s", cause);
	while (!announce(text, size, "", why) && why[0] != 0)
		why[strlen(why) - 1] = 0;
}

/* start_relay starts the relay of this host. */
static snd_status start_relay(struct snd_job *j, char control[SND_RELAY_ADDRESS], int64_t deadline, const char *op)
{
	struct snd_hosts *h = j->hosts;
	struct snd_fabric *f = j->fabric;
	char address[SND_IP_ADDRESS];
	snd_lock(f);
	snd_status s = snd_alloc(&f->heap, SND_NOTICE, false, &h->notice, op);
	snd_unlock(f);
	if (s == SND_SUCCESS)
		s = snd_host_address(h->known, address, op);
	const struct snd_pmi *launcher = &j->place.pmi;
	return s == SND_SUCCESS ? snd_relay_start(&h->relay, f->arena.fd, launcher->socket < 0 || snd_pmi_ends_job(launcher) ? -1 : launcher->socket, h, snd_max_pack(j), address, control, deadline, op) : s;
}

/* read_announcements stores the relays as a list of JSON strings. It fails if a host has no relay. */
static snd_status read_announcements(const struct snd_hosts *h, snd_shared_text *all, char *relays, size_t size, const char *op)
{
	size_t n = 0;
	for (uint32_t host = 0; host < h->count; host++) {
		char why[300], relay[SND_RELAY_ADDRESS], quoted[2 * SND_RELAY_ADDRESS];
		if (snd_json_text(all[host], "Error", why, sizeof why) && why[0] != 0)
			return snd_fail(SND_HOST_UNREACHABLE, "%s: host %" PRIu32 " (of rank %" PRIu32 "): %s", op, host, snd_first_of(h, host), why);
		if (!snd_json_text(all[host], "Relay", relay, sizeof relay))
			return snd_fail(SND_UNSUCCESSFUL, "%s: announcement of host %" PRIu32 ": malformed value \"%.80s\"", op, host, all[host]);
		snd_json_quote(relay, quoted, sizeof quoted);
		n += (size_t)snprintf(relays + n, size - n, "%s%s", host > 0 ? "," : "[", quoted);
	}
	snprintf(relays + n, size - n, "]");
	return SND_SUCCESS;
}

/* exchange_addresses lets all ranks know the addresses of all. */
static snd_status exchange_addresses(struct snd_job *j, int64_t deadline, const char *op)
{
	const struct snd_hosts *h = j->hosts;
	struct snd_fabric *f = j->fabric;
	const uint32_t own = snd_host_of(f, f->slot);
	const unsigned char mine[ADDRESS] = {(unsigned char)(own >> 24), (unsigned char)(own >> 16), (unsigned char)(own >> 8), (unsigned char)own};
	unsigned char *all = malloc((size_t)h->size * ADDRESS);
	if (all == NULL)
		return snd_no_memory((uint64_t)h->size * ADDRESS, "private memory", op);
	snd_lock(f);
	snd_status s = snd_across_hosts(j, &(struct snd_exchange){mine, sizeof mine, all}, snd_time_left(deadline), op);
	for (uint32_t rank = 0; s == SND_SUCCESS && rank < h->size; rank++) {
		const unsigned char *b = all + (size_t)rank * ADDRESS;
		const uint32_t address = (uint32_t)b[0] << 24 | (uint32_t)b[1] << 16 | (uint32_t)b[2] << 8 | b[3];
		if (!snd_is_address_of(address, h->of[rank]))
			s = snd_fail(SND_UNSUCCESSFUL, "%s: rank %" PRIu32 " has the address %#" PRIx32 ", which is not one of host %" PRIu32, op, rank, address, h->of[rank]);
		h->addresses[rank] = address;
	}
	if (s == SND_SUCCESS) {
		f->addresses = h->addresses;
		f->addressed = h->size;
	}
	snd_unlock(f);
	free(all);
	return s;
}

snd_status snd_start_hosts(struct snd_job *j, int64_t deadline, const char *op)
{
	struct snd_hosts *h = j->hosts;
	char own[SND_PMI_VALUE + 1] = "", control[SND_RELAY_ADDRESS], relays[SND_HOSTS * 2 * SND_RELAY_ADDRESS + 2];
	snd_status s = SND_SUCCESS;
	if (snd_is_leader(h)) {
		if (start_relay(j, control, deadline, op) == SND_SUCCESS)
			(void)announce(own, sizeof own, control, "");
		else
			announce_failure(own, sizeof own, snd_last_error());
	}
	snd_shared_text *all = calloc(h->count, sizeof *all);
	if (all == NULL)
		return snd_no_memory(h->count * sizeof *all, "private memory", op);
	s = snd_place_share(&j->place, "relay", own, all, deadline, op);
	if (s == SND_SUCCESS)
		s = read_announcements(h, all, relays, sizeof relays, op);
	free(all);
	if (s != SND_SUCCESS)
		return s;
	snd_place_watch(&j->place, snd_job_ends, j);
	if (snd_is_leader(h)) {
		h->failed = snd_relay_connect(&h->relay, &j->place, h->number, relays, deadline, op); /* of which the other ranks of this host learn in exchange_addresses */
		if (h->failed != SND_SUCCESS)
			snprintf(h->why, sizeof h->why, "%s", snd_last_error());
	}
	return exchange_addresses(j, deadline, op);
}
