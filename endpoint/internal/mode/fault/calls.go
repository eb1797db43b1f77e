package fault

// TWIN c/src/endpoint/fault_call.c.

import (
	"context"
	"time"

	"github.com/softnd/softnd/endpoint/internal/mode"
	"github.com/softnd/softnd/internal/faultplan"
	"github.com/softnd/softnd/nd"
	"github.com/softnd/softnd/shm"
)

// operations has the word of fault rules for each request and call, by its name in errors.
var operations = map[string]faultplan.Operation{
	"send":                faultplan.Send,
	"send immediate":      faultplan.Send,
	"send and invalidate": faultplan.SendAndInvalidate,
	"bind":                faultplan.Bind,
	"invalidate":          faultplan.Invalidate,
	"read":                faultplan.Read,
	"fetch and add":       faultplan.Atomic,
	"compare and swap":    faultplan.Atomic,
	"swap":                faultplan.Atomic,
	"write":               faultplan.Write,
	"write immediate":     faultplan.Write,
	"fast register":       faultplan.FastRegister,
	"receive":             faultplan.Receive,

	"connect":                 faultplan.Connect,
	"complete connect":        faultplan.CompleteConnect,
	"accept":                  faultplan.Accept,
	"disconnect":              faultplan.Disconnect,
	"listen":                  faultplan.Listen,
	"notify":                  faultplan.Notify,
	"allocate memory region":  faultplan.Allocate,
	"register":                faultplan.Register,
	"create memory window":    faultplan.CreateWindow,
	"create completion queue": faultplan.CreateQueue,
	"create endpoint":         faultplan.CreateEndpoint,
}

// Calls makes the rules of a plan act on the calls of a provider.
type Calls struct {
	mode.Calls
	injector *faultplan.Injector
}

// NewCalls returns the hook for calls. inner is the hook inside it.
func NewCalls(injector *faultplan.Injector, inner mode.Calls) *Calls { return &Calls{inner, injector} }

// Before asks the plan about a call, and acts.
func (h *Calls) Before(ctx context.Context, c mode.Call) error {
	op, ok := operations[c.Op]
	if !ok {
		return h.Calls.Before(ctx, c)
	}
	f, ok := h.injector.Next(faultplan.Event{Operation: op, Phase: faultplan.Post, Peer: c.Peer, Endpoint: c.Endpoint, Size: c.Size})
	if !ok {
		return h.Calls.Before(ctx, c)
	}
	fail := func(s nd.Status, err error) error {
		return &nd.OpError{Op: c.Op, Object: c.Object, Status: s, Detail: f.String(), Err: err, Next: next}
	}
	switch faultplan.Action(f.Action) {
	case faultplan.Fail:
		return fail(nd.Status(f.Status), nil)
	case faultplan.Refuse:
		return fail(nd.ConnectionRefused, nil)
	case faultplan.Exhaust:
		return fail(nd.NoMemory, &shm.NoMemoryError{Requested: c.Size, Limit: f.String(), Hint: "remove the rule"})
	case faultplan.Delay:
		select {
		case <-time.After(time.Duration(f.Delay)):
		case <-ctx.Done():
			return nd.CanceledError(ctx, c.Op, c.Object)
		}
	default:
		signalSelf(f)
	}
	return h.Calls.Before(ctx, c)
}

// Refuses asks the plan about a connection request that has arrived.
func (h *Calls) Refuses(peer int) bool {
	f, ok := h.injector.Next(faultplan.Event{Operation: faultplan.ConnectionRequest, Phase: faultplan.Post, Peer: peer})
	if ok {
		signalSelf(f)
	}
	return ok && f.Action == uint32(faultplan.Refuse) || h.Calls.Refuses(peer)
}
