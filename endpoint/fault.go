package endpoint

import (
	"runtime"
	"time"

	"golang.org/x/sys/unix"

	"github.com/softnd/softnd/endpoint/internal/wire"
	"github.com/softnd/softnd/internal/faultplan"
	"github.com/softnd/softnd/nd"
	"github.com/softnd/softnd/shm"
)

// If a fault plan has rules for this member, all its endpoints have slowBit in their state word, and so
// take the slow path only. There, three places ask the plan about a request: its post, the moment before
// it runs, and the moment before its result is queued. A message is looked up before it is stored into
// its receive. Each place asks once for a request, however often the request is tried.

// pendingFault is a rule that acts on a request or a message.
type pendingFault struct {
	faultplan.Fired
	until  time.Time // of a delay
	done   bool      // the action is complete
	inline []byte    // see stageCorrupted
}

func newPendingFault(f faultplan.Fired) *pendingFault {
	return &pendingFault{Fired: f, until: time.Now().Add(time.Duration(f.Delay))}
}

func (f *pendingFault) is(a faultplan.Action) bool { return f != nil && f.Action == uint32(a) }

// isDelaying reports whether f delays the request or message still.
func (f *pendingFault) isDelaying() bool { return f.is(faultplan.Delay) && !f.done }

// delayIsOver ends a delay when its time has come.
func (f *pendingFault) delayIsOver() bool {
	f.done = f.done || !time.Now().Before(f.until)
	return f.done
}

const atFaultRule = "the fault plan asks for it: change the rule if you do not want it"

// faults returns the fault rules of this member, nil if it has none.
func (ep *queuePair) faults() *faultplan.Injector { return ep.provider.faults }

// nextFault asks the fault plan about a request. It asks once in each phase.
func (ep *queuePair) nextFault(r *request, phase faultplan.Phase) (f faultplan.Fired, ok bool) {
	if r.faultPhases&(1<<phase) != 0 {
		return f, false
	}
	r.faultPhases |= 1 << phase
	return ep.faults().Next(faultplan.Event{
		Operation: r.operation(), Phase: phase, Peer: ep.peerRank(), Endpoint: ep.number, Window: r.faultWindow, Size: r.Total,
	})
}

// peerRank returns the rank at the other end, -1 if it is no rank.
func (ep *queuePair) peerRank() int {
	if ep.conn == nil {
		return shm.NoRank
	}
	return ep.provider.arena.RankOf(ep.conn.peer.ID())
}

// operation returns the word of fault rules for a request.
func (r *request) operation() faultplan.Operation {
	switch {
	case r.Kind == nd.RequestSend && r.Invalidate:
		return faultplan.SendAndInvalidate
	case r.Kind == nd.RequestInvalidate && r.Object.IsRegion():
		return faultplan.InvalidateRegion
	}
	return operationOf[r.Kind]
}

var operationOf = map[nd.RequestType]faultplan.Operation{
	nd.RequestSend:         faultplan.Send,
	nd.RequestBind:         faultplan.Bind,
	nd.RequestInvalidate:   faultplan.Invalidate,
	nd.RequestRead:         faultplan.Read,
	nd.RequestWrite:        faultplan.Write,
	nd.RequestFastRegister: faultplan.FastRegister,
}

// faultAtPost asks the plan about a post whose request is complete but not queued yet. It returns the
// error of the post, or nil.
func (ep *queuePair) faultAtPost(r *request) error {
	if ep.faults() == nil {
		return nil
	}
	if ep.faults().UsesWindows() {
		var named any
		if r.Object != nil {
			named = r.Object
		}
		r.faultWindow = ep.faults().WindowNumber(uint32(r.RemoteToken), named)
	}
	f, ok := ep.nextFault(r, faultplan.Post)
	if !ok {
		return nil
	}
	if f.Action == uint32(faultplan.Fail) {
		r.cancelBinding()
		return ep.opError(r.OpName(), nd.Status(f.Status), f.String(), atFaultRule)
	}
	ep.disrupt(f, r.OpName(), ep.sq.cq)
	r.PostedAfterEnd = ep.state() != connected
	return nil
}

