package endpoint

// TWIN c/src/endpoint/modes.c.

import (
	"github.com/softnd/softnd/endpoint/internal/mode"
	"github.com/softnd/softnd/endpoint/internal/mode/fault"
	"github.com/softnd/softnd/endpoint/internal/mode/integrity"
	"github.com/softnd/softnd/endpoint/internal/mode/weak"
	"github.com/softnd/softnd/internal/faultplan"
)

// The modes of an endpoint are behind its hook, and those of a provider behind that for calls. Only this file knows them by
// name. slowBit keeps all requests and messages of an endpoint with a mode from the fast path. On the slow path, each moment
// is a check of queuePair.hook, which is nil without a mode.

// initModes sets the modes that the options ask for.
func (p *Provider) initModes() {
	p.limits = &largeLimits
	calls := mode.Calls(mode.NoCalls{})
	if o := &p.options; o.WeakOrder != nil {
		p.modes.weak = weak.New(*o.WeakOrder, p.member.ID().Slot(), calls)
		p.calls, p.limits, p.isStepwise = p.modes.weak, &smallLimits, true
		calls = p.calls
	}
	if p.options.Faults == nil {
		return
	}
	if p.modes.faults = p.options.Faults(p.arena.RankOf(p.member.ID())); p.modes.faults != nil {
		p.calls = fault.NewCalls(p.modes.faults, calls)
	}
}

// setHook sets the hook of an endpoint. checksPayloads says that the endpoint asks for checks of its requests.
func (ep *queuePair) setHook(checksPayloads bool) {
	m := &ep.provider.modes
	if m.weak == nil && m.faults == nil && !checksPayloads {
		return
	}
	view, hook := ep.view(), mode.Hook(mode.None{})
	if m.weak != nil {
		hook = m.weak.Endpoint(view, hook)
	}
	if m.faults != nil {
		hook = fault.New(m.faults, view, hook)
	}
	ep.hook = integrity.New(view, hook, checksPayloads)
	ep.stateWord.Store(slowBit)
}

// payloadChecks returns the mode that checks payloads. An endpoint that does not ask for checks has it from the first hashed
// request or ring entry on.
func (ep *queuePair) payloadChecks() *integrity.Hook {
	if ep.hook == nil {
		ep.hook = integrity.New(ep.view(), mode.None{}, false)
	}
	return ep.hook.(*integrity.Hook) // the outermost
}

// modes are the modes of a provider. Each is nil if it is not in use.
type modes struct {
	faults *faultplan.Injector // rules that name this member
	weak   *weak.Order
}
