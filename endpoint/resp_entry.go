package endpoint

// TWIN c/src/endpoint/resp_serve.c.

import (
	"github.com/softnd/softnd/endpoint/internal/ring"
	"github.com/softnd/softnd/endpoint/internal/wire"
	"github.com/softnd/softnd/internal/testkit/failpoint"
	"github.com/softnd/softnd/nd"
	"github.com/softnd/softnd/window"
)

// decodeEntry decodes a copy of the ring entry in slot into ep.resp.entry. It reports whether the entry
// is valid.
func (ep *queuePair) decodeEntry(slot *ring.Words) bool {
	words := *slot // the peer can overwrite the slot
	// Each entry may name another token of the peer. All entries of a request name the same token of this side.
	if ep.resp.remoteBindCheck = (window.BindCheck{}); wire.Flags(words[0])&wire.FlagFirst != 0 {
		ep.resp.localBindCheck = window.BindCheck{}
	}
	if !ep.resp.entry.Decode(&words) || ep.resp.entry.IsExtended() && ep.localQP.Extended == 0 {
		return false
	}
	if ep.resp.entry.Flags&wire.FlagHashed != 0 {
		ep.payloadChecks()
	}
	return true
}

// releaseEntries returns the slots of finished entries to the peer. It wakes the peer if
// alwaysWake is set, or if the peer has asked for a wake-up when slots are free.
func (ep *queuePair) releaseEntries(alwaysWake bool) {
	c := ep.conn
	if c.peerFences { // requestWakeup of the peer issues the barrier between the release and the load below
		c.in.Release()
	} else {
		c.in.ReleaseFenced()
	}
	failpoint.Reach(failpoint.SlotsReleased)
	if alwaysWake || c.peerQP.NeedWakeup.Load() != 0 { // ORDER need-wakeup: after the release; pairs with the swap and the barrier in requestWakeup
		c.record.Peer.Wake()
	}
}

// completeReceive completes the oldest receive. invalidated is the token that the message has
// invalidated, or 0.
func (ep *queuePair) completeReceive(r *receive, s nd.Status, bytes uint64, invalidated nd.Token) {
	if ep.hook != nil {
		ep.hook.Served()
	}
	ep.result = nd.Result{Status: s, RequestContext: r.context, RequestType: nd.RequestReceive}
	if s == nd.Success {
		ep.result.BytesTransferred = uint32(bytes)
		switch e := &ep.resp.entry; {
		case invalidated != 0:
			ep.result.RequestType, ep.result.InvalidatedToken = nd.RequestReceiveAndInvalidate, invalidated
		case e.Flags&wire.FlagImmediate == 0:
		case e.IsWrite():
			ep.result.SetImmediate(nd.RequestReceiveWriteImmediate, e.Immediate)
		default:
			ep.result.SetImmediate(nd.RequestReceiveImmediate, e.Immediate)
		}
	}
	ep.rq.completed++
	ep.resp.messageReceived = 0
	// A receive that fails without a message makes an event of any kind, whatever the flags are.
	ep.pushResult(ep.rq.cq, &ep.rq.slots, ep.resp.entry.Flags&wire.FlagSolicited != 0)
}
