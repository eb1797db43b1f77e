/* Ranks that meet through the launcher's PMI, or at SOFTND_ROOT. Rank 0 groups them into hosts, and all learn the names of their fabrics.
 * Keys and values are those of internal/meet/bootstrap/hosts.go, so that C and Go ranks meet.
 * TWIN internal/meet/bootstrap/hosts.go. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "encoding.h"
#include "endpoint/provider.h"
#include "linux/memory_limit.h"
#include "meet/bootstrap.h"
#include "meet/root_rank.h"

#define HOST_KEY "softnd-host-%" PRIu32 /* of each rank: its host */
#define FABRIC_KEY "softnd-fabric" /* of rank 0: the agreement */
#define TABLE_KEY "softnd-hosts-%" PRIu32 /* of rank 0: a part of the text of the host table */

enum { TABLE_PART = 900 };

/* put, get and barrier are requests to the launcher, or to rank 0 at SOFTND_ROOT. */
static snd_status put(struct snd_place *p, const char *key, const char *value, int64_t deadline, const char *op)
{
	return p->root != NULL ? snd_root_put(p->root, key, value, deadline, op) : snd_pmi_put(&p->pmi, key, value, deadline, op);
}

static snd_status get(struct snd_place *p, const char *key, char value[SND_PMI_VALUE + 1], int64_t deadline, const char *op)
{
	return p->root != NULL ? snd_root_get(p->root, key, value, deadline, op) : snd_pmi_get(&p->pmi, key, value, deadline, op);
}

static snd_status barrier(struct snd_place *p, int64_t deadline, const char *op)
{
	return p->root != NULL ? snd_root_barrier(p->root, deadline, op) : snd_pmi_barrier(&p->pmi, deadline, op);
}

/* host says where a process runs, as far as that decides whether two processes can open the same fabric. */
struct host {
	char boot[64]; /* identity of the kernel's boot; "" if it cannot be read */
	char network[64]; /* network namespace, which holds the names of fabrics */
	char name[256]; /* for people */
	int64_t user;
};

static struct host this_host(void)
{
	struct host h = {.user = (int64_t)geteuid()};
	FILE *f = snd_open_text("/proc/sys/kernel/random/boot_id"); /* a container may hide it */
	if (f != NULL) {
		if (fgets(h.boot, sizeof h.boot, f) != NULL)
			h.boot[strcspn(h.boot, " \n")] = 0;
		fclose(f);
	}
	ssize_t n = readlink("/proc/self/ns/net", h.network, sizeof h.network - 1);
	h.network[n > 0 ? n : 0] = 0;
	if (gethostname(h.name, sizeof h.name - 1) != 0)
		snprintf(h.name, sizeof h.name, "?");
	return h;
}

static void format_host(const struct host *h, char text[SND_PMI_VALUE + 1])
{
	char boot[3 * sizeof h->boot], network[3 * sizeof h->network], name[SND_PMI_VALUE - 6 * 64 - 40];
	snd_escape(h->boot, boot, sizeof boot);
	snd_escape(h->network, network, sizeof network);
	snd_escape(h->name, name, sizeof name);
	snprintf(text, SND_PMI_VALUE + 1, "boot=%s&host=%s&network=%s&user=%" PRId64, boot, name, network, h->user);
}

/* field reads the value of a name in a query; false if it is malformed or does not fit. A missing one is "". */
static bool field(const char *query, const char *name, char *to, size_t size)
{
	const size_t k = strlen(name);
	*to = 0;
	while (*query != 0) {
		const size_t n = strcspn(query, "&");
		if (n > k && strncmp(query, name, k) == 0 && query[k] == '=')
			return snd_unescape(query + k + 1, n - k - 1, to, size);
		query += n + (query[n] == '&');
	}
	return true;
}

static bool parse_host(const char *text, struct host *h)
{
	char user[24], *end;
	if (!field(text, "boot", h->boot, sizeof h->boot) || !field(text, "network", h->network, sizeof h->network) || !field(text, "host", h->name, sizeof h->name) ||
		!field(text, "user", user, sizeof user))
		return false;
	h->user = strtoll(user, &end, 10);
	return user[0] != 0 && *end == 0;
}

static bool is_same_host(const struct host *a, const struct host *b)
{
	return strcmp(a->boot, b->boot) == 0 && strcmp(a->network, b->network) == 0 && a->user == b->user;
}

/* read_hosts groups the ranks into hosts. Ranks share a host if they can open the same fabric. *count may become SND_HOSTS + 1:
 * too many. */
