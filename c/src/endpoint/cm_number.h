/* Connecting by number: two endpoints that name each other's numbers connect without a listener. */
#ifndef SND_ENDPOINT_CM_NUMBER_H
#define SND_ENDPOINT_CM_NUMBER_H

#include "endpoint/endpoint.h"

/* snd_number_params are the parameters of a connection. The requester uses outbound_reads, rnr_retry and retry_deadline. */
typedef struct snd_number_params {
	uint32_t number, dest; /* of this side and of the peer */
	uint32_t inbound_reads, outbound_reads;
	uint32_t access;        /* rights SNDL_RIGHT_READ, _WRITE and _ATOMIC that requests of the peer can use */
	uint64_t rnr_timer;     /* nanoseconds for which the peer waits for a Receive before it retries */
	uint32_t rnr_retry;     /* retries without a Receive at the peer; 7 = no limit */
	int64_t retry_deadline; /* nanoseconds after which a request to a peer that is not ready fails; 0 = never */
} snd_number_params;

/* These calls take the fabric's lock, and check their handle. */

/* snd_number_claim stores a number that no other endpoint of the fabric has: not 0, 1 or 0xffffff, and below 1 << 24. */
snd_status snd_number_claim(snd_adapter *adapter, uint32_t *number);
/* snd_number_free frees a number. No endpoint may use it. */
snd_status snd_number_free(snd_adapter *adapter, uint32_t number);
/* snd_endpoint_connect_number makes an idle endpoint with a number accept posts, and connect when the peer names its number, too. */
snd_status snd_endpoint_connect_number(snd_endpoint *endpoint, const snd_number_params *params);
/* snd_number_update takes the other parameters again, without number, dest and inbound_reads. */
snd_status snd_number_update(snd_endpoint *endpoint, const snd_number_params *params);
/* snd_number_leave makes the endpoint connect no more, if it has not. Another one can have its number then. */
snd_status snd_number_leave(snd_endpoint *endpoint);

/* These are called with the lock. */

/* snd_number_step goes on with an attempt to connect. It reports whether the endpoint is connected. */
bool snd_number_step(struct snd_endpoint *ep);
/* snd_number_progress is snd_number_step after the requests of peers, for an endpoint in any state. */
bool snd_number_progress(struct snd_endpoint *ep);
/* snd_number_progress_all makes progress with all endpoints of the fabric that wait for their peers. */
void snd_number_progress_all(struct snd_fabric *f);
/* snd_is_by_number reports whether a record is for a number, and not for a listener; snd_number_request accepts or refuses it then. */
bool snd_is_by_number(const struct snd_connection *c);
void snd_number_request(struct snd_fabric *f, struct snd_connection *c);
/* snd_number_ended shows that the endpoint has ended, and withdraws its record. */
void snd_number_ended(struct snd_endpoint *ep);
/* snd_requests_waited returns for how many nanoseconds requests have waited for a peer that does not answer. Of the time between two calls it counts
 * a little only: a process that was stopped sees what the peer has done before it gives up. match.looked_at = 0 begins at 0 again. */
int64_t snd_requests_waited(struct snd_endpoint *ep);
/* snd_number_forget takes the number from the endpoint, if it has one. */
void snd_number_forget(struct snd_endpoint *ep);

#endif
