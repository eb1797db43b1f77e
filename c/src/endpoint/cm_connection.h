/* One side's private, checked view of a connection record. */
#ifndef SND_ENDPOINT_CM_CONNECTION_H
#define SND_ENDPOINT_CM_CONNECTION_H

#include "endpoint/endpoint.h"

struct snd_connection *snd_connection_new(struct snd_fabric *f, struct snd_connection_record *r, uint64_t offset, int side, struct snd_peer peer);
/* snd_name_peer writes the name of the process at the other side, for messages. Behind the relay, this is the rank of another host, or its
 * host while the ranks are not known. */
void snd_name_peer(const struct snd_connection *c, char *text, size_t size);
/* snd_say_lost writes that the peer is gone. If the relay is, no connection to another host can be made. */
void snd_say_lost(const struct snd_connection *c, char *text, size_t size);
/* snd_attach checks the peer's shared queue-pair state. The reason of a failure is in the text. */
bool snd_attach(struct snd_connection *c, struct snd_endpoint *ep);
/* snd_obey_access makes the peer's endpoint decide what requests of this side may do. */
void snd_obey_access(struct snd_connection *c);
/* snd_transition changes the state by an event. It reports whether it has: the other side may have been first. */
bool snd_transition(struct snd_connection *c, enum snd_conn_event e);
void snd_detach(struct snd_connection *c);
void snd_unuse(struct snd_connection *c);
void snd_refuse(struct snd_connection *c);
void snd_handle_request(struct snd_fabric *f, uint64_t offset);
void snd_forget_connection(struct snd_connection *c);

#endif