static snd_status read_hosts(struct snd_place *p, const struct host *own, uint32_t *of, uint32_t *count, int64_t deadline, const char *op)
{
	struct host known[SND_HOSTS];
	char text[SND_PMI_VALUE + 1], key[SND_PMI_KEY + 1];
	known[0] = *own;
	*count = 1;
	of[0] = 0;
	for (uint32_t rank = 1; rank < p->size; rank++) {
		struct host theirs;
		uint32_t host = 0;
		snprintf(key, sizeof key, HOST_KEY, rank);
		snd_status s = get(p, key, text, deadline, op);
		if (s != SND_SUCCESS)
			return s;
		if (!parse_host(text, &theirs))
			return snd_fail(SND_UNSUCCESSFUL, "%s: host of rank %" PRIu32 ": malformed value \"%.100s\"", op, rank, text);
		while (host < *count && !is_same_host(&known[host], &theirs))
			host++;
		of[rank] = host;
		if (host < *count)
			continue;
		if (++*count > SND_HOSTS)
			return SND_SUCCESS;
		known[host] = theirs;
	}
	return SND_SUCCESS;
}

/* put_table publishes the hosts of all ranks as text: the host's number, and after an x how many consecutive ranks it has. */
static snd_status put_table(struct snd_place *p, const uint32_t *of, uint32_t *parts, int64_t deadline, const char *op)
{
	char *text = NULL, key[SND_PMI_KEY + 1], part[TABLE_PART + 1];
	size_t length = 0;
	FILE *f = open_memstream(&text, &length);
	if (f == NULL)
		return snd_no_memory(BUFSIZ, "private memory", op);
	for (uint32_t rank = 0, n; rank < p->size; rank += n) {
		for (n = 1; rank + n < p->size && of[rank + n] == of[rank];)
			n++;
		fprintf(f, "%s%" PRIu32 "x%" PRIu32, rank > 0 ? "," : "", of[rank], n);
	}
	snd_status s = fclose(f) == 0 ? SND_SUCCESS : snd_no_memory(BUFSIZ, "private memory", op);
	*parts = 0;
	for (size_t at = 0; s == SND_SUCCESS && at < length; at += TABLE_PART) {
		snprintf(part, sizeof part, "%.*s", TABLE_PART, text + at);
		snprintf(key, sizeof key, TABLE_KEY, (*parts)++);
		s = put(p, key, part, deadline, op);
	}
	free(text);
	return s;
}

/* digest_of writes the first digits of a hash of text. */
static void digest_of(const char *text, size_t digits, char *hex)
{
	unsigned char sum[32];
	char all[65];
	snd_sha256(text, strlen(text), sum);
	snd_hex(sum, sizeof sum, all);
	memcpy(hex, all, digits);
	hex[digits] = 0;
}

/* decide writes rank 0's value of FABRIC_KEY. */
static snd_status decide(struct snd_place *p, bool has_secret, const struct host *own, char answer[SND_PMI_VALUE + 1], int64_t deadline, const char *op)
{
	char hex[25], text[SND_RANDOM_TEXT], digits[2 * SND_SECRET + 1];
	unsigned char secret[SND_SECRET];
	uint32_t count = 0, parts = 0, *of = calloc(p->size, sizeof *of);
	if (of == NULL)
		return snd_no_memory(p->size * sizeof *of, "private memory", op);
	snd_status s = read_hosts(p, own, of, &count, deadline, op);
	if (s == SND_SUCCESS && (!snd_random_text(text) || getrandom(secret, sizeof secret, 0) != (ssize_t)sizeof secret))
		s = snd_fail(SND_UNSUCCESSFUL, "%s: getrandom failed", op);
	if (s == SND_SUCCESS && count > 1 && count <= SND_HOSTS)
		s = put_table(p, of, &parts, deadline, op);
	free(of);
	if (s != SND_SUCCESS)
		return s;
	digest_of(p->root != NULL ? snd_root_name(p->root) : p->pmi.name, 24, hex);
	snd_hex(secret, sizeof secret, digits);
	if (count == 1)
		snprintf(answer, SND_PMI_VALUE + 1, "name:job-%s-%s", hex, text);
	else if (count > SND_HOSTS)
		snprintf(answer, SND_PMI_VALUE + 1, "error:the+job+runs+on+more+than+%d+hosts%%3A+want+at+most+%d", SND_HOSTS, SND_HOSTS);
	else
		snprintf(answer, SND_PMI_VALUE + 1, "hosts:name=job-%s-%s&parts=%" PRIu32 "%s%s", hex, text, parts, has_secret ? "" : "&secret=", has_secret ? "" : digits);
	return SND_SUCCESS;
}