// faultBeforeExecute asks the plan about a request that is the next to run, and acts. If it reports
// true, out replaces the outcome of execute.
func (ep *queuePair) faultBeforeExecute(r *request) (out outcome, handled bool) {
	if f, ok := ep.nextFault(r, faultplan.Execute); ok {
		r.fault = newPendingFault(f)
	}
	f := r.fault
	switch {
	case f == nil || r.untilFault(1) == 1 || r.bounceIndex >= 0: // the bytes before the fault are in a bounce buffer
		return 0, false
	case f.After > 0 && r.needsAck && r.EndEntry != 0 && !ep.conn.out.IsReleased(r.EndEntry):
		return blocked, true // the peer has yet to copy the bytes before the fault
	case f.is(faultplan.Delay):
		return blocked, !f.delayIsOver()
	}
	action := faultplan.Action(f.Action)
	if isDisruption := action != faultplan.Corrupt && action != faultplan.Fail && action != faultplan.InvalidateNow; isDisruption && ep.sq.completed != ep.req.next {
		return blocked, true // until the earlier requests are complete: else chance would decide which of them succeed
	}
	f.done = true
	switch action {
	case faultplan.Corrupt:
		return executed, !ep.stageCorrupted(r)
	case faultplan.Fail:
		r.cancelBinding()
		return ep.reject(r, nd.Status(f.Status), "%v, after %d bytes", f, f.After), true
	case faultplan.InvalidateNow:
		ep.counters.accessRefused++
		return ep.reject(r, nd.AccessViolation, "%s: %v has invalidated the token after %d bytes", ep.describeRequest(r), f, f.After), true
	}
	ep.disrupt(f.Fired, r.OpName(), ep.sq.cq)
	return blocked, ep.state() != connected || ep.hasOverrun()
}

// untilFault limits n, the next bytes of r, to those that come before the action of a fault rule. A
// message in a ring entry travels whole, so the action comes before it.
func (r *request) untilFault(n uint64) uint64 {
	f := r.fault
	if f == nil || f.done || r.Kind == nd.RequestRead && f.is(faultplan.Corrupt) { // corruptSink acts when the data has arrived
		return n
	}
	if r.Kind == nd.RequestSend && r.fitsEntry(wire.SendInEntry) {
		return 0
	}
	return min(n, f.After-min(f.After, r.Transferred))
}

// hasFaultWithin reports whether a fault rule acts between two bytes of r.
func (r *request) hasFaultWithin() bool { return r.fault != nil && r.fault.After > 0 }

// faultBeforeComplete asks the plan about a request that has ended and is the next to complete. It
// reports whether the request completes now.
func (ep *queuePair) faultBeforeComplete(r *request) bool {
	ep.corruptSink(r)
	if r.fault != nil && r.fault.inline != nil {
		r.Inline = r.fault.inline
	}
	if ep.checkRead(r); r.Status != nd.Success { // a Read with wrong data has not succeeded
		return true
	}
	if f, ok := ep.nextFault(r, faultplan.Complete); ok {
		r.fault = newPendingFault(f)
	}
	f := r.fault
	switch {
	case f == nil || f.Phase != uint32(faultplan.Complete) || f.done:
		return true
	case f.is(faultplan.Delay):
		return f.delayIsOver()
	}
	f.done = true
	if f.is(faultplan.Fail) {
		ep.reject(r, nd.Status(f.Status), "%v", f)
		return true
	}
	ep.disrupt(f.Fired, r.OpName(), ep.sq.cq)
	return ep.state() == connected || ep.state() == peerDisconnected
}

// isDelayed reports whether a fault rule delays a request or a message, which no ring announces.
func (ep *queuePair) isDelayed() bool {
	if ep.faults() == nil {
		return false
	}
	for number := ep.sq.completed; number != ep.req.submitted && number <= ep.req.next; number++ {
		if ep.requestAt(number).fault.isDelaying() {
			return true
		}
	}
	return ep.resp.fault.isDelaying()
}

// disrupt runs an action that does not concern a single request: it ends the process, the connection,
// or queue q. The caller holds ep.mu.
func (ep *queuePair) disrupt(f faultplan.Fired, op string, q *completionQueue) {
	switch faultplan.Action(f.Action) {
	case faultplan.Drop:
		ep.terminate(ep.opError(op, nd.ConnectionAborted, f.String()+" has dropped the connection", atFaultRule))
	case faultplan.Overrun:
		q.mu.Lock()
		q.overrun()
		q.mu.Unlock()
	default:
		signalSelf(f)
	}
}

// signalSelf stops or kills this process, if f asks for it. The signal goes to this thread, so that the
// thread runs no further instruction of the program.
func signalSelf(f faultplan.Fired) {
	var sig unix.Signal
	switch faultplan.Action(f.Action) {
	case faultplan.Stop:
		sig = unix.SIGSTOP
	case faultplan.Kill:
		sig = unix.SIGKILL
	default:
		return
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	_ = unix.Tgkill(unix.Getpid(), unix.Gettid(), sig) // a process may always signal itself
}
