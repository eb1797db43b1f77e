package ndc

/*
#include <stdlib.h>

#include "softnd/softnd.h"
*/
import "C"

import (
	"net/netip"
	"time"
	"unsafe"
)

// Publish is shm.Member.PublishName.
func (p *Provider) Publish(name string, addr netip.AddrPort) error {
	c := C.CString(name)
	defer C.free(unsafe.Pointer(c))
	return status("publish", func() C.snd_status { return C.snd_fabric_publish(p.fabric, c, cAddress(addr)) })
}

// Lookup is shm.Member.LookupName.
func (p *Provider) Lookup(name string, limit time.Duration) (netip.AddrPort, error) {
	c := C.CString(name)
	defer C.free(unsafe.Pointer(c))
	var a C.snd_address
	err := status("look up", func() C.snd_status { return C.snd_fabric_lookup(p.fabric, c, C.int64_t(limit), &a) })
	return addressOf(a), err
}