/* parse_table reads the result of put_table, and checks it. */
static bool parse_table(const char *text, struct snd_hosts *h)
{
	uint32_t ranks = 0;
	for (h->count = 0; *text != 0;) {
		char *end;
		const unsigned long long host = strtoull(text, &end, 10);
		if (end == text || *end != 'x' || host > h->count || host >= SND_HOSTS)
			return false;
		text = end + 1;
		const unsigned long long n = strtoull(text, &end, 10);
		if (end == text || n < 1 || n > h->size - ranks || (*end != 0 && (*end != ',' || end[1] == 0)))
			return false;
		for (unsigned long long i = 0; i < n; i++)
			h->of[ranks++] = (uint32_t)host;
		if (host == h->count)
			h->count++;
		text = end + (*end == ',');
	}
	return ranks == h->size && h->count > 1;
}

/* get_table reads the table of the hosts. */
static snd_status get_table(struct snd_place *p, uint64_t parts, struct snd_hosts *h, int64_t deadline, const char *op)
{
	char key[SND_PMI_KEY + 1], part[SND_PMI_VALUE + 1], *text = NULL;
	size_t length = 0;
	FILE *f = open_memstream(&text, &length);
	if (f == NULL)
		return snd_no_memory(BUFSIZ, "private memory", op);
	snd_status s = SND_SUCCESS;
	for (uint32_t i = 0; s == SND_SUCCESS && i < parts; i++) {
		snprintf(key, sizeof key, TABLE_KEY, i);
		if ((s = get(p, key, part, deadline, op)) == SND_SUCCESS)
			fputs(part, f);
	}
	if (fclose(f) != 0 && s == SND_SUCCESS)
		s = snd_no_memory(BUFSIZ, "private memory", op);
	if (s == SND_SUCCESS && !parse_table(text, h))
		s = snd_fail(SND_UNSUCCESSFUL, "%s: table of hosts: \"%.80s\" is not one of %" PRIu32 " ranks", op, text, h->size);
	free(text);
	return s;
}

/* find_secret takes the secret of the relays from the agreement, or derives it from that of the user. */
static bool find_secret(const struct snd_bytes *secret, const char *name, const char *digits, unsigned char of_relays[SND_SECRET])
{
	static const char purpose[] = "relays of ";
	if (secret == NULL)
		return snd_unhex(digits, of_relays, SND_SECRET);
	snd_hmac_sha256(secret->data, secret->length, (const struct snd_bytes[]){{purpose, strlen(purpose)}, {name, strlen(name)}}, 2, of_relays);
	return true;
}

/* read_agreement reads what rank 0 has decided: the name of the fabric, and the hosts if there are several. */
static snd_status read_agreement(struct snd_place *p, const struct snd_bytes *secret, const char *text, char name[SND_FABRIC_NAME + 1], struct snd_hosts **hosts, int64_t deadline, const char *op)
{
	char why[SND_PMI_VALUE + 1], number[12], digits[2 * SND_SECRET + 1], *end;
	*hosts = NULL;
	if (strncmp(text, "name:", 5) == 0 && snd_unescape(text + 5, strlen(text + 5), name, SND_FABRIC_NAME + 1))
		return SND_SUCCESS;
	if (strncmp(text, "error:", 6) == 0 && snd_unescape(text + 6, strlen(text + 6), why, sizeof why))
		return snd_fail(SND_HOST_UNREACHABLE, "%s: %s", op, why);
	if (strncmp(text, "hosts:", 6) == 0 && field(text + 6, "name", name, SND_FABRIC_NAME + 1) && field(text + 6, "parts", number, sizeof number) &&
		field(text + 6, "secret", digits, sizeof digits)) {
		const uint64_t parts = strtoull(number, &end, 10);
		struct snd_hosts *h = snd_hosts_new(p->size);
		if (h == NULL)
			return snd_no_memory(p->size * sizeof *h->of, "private memory", op);
		if (name[0] != 0 && strlen(name) + 3 <= SND_FABRIC_NAME && parts > 0 && *end == 0 && find_secret(secret, name, digits, h->secret)) {
			snd_status s = get_table(p, parts, h, deadline, op);
			if (s == SND_SUCCESS) {
				digest_of(name, SND_JOB_DIGITS, h->job);
				snd_hosts_place(h, p->rank);
				*hosts = h;
			} else {
				snd_hosts_free(h);
			}
			return s;
		}
		snd_hosts_free(h);
	}
	return snd_fail(SND_UNSUCCESSFUL, "%s: malformed value of " FABRIC_KEY ": \"%.100s\"", op, text);
}

