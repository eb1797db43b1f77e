package cq

// TWIN c/src/endpoint/cq_notify.c.

import (
	"encoding/binary"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/softnd/softnd/internal/linux"
	"github.com/softnd/softnd/nd"
)

// Owner is what the events of a queue need of their provider. They call it with the queue's lock held.
type Owner interface {
	Wake()                  // wakes the calls that wait
	Defer(work func() bool) // runs work about every millisecond until it returns true
	KeepRecent()            // goes on to do so for another second
	AddDescriptors(n int32) // counts the event descriptors that exist
}

// Events announces the results of a ring: it releases calls of Notify, and makes the event descriptor readable. It names a
// result by its number plus one, the value of Tail after the result was added; 0 means none. The queue's lock guards it.
type Events struct {
	ring  *Ring
	owner Owner
	lock  sync.Locker // the queue's

	Calls        []*Call      // pending calls of Notify, the oldest first
	callEnded    sync.Cond    // broadcast when a call has returned
	latest       latestByType // latest results; without those that were added under an endpoint's lock, until CatchUp
	announced    latestByType // with moderation: latest results that can release a Notify
	lastReleased uint64       // the latest result that released a Notify

	moderator
	descriptor
}

// latestByType holds the latest result that satisfies each nd.NotifyType.
type latestByType [3]uint64

// Call is one pending call of Notify.
type Call struct {
	Type      nd.NotifyType
	Released  bool // an event has released the call
	MayReturn bool // the queue is closed and this is the oldest call: it returns now
}

// Init sets up the events of a ring, which a queue's lock guards.
func (e *Events) Init(r *Ring, owner Owner, lock sync.Locker) {
	e.ring, e.owner, e.lock = r, owner, lock
	e.callEnded.L = lock
	e.check = e.checkModeration
	e.fd = NoDescriptor
}

// CatchUp takes notice of the results that were added without Note.
func (e *Events) CatchUp() { e.latest[nd.NotifyAny] = e.ring.Tail.Load() }

// Note takes notice of the result that was just added. It raises the event now or, with moderation, later.
func (e *Events) Note(failed, solicited bool) {
	tail := e.ring.Tail.Load()
	e.latest[nd.NotifyAny] = tail
	if failed {
		e.latest[nd.NotifyErrors] = tail
	}
	if failed || solicited {
		e.latest[nd.NotifySolicited] = tail
	}
	if e.moderated && !failed && e.delay() { // not for a failure: no more results may follow, and the count may never be reached
		return
	}
	e.raise()
}

// raise raises an event for all results so far.
func (e *Events) raise() {
	if e.moderated {
		e.announced = e.latest
	}
	if len(e.Calls) > 0 {
		e.release()
	}
	if e.fd != NoDescriptor {
		e.signal()
	}
}

// byType returns the latest results that can release a Notify.
func (e *Events) byType() *latestByType {
	if e.moderated {
		return &e.announced
	}
	return &e.latest
}

// release releases all pending calls if there is a new result of their widest type.
func (e *Events) release() {
	if len(e.Calls) == 0 {
		return
	}
	widest := nd.NotifyErrors
	for _, w := range e.Calls {
		widest = widest.Combine(w.Type)
	}
	if at := e.byType()[widest]; at > max(e.lastReleased, e.ring.Head.Load()) {
		e.lastReleased = at
		for _, w := range e.Calls {
			w.Released = true
		}
		e.Calls = nil
		e.owner.Wake()
	}
}

// Add adds a call. An earlier result may release it at once.
func (e *Events) Add(w *Call) {
	e.Calls = append(e.Calls, w)
	e.release()
}

// Remove removes a call that returns.
func (e *Events) Remove(w *Call) {
	e.Calls = slices.DeleteFunc(e.Calls, func(other *Call) bool { return other == w })
	e.callEnded.Broadcast()
}

// EndCalls ends the pending calls one after the other. Each call has returned before the next one
// may, so that an observer is likely to see them return in order.
func (e *Events) EndCalls() {
	for len(e.Calls) > 0 {
		oldest := e.Calls[0]
		oldest.MayReturn = true
		e.owner.Wake()
		for len(e.Calls) > 0 && e.Calls[0] == oldest {
			e.callEnded.Wait()
		}
	}
}

