package softnd

import (
	"context"
	"errors"
	"net/netip"

	"github.com/softnd/softnd/nd"
	"github.com/softnd/softnd/shm"
)

// PublishName gives addr, such as the address of a listener, a name by which [Job.LookupName] finds it in all ranks of this host, and
// in members of the arena that are no ranks, in Go and C. The name has 1 to 64 characters out of A-Z a-z 0-9 . _ and -. It ends with a call
// of withdraw, and with this rank. PublishName and withdraw are safe for concurrent use.
//
// Errors:
//
//   - [nd.SharingViolation]: a process has the name; of two that publish it at the same time, both can get this error;
//   - [nd.InsufficientResources]: this rank has published 16 names;
//   - [nd.InvalidParameter]: another name, or addr is no IPv4 address with a port;
//   - [NoMemoryError].
func (j *Job) PublishName(name string, addr netip.AddrPort) (withdraw func(), err error) {
	withdraw, err = j.member.PublishName(name, addr)
	if _, isNoMemory := errors.AsType[*NoMemoryError](err); err == nil || isNoMemory {
		return withdraw, err
	}
	status := nd.InvalidParameter
	switch {
	case errors.Is(err, shm.ErrTaken):
		status = nd.SharingViolation
	case errors.Is(err, shm.ErrFull):
		status = nd.InsufficientResources
	}
	return nil, &nd.OpError{Op: "publish name", Object: "job", Status: status, Err: err}
}

// LookupName returns the address behind a name. It waits until a process publishes the name, or ctx ends. Safe for concurrent use.
//
// Errors: [nd.Canceled] if ctx has ended, [nd.InvalidParameter] for a name that no process can publish.
func (j *Job) LookupName(ctx context.Context, name string) (netip.AddrPort, error) {
	addr, err := j.member.LookupName(ctx, name)
	switch {
	case err == nil:
		return addr, nil
	case ctx.Err() != nil:
		return addr, nd.CanceledError(ctx, "look up name", "job")
	}
	return addr, &nd.OpError{Op: "look up name", Object: "job", Status: nd.InvalidParameter, Err: err}
}