/* agree gets the name of the fabric and the hosts, which rank 0 decides. */
static snd_status agree(struct snd_place *p, const struct snd_bytes *secret, char name[SND_FABRIC_NAME + 1], struct snd_hosts **hosts, int64_t deadline, const char *op)
{
	char text[SND_PMI_VALUE + 1], key[SND_PMI_KEY + 1];
	const struct host own = this_host();
	format_host(&own, text);
	snprintf(key, sizeof key, HOST_KEY, p->rank);
	snd_status s = put(p, key, text, deadline, op);
	if (s == SND_SUCCESS)
		s = barrier(p, deadline, op);
	if (s == SND_SUCCESS && p->rank == 0) {
		s = decide(p, secret != NULL, &own, text, deadline, op);
		if (s == SND_SUCCESS)
			s = put(p, FABRIC_KEY, text, deadline, op);
	}
	if (s == SND_SUCCESS)
		s = barrier(p, deadline, op);
	if (s == SND_SUCCESS)
		s = get(p, FABRIC_KEY, text, deadline, op);
	return s == SND_SUCCESS ? read_agreement(p, secret, text, name, hosts, deadline, op) : s;
}

snd_status snd_place_meet(struct snd_place *p, const struct snd_bytes *secret, const snd_fabric_options *o, int64_t deadline, snd_fabric **fabric, const char *op)
{
	char name[SND_FABRIC_NAME + 1];
	snd_status s = agree(p, secret, name, &p->hosts, deadline, op);
	if (s != SND_SUCCESS)
		return s;
	p->mute = true;
	const struct snd_hosts *h = p->hosts;
	const size_t known = strlen(p->launcher);
	if (h == NULL) {
		snprintf(p->launcher + known, sizeof p->launcher - known, ", meeting as %s", name);
		return snd_fabric_join(name, p->size, 0, 0, (int32_t)p->rank, o, deadline, fabric, op);
	}
	const size_t n = strlen(name);
	snprintf(name + n, sizeof name - n, "-%" PRIu32, h->number);
	snprintf(p->launcher + known, sizeof p->launcher - known, ", meeting as %s on host %" PRIu32 " of %" PRIu32, name, h->number, h->count);
	return snd_fabric_join(name, h->group, h->number, 0, (int32_t)h->local, o, deadline, fabric, op);
}

snd_status snd_place_over_pmi(struct snd_place *p, const snd_fabric_options *o, int64_t deadline, snd_fabric **fabric, const char *op)
{
	snd_status s = snd_pmi_dial(&p->pmi, deadline, op);
	if (s != SND_SUCCESS)
		return s;
	p->rank = p->pmi.rank;
	p->size = p->pmi.size;
	snprintf(p->launcher, sizeof p->launcher, "started by a launcher that speaks PMI (job %s)", p->pmi.name);
	return snd_place_meet(p, NULL, o, deadline, fabric, op);
}

snd_status snd_place_share(struct snd_place *p, const char *name, const char *mine, snd_shared_text *all, int64_t deadline, const char *op)
{
	const struct snd_hosts *h = p->hosts;
	char key[SND_PMI_KEY + 1], value[SND_PMI_VALUE + 1];
	snd_status s = SND_SUCCESS;
	if (snd_is_leader(h)) {
		(void)snd_escape(mine, value, sizeof value);
		snprintf(key, sizeof key, "softnd-shared-%s-%" PRIu32, name, h->number);
		s = put(p, key, value, deadline, op);
	}
	if (s == SND_SUCCESS)
		s = barrier(p, deadline, op);
	for (uint32_t host = 0; s == SND_SUCCESS && host < h->count; host++) {
		snprintf(key, sizeof key, "softnd-shared-%s-%" PRIu32, name, host);
		s = get(p, key, value, deadline, op);
		if (s == SND_SUCCESS && !snd_unescape(value, strlen(value), all[host], sizeof all[host]))
			s = snd_fail(SND_UNSUCCESSFUL, "%s: malformed value of %s: \"%.100s\"", op, key, value);
	}
	return s;
}