// moderator delays the events of a queue so that one event covers many results. Its owner checks the interval about
// every millisecond.
type moderator struct {
	moderated bool
	interval  time.Duration // negative: only the count ends a delay
	count     int           // negative: only the interval ends a delay
	due       time.Time     // when the oldest delayed result reaches interval
	isChecked bool          // check is deferred work
	check     func() bool   // checkModeration as a value, made once so that delaying an event does not allocate
}

// Moderate delays events until count results are queued or the oldest of them is older than interval. An interval of 0,
// or a count of 0 or 1, ends moderation. A negative interval or count leaves the decision to the other.
func (e *Events) Moderate(interval time.Duration, count int) {
	if e.unannounced() > 0 {
		e.raise() // the new settings start with the next result
	}
	e.interval, e.count = interval, count
	e.moderated = interval != 0 && (count < 0 || count > 1)
	e.announced = e.latest
}

// unannounced returns the number of queued results for which no event was raised.
func (e *Events) unannounced() uint64 {
	return e.ring.Tail.Load() - max(e.byType()[nd.NotifyAny], e.ring.Head.Load())
}

// delay reports whether moderation delays the event of the result that was just added.
func (e *Events) delay() bool {
	if e.count >= 0 && e.unannounced() >= uint64(e.count) {
		return false
	}
	if e.unannounced() == 1 {
		e.due = time.Now().Add(e.interval)
	}
	if e.interval > 0 && !e.isChecked {
		e.isChecked = true
		e.owner.Defer(e.check)
	}
	return true
}

// checkModeration raises the delayed event when its time has come. It is deferred work while
// results are delayed. If the oldest result was taken meanwhile, the event of the others is
// slightly early.
func (e *Events) checkModeration() bool {
	e.lock.Lock()
	defer e.lock.Unlock()
	if e.unannounced() > 0 && e.interval >= 0 {
		if time.Now().Before(e.due) {
			e.owner.KeepRecent() // the time of the event is known: keep checking often
			return false
		}
		e.raise()
	}
	e.isChecked = false
	return true
}

// descriptor lets a program wait for results in poll or epoll. It is created on the first call of
// Descriptor. The queue's lock guards it, so that nothing writes to a closed descriptor.
type descriptor struct {
	fd int
	// signaled: written, and the queue was not empty since. A program reads the descriptor and
	// then polls until the queue is empty. It needs no further write before that.
	signaled bool
	overran  bool // the queue has overrun: the descriptor is written each time
}

// NoDescriptor is the number of a descriptor that does not exist.
const NoDescriptor = -1

// Descriptor returns a descriptor that becomes readable when a result is queued and when the queue overruns. It fails with
// a system error if it cannot create one.
func (e *Events) Descriptor() (fd int, err error) {
	if e.fd != NoDescriptor {
		return e.fd, nil
	}
	fd, err = linux.AboveStandard(unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK))
	if err != nil {
		return NoDescriptor, err
	}
	e.fd = fd
	e.owner.AddDescriptors(1)
	if e.overran || e.byType()[nd.NotifyAny] > e.ring.Head.Load() {
		e.signal()
	}
	return fd, nil
}

// eventIncrement is the value that a write adds to an event descriptor.
var eventIncrement = binary.NativeEndian.AppendUint64(nil, 1)

// Overran announces that the queue has overrun.
func (e *Events) Overran() {
	e.overran = true
	e.signal()
}

// signal makes the descriptor readable if it exists and is not readable yet.
func (e *Events) signal() {
	if e.fd != NoDescriptor && (!e.signaled || e.overran) {
		e.signaled = true
		_, _ = unix.Write(e.fd, eventIncrement) // fails only at the maximal count, when the descriptor is readable
	}
}

// NoteEmpty takes notice that all results were taken: the next one makes the descriptor readable again.
func (e *Events) NoteEmpty() {
	if e.signaled {
		e.signaled = false
	}
}

// CloseDescriptor closes the descriptor if it exists.
func (e *Events) CloseDescriptor() {
	if e.fd != NoDescriptor {
		_ = unix.Close(e.fd)
		e.fd = NoDescriptor
		e.owner.AddDescriptors(-1)
	}
}
