/* The private parts of connectors and listeners. */
#ifndef SND_CONNECTOR_H
#define SND_CONNECTOR_H

#include "endpoint/endpoint.h"

struct step; /* see cm_connector.c */

struct snd_connector {
	struct snd_object object;
	struct snd_link link;
	struct snd_adapter *adapter;
	struct snd_connection *conn;
	struct snd_endpoint *ep; /* NULL when its memory is freed */
	enum snd_phase phase;
	uint32_t waits; /* calls in progress */
	uint32_t cancels; /* how often they were cancelled */
	uint32_t inbound_reads, outbound_reads;
	uint32_t private_length;
	snd_address local, remote;
	bool owns_port, closed, disconnect_called, has_private_data;
	bool both_disconnected, disconnect_timed_out; /* copies of those of ep, once it is freed or the disconnect is over */
	bool owned; /* by its endpoint, which frees it */
	bool announced; /* that the step can be finished */
	const struct step *step; /* which the program has started and not finished; NULL = none */
	char peer[64]; /* of a disconnect */
	unsigned char private_data[SND_MAX_PRIVATE_DATA];
};

/* snd_change_phase changes the phase by an event. */
void snd_change_phase(struct snd_connector *c, enum snd_conn_event e);
/* snd_connector_new returns an open connector, NULL if there is no memory. */
struct snd_connector *snd_connector_new(struct snd_adapter *a);
/* snd_give_to_endpoint makes the endpoint free the connector with itself. */
void snd_give_to_endpoint(struct snd_connector *c);
/* snd_release_address unbinds a connector. */
void snd_release_address(struct snd_connector *c);
/* snd_withdraw ends an accepted Connect that is not going to be completed. */
bool snd_withdraw(struct snd_connector *c, const void *data, uint32_t length);
void snd_take_request(struct snd_connector *c, struct snd_connection *conn, snd_address local);

/* snd_is_requested reports whether the other side waits for an answer to the request that c has taken. */
bool snd_is_requested(const struct snd_connector *c);

/* snd_give_up ends a step that the program has started. */
void snd_give_up(struct snd_connector *c);
/* snd_has_news reports once whether the step of c can be finished. */
bool snd_has_news(struct snd_connector *c);

/* snd_endpoint_closed tells a connector that its endpoint's memory is freed. */
void snd_endpoint_closed(struct snd_connector *c);
void snd_forget_connector(struct snd_connector *c);

#endif
