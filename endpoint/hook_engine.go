package endpoint

import (
	"github.com/softnd/softnd/endpoint/internal/mode"
	"github.com/softnd/softnd/endpoint/internal/wire"
	"github.com/softnd/softnd/nd"
	"github.com/softnd/softnd/shm"
	"github.com/softnd/softnd/window"
)

// engineView is what the hook of an endpoint can ask of the engine.
type engineView struct{ ep *queuePair }

// view returns an endpoint as its hook sees it.
func (ep *queuePair) view() mode.Endpoint {
	return mode.Endpoint{Engine: engineView{ep}, Number: ep.number, Requests: len(ep.req.requests), Guard: ep.guard, Sink: &ep.sink, Source: &ep.source}
}

func (v engineView) PeerRank() int {
	if v.ep.conn == nil {
		return shm.NoRank
	}
	return v.ep.provider.arena.RankOf(v.ep.conn.record.Peer.ID())
}

func (v engineView) PeerName() string { return v.ep.conn.peerName }

func (v engineView) HasEnded() bool { return v.ep.hasEnded() }

func (v engineView) HasFailed() bool { return v.ep.hasEnded() || v.ep.hasOverrun() }

func (v engineView) IsOldest(r *mode.Request) bool { return v.ep.sq.completed == r.Number }

func (v engineView) IsReleased(end uint64) bool { return v.ep.conn.out.IsReleased(end) }

func (v engineView) EntryNumber() uint64 { return v.ep.conn.in.Consumed() }

func (v engineView) SharedState() (local, peer *wire.SharedQP) { return v.ep.localQP, v.ep.conn.peerQP }

func (v engineView) Error(op string, s nd.Status, detail, next string) error {
	return v.ep.opError(op, s, detail, next)
}

func (v engineView) DescribeLocal(e wire.SGE) string { return v.ep.describeLocal(e) }

func (v engineView) Reject(r *mode.Request, s nd.Status, detail string) {
	request := v.ep.requestAt(r.Number)
	request.cancelBinding()
	v.ep.reject(request, s, "%s", detail)
}

func (v engineView) RejectLocal(r *mode.Request, e wire.SGE, f window.Fault) {
	v.ep.rejectLocal(v.ep.requestAt(r.Number), e, f)
}

func (v engineView) RejectRemote(r *mode.Request, why string) {
	v.ep.rejectRemote(v.ep.requestAt(r.Number), why)
}

func (v engineView) FailReceive(s, peer nd.Status, detail, next string) {
	v.ep.completeReceive(v.ep.receiveAt(v.ep.rq.completed), s, 0, 0)
	v.ep.failServing(peer, v.ep.opError("receive", s, detail, next))
}

func (v engineView) FailServing(peer nd.Status, detail, next string) {
	v.ep.failServing(peer, v.ep.opError("serve", nd.ConnectionAborted, detail, next))
}

func (v engineView) Terminate(cause error) { v.ep.terminate(cause) }

func (v engineView) Overrun(ofReceives bool) {
	q := v.ep.sq.cq
	if ofReceives {
		q = v.ep.rq.cq
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.overrun()
}

func (v engineView) PlaceEarly(e *wire.Entry) (a mode.Answer, isPlaced bool) {
	ep, n := v.ep, uint64(e.PayloadLength)
	if ep.rq.completed == ep.rq.posted || n > ep.receiveAt(ep.rq.completed).capacity {
		return mode.Run, false
	}
	ep.source = window.Operand{Mem: e.Payload[:]}
	switch {
	case ep.fillReceive(ep.receiveAt(ep.rq.completed), 0, n):
		return mode.Run, true
	case ep.stoppedOutcome() == executed:
		return mode.Done, false
	}
	return mode.Hold, false
}
