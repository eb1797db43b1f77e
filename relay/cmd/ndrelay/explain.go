package main

import (
	"fmt"
	"net/netip"
)

// explain adds to the error of the start what is wrong with the addresses of the relays, if anything is. relays has an address with
// a port for each host.
func explain(err error, relays []string) error {
	addresses := make([]netip.Addr, len(relays))
	for host, text := range relays {
		at, wrong := netip.ParseAddrPort(text)
		if wrong != nil {
			return err
		}
		addresses[host] = at.Addr()
	}
	for host, a := range addresses {
		for other, b := range addresses[:host] {
			switch {
			case a == b:
				return fmt.Errorf("%w; hosts %d and %d both have the address %v, as the bridges of containers do: set SOFTND_HOST_ADDRESS at each host to the address at which the others reach it", err, other, host, a)
			case a.Is4() != b.Is4():
				return fmt.Errorf("%w; host %d has the address %v and host %d %v, and no link connects IPv4 with IPv6: set SOFTND_HOST_ADDRESS to addresses of one family at all hosts", err, other, b, host, a)
			}
		}
	}
	return err
}
