/* Weak order: in which order bytes are stored. TWIN endpoint/internal/mode/weak/place.go. */
#include "endpoint/qp.h"
#include "endpoint/resp_serve.h"
#include "endpoint/weak.h"

static uint32_t parts_of(const struct snd_placement *p) { return (uint32_t)((p->skew + p->total + p->size - 1) / p->size); }

void snd_placement_draw(struct snd_placement *p, uint64_t random, uint64_t address, uint64_t total)
{
	*p = (struct snd_placement){.count = 1, .size = total, .total = total};
	if ((random & 1) == 0 || total <= 8)
		return;
	p->skew = address % 8;
	p->size = (total / (2 + (random >> 1) % (SND_MAX_PARTS - 1)) + 7) / 8 * 8;
	if (p->size < 8)
		p->size = 8;
	while ((p->count = parts_of(p)) > SND_MAX_PARTS)
		p->size += 8;
	for (uint32_t i = 0; i < p->count; i++) { /* shuffle */
		random = random >> 5 | random << 59;
		const uint32_t other = (uint32_t)(random % (i + 1));
		p->order[i] = p->order[other];
		p->order[other] = (uint8_t)i;
	}
}

uint64_t snd_placement_part(const struct snd_placement *p, uint64_t *n)
{
	const uint64_t i = p->order[p->next], whole = p->skew + p->total;
	uint64_t start = i * p->size, end = (i + 1) * p->size < whole ? (i + 1) * p->size : whole;
	start -= start < p->skew ? start : p->skew;
	end -= p->skew;
	*n = end - start - p->within;
	return start + p->within;
}

void snd_placement_advance(struct snd_placement *p, uint64_t n)
{
	uint64_t left;
	(void)snd_placement_part(p, &left);
	if (n < left) {
		p->within += n;
		return;
	}
	p->next++;
	p->within = p->due = 0;
}

/* next_part is snd_placement_part for a request or entry of the peer, which has a number. It draws the placement at the first
 * call. *n is 0 while the part is delayed. */
static uint64_t next_part(struct snd_endpoint *ep, struct snd_placement *p, uint64_t number, uint64_t address, uint64_t total, uint64_t *n)
{
	if (p->count == 0)
		snd_placement_draw(p, snd_weak_draw(ep->object.fabric, SND_OF_PLACEMENT, ep->number, number), address, total);
	*n = 0;
	if (p->next > 0 && p->within == 0 && !snd_is_due(ep->weak, &p->due, snd_weak_steps(ep, SND_OF_PLACEMENT, number << 8 | p->next)))
		return 0;
	return snd_placement_part(p, n);
}

uint64_t snd_next_weak_bytes(struct snd_endpoint *ep, const struct snd_send_request *r, uint64_t *n)
{
	if (r->hashed) /* a hash needs the bytes in order */
		return r->transferred;
	const uint64_t address = r->kind == SND_REQUEST_READ ? r->entries[0].address : r->remote_address;
	uint64_t most;
	const uint64_t at = next_part(ep, &snd_weak_request(ep, r)->placement, r->number, address, r->total, &most);
	*n = *n < most ? *n : most;
	return at;
}

void snd_weak_copied(struct snd_endpoint *ep, const struct snd_send_request *r, uint64_t n)
{
	if (!r->hashed)
		snd_placement_advance(&snd_weak_request(ep, r)->placement, n);
}

/* message_state returns the state of the entry at the front of the peer's ring. */
static struct snd_weak_message *message_state(struct snd_endpoint *ep)
{
	struct snd_weak_message *m = &ep->weak->message;
	if (m->id != ep->conn->in.next + 1)
		*m = (struct snd_weak_message){.id = ep->conn->in.next + 1};
	return m;
}

uint64_t snd_next_weak_part(struct snd_endpoint *ep, uint64_t *n)
{
	if ((ep->in_entry.flags & SNDL_FLAG_HASHED) != 0)
		return ep->in_copied;
	const uint64_t sink = ep->in_entry.kind == SNDL_KIND_READ_FRAGMENT ? ep->in_entry.sender_address : ep->in_entry.receiver_address;
	uint64_t most;
	const uint64_t at = next_part(ep, &message_state(ep)->placement, ep->conn->in.next, sink, ep->in_entry.fragment_length, &most);
	*n = *n < most ? *n : most;
	return at;
}

void snd_weak_copied_part(struct snd_endpoint *ep, uint64_t n)
{
	if ((ep->in_entry.flags & SNDL_FLAG_HASHED) == 0)
		snd_placement_advance(&message_state(ep)->placement, n);
}

/* The whole range is checked before the first part is stored. */
enum snd_outcome snd_place_write(struct snd_endpoint *ep)
{
	const uint64_t total = ep->in_entry.payload_length;
	struct snd_placement *p = &message_state(ep)->placement;
	struct snd_operand sink = {.token = ep->in_entry.token, .rights = SNDL_RIGHT_REMOTE | SNDL_RIGHT_WRITE,
		.address = ep->in_entry.receiver_address, .endpoint = ep->number, .bind = &ep->local_bind};
	enum snd_fault f = p->count == 0 ? snd_check_operand(&ep->guard, &sink, total) : SND_NO_FAULT, none;
	while (f == SND_NO_FAULT && (p->count == 0 || p->next < p->count)) {
		uint64_t n;
		const uint64_t at = next_part(ep, p, ep->conn->in.next, ep->in_entry.receiver_address, total, &n);
		if (n == 0)
			return SND_BLOCKED;
		const struct snd_operand source = {.memory = ep->in_entry.payload + at};
		sink.address = ep->in_entry.receiver_address + at;
		if (snd_copy(&ep->guard, &sink, &source, n, &f, &none))
			snd_placement_advance(p, n);
	}
	if (f != SND_NO_FAULT)
		snd_refuse_access(ep, &sink, total, f);
	return SND_EXECUTED;
}

bool snd_weak_before_serve(struct snd_endpoint *ep, enum snd_outcome *out)
{
	struct snd_weak_message *m = message_state(ep);
	const uint64_t number = ep->conn->in.next, n = ep->in_entry.payload_length;
	*out = SND_BLOCKED;
	if (!snd_is_due(ep->weak, &m->start, snd_weak_steps(ep, SND_OF_MESSAGES, number)))
		return true;
	if (ep->in_entry.kind != SNDL_KIND_SEND_IN_ENTRY || (ep->in_entry.flags & SNDL_FLAG_INVALIDATE) != 0 || ep->rcompleted == ep->rposted)
		return false;
	struct snd_receive *r = snd_receive_at(ep, ep->rcompleted);
	if (n > r->capacity)
		return false;
	if (!m->is_placed) {
		struct snd_operand source = {.memory = ep->in_entry.payload};
		if (!snd_fill_receive(ep, r, 0, &source, n)) {
			*out = ep->state == SND_QP_FAILED ? SND_EXECUTED : SND_BLOCKED;
			return true;
		}
		m->is_placed = true;
	}
	return !snd_is_due(ep->weak, &m->delivery, snd_weak_steps(ep, SND_OF_DELIVERY, number)); /* then serving it stores it once more */
}
