package endpoint

import (
	"github.com/softnd/softnd/endpoint/internal/mode"
	"github.com/softnd/softnd/endpoint/internal/wire"
	"github.com/softnd/softnd/nd"
	"github.com/softnd/softnd/shm"
	"github.com/softnd/softnd/window"
)

// endpointView is what the hook of an endpoint can ask of it.
type endpointView struct{ ep *queuePair }

// view returns an endpoint as its hook sees it.
func (ep *queuePair) view() mode.Endpoint {
	return mode.Endpoint{View: endpointView{ep}, Number: ep.number, Requests: len(ep.req.requests), Guard: ep.guard, Sink: &ep.sink, Source: &ep.source}
}

func (v endpointView) PeerRank() int {
	if v.ep.conn == nil {
		return shm.NoRank
	}
	return v.ep.provider.arena.RankOf(v.ep.conn.record.Peer.ID())
}

func (v endpointView) PeerName() string { return v.ep.conn.peerName }

func (v endpointView) HasEnded() bool { return v.ep.hasEnded() }

func (v endpointView) HasFailed() bool { return v.ep.hasEnded() || v.ep.hasOverrun() }

func (v endpointView) IsOldest(r *mode.Request) bool { return v.ep.sq.completed == r.Number }

func (v endpointView) IsReleased(end uint64) bool { return v.ep.conn.out.IsReleased(end) }

func (v endpointView) EntryNumber() uint64 { return v.ep.conn.in.Consumed() }

func (v endpointView) SharedState() (local, peer *wire.SharedQP) {
	return v.ep.localQP, v.ep.conn.peerQP
}

func (v endpointView) Error(op string, s nd.Status, detail, next string) error {
	return v.ep.opError(op, s, detail, next)
}

func (v endpointView) DescribeLocal(e wire.SGE) string { return v.ep.describeLocal(e) }

func (v endpointView) Reject(r *mode.Request, s nd.Status, detail string) {
	request := v.ep.requestAt(r.Number)
	request.cancelBinding()
	v.ep.reject(request, s, "%s", detail)
}

func (v endpointView) RejectLocal(r *mode.Request, e wire.SGE, f window.Fault) {
	v.ep.rejectLocal(v.ep.requestAt(r.Number), e, f)
}

func (v endpointView) RejectRemote(r *mode.Request, why string) {
	v.ep.rejectRemote(v.ep.requestAt(r.Number), why)
}

func (v endpointView) FailReceive(s, peer nd.Status, detail, next string) {
	v.ep.completeReceive(v.ep.receiveAt(v.ep.rq.completed), s, 0, 0)
	v.ep.failServing(peer, v.ep.opError("receive", s, detail, next))
}

func (v endpointView) FailServing(peer nd.Status, detail, next string) {
	v.ep.failServing(peer, v.ep.opError("serve", nd.ConnectionAborted, detail, next))
}

func (v endpointView) Terminate(cause error) { v.ep.terminate(cause) }

func (v endpointView) Overrun(ofReceives bool) {
	q := v.ep.sq.cq
	if ofReceives {
		q = v.ep.rq.cq
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.overrun()
}

func (v endpointView) PlaceEarly(e *wire.Entry) (a mode.Answer, isPlaced bool) {
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
