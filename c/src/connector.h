/* The private part of a connector. */
#ifndef SND_CONNECTOR_H
#define SND_CONNECTOR_H

#include "endpoint.h"

enum snd_phase {
	SND_PHASE_NEW,       /* also after a failed Connect that may be repeated */
	SND_PHASE_CONNECTING,
	SND_PHASE_ACCEPTED,  /* active side: complete is due */
	SND_PHASE_REQUESTED, /* passive side: holds a request */
	SND_PHASE_ACCEPTING,
	SND_PHASE_CONNECTED, /* now or before */
	SND_PHASE_ENDED,
};

struct snd_connector {
	struct snd_object object;
	struct snd_link link;
	struct snd_adapter *adapter;
	struct snd_connection *conn;
	struct snd_endpoint *ep; /* NULL when its memory is freed */
	enum snd_phase phase;
	uint32_t waits; /* calls in progress */
	uint32_t inbound_reads, outbound_reads;
	uint32_t private_length;
	snd_address local, remote;
	bool owns_port, closed, disconnect_called, has_private_data;
	unsigned char private_data[SND_MAX_PRIVATE_DATA];
};

void snd_take_request(struct snd_connector *c, struct snd_connection *conn, snd_address local);

#endif
