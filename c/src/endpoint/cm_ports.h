/* Ports, and the addresses of processes. */
#ifndef SND_ENDPOINT_CM_PORTS_H
#define SND_ENDPOINT_CM_PORTS_H

#include "shm/fabric.h"

snd_status snd_bind_port(struct snd_fabric *f, snd_address wanted, snd_address *bound, const char *op);
void snd_release_port(struct snd_fabric *f, uint16_t port);
/* snd_host_of returns the address of a member of the arena. */
uint32_t snd_host_of(const struct snd_fabric *f, uint32_t slot);
/* snd_number_of_host returns the number of the host of an address that a process of a job can have. */
uint32_t snd_number_of_host(uint32_t address);
bool snd_is_of_other_host(const struct snd_fabric *f, uint32_t host);
/* snd_is_address_of reports whether a process of the host with a number can have the address. */
bool snd_is_address_of(uint32_t address, uint32_t host);
/* snd_peer_at finds the process that receives requests for an address. It is the one that has the address, or the relay if
 * the address is of another host. known says whether a process of the job can have the address. */
bool snd_peer_at(const struct snd_fabric *f, uint32_t host, struct snd_peer *p, bool *known);
bool snd_find_relay(const struct snd_fabric *f, struct snd_peer *p);
/* snd_has_relay reports whether a member has become the relay; it may have ended since. It is a hint, and orders nothing. */
bool snd_has_relay(const struct snd_fabric *f);

#endif
