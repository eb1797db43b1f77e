package endpoint

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/softnd/softnd/internal/testkit/proctest"
	"github.com/softnd/softnd/nd"
)

// poller waits for a completion queue in epoll, like an event loop.
type poller struct{ epoll, fd int }

func newPoller(t testing.TB, q nd.CompletionQueue) *poller {
	t.Helper()
	fd, err := q.EventFD()
	if err != nil {
		t.Fatal(err)
	}
	epoll, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(epoll) })
	if err := unix.EpollCtl(epoll, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: unix.EPOLLIN}); err != nil {
		t.Fatal(err)
	}
	return &poller{epoll, fd}
}

// ready reports whether the descriptor becomes readable within a time; -1 means proctest.Timeout
// time.
func (p *poller) ready(milliseconds int) (bool, error) {
	if milliseconds < 0 {
		milliseconds = int(proctest.Timeout.Milliseconds())
	}
	for {
		n, err := unix.EpollWait(p.epoll, make([]unix.EpollEvent, 1), milliseconds)
		if !errors.Is(err, unix.EINTR) {
			return n == 1, err
		}
	}
}

// wait blocks until the descriptor is readable, and reads it.
func (p *poller) wait() error {
	switch ok, err := p.ready(-1); {
	case err != nil:
		return err
	case !ok:
		return errors.New("no event")
	}
	_, err := p.read()
	return err
}

func (p *poller) read() (count uint64, err error) {
	var b [8]byte
	_, err = unix.Read(p.fd, b[:])
	return binary.NativeEndian.Uint64(b[:]), err
}

// events checks how often the descriptor was written to since it was last read.
func (p *poller) events(t *testing.T, want uint64) {
	t.Helper()
	n, err := p.read()
	if err != nil && !errors.Is(err, unix.EAGAIN) || n != want {
		t.Fatalf("%d events (%v), want %d", n, err, want)
	}
}

func TestEventFD(t *testing.T) {
	q := newTestQueue(t, 64)
	q.add(plain) // before the descriptor exists
	p := newPoller(t, q)
	if fd, err := q.EventFD(); err != nil || fd != p.fd {
		t.Errorf("the second call returns %d, %v", fd, err)
	}
	p.events(t, 1)
	p.events(t, 0)
	q.add(plain) // the program has not polled since
	p.events(t, 0)
	q.take(2)
	q.add(plain, plain, plain)
	p.events(t, 1)
	q.take(3)
	p.events(t, 0)
	q.add(plain)
	if err := p.wait(); err != nil {
		t.Fatal(err)
	}
	for range int(q.ring.Size()) {
		q.add(plain)
	}
	p.events(t, 1) // the queue has overrun
}

// The descriptor outlives Close until the last endpoint of the queue is closed.
func TestEventFDClosedWithQueue(t *testing.T) {
	q := newTestQueue(t, 64)
	ep, err := q.owner.adapter.CreateEndpoint(q.owner.ctx, nd.EndpointConfig{ReceiveCQ: q.completionQueue, InitiatorCQ: q.completionQueue})
	if err != nil {
		t.Fatal(err)
	}
	p := newPoller(t, q)
	isOurs := func() bool { // another open may reuse the number at any time
		to, _ := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", p.fd))
		return to == "anon_inode:[eventfd]"
	}
	if err := q.Close(); err != nil || !isOurs() {
		t.Errorf("Close: %v; the descriptor is there: %v", err, isOurs())
	}
	if _, err := q.EventFD(); !errors.Is(err, nd.InvalidHandle) {
		t.Errorf("EventFD of a closed queue: %v", err)
	}
	if err := ep.Close(); err != nil || isOurs() {
		t.Errorf("Close of the endpoint: %v; the descriptor is there: %v", err, isOurs())
	}
	if n := q.provider.engine.eventLoops.Load(); n != 0 {
		t.Errorf("the engine counts %d descriptors", n)
	}
}

// A peer in another process wakes a program that sleeps in epoll: with a message, and with the
// end of the connection.
func TestEventFDWakesSleepingProcess(t *testing.T) {
	for _, executor := range []Executor{Auto, Target} {
		for _, private := range []bool{false, true} {
			s := setup{Processes: true, Executors: [2]Executor{executor, executor}, Private: [2]bool{private, private}}
			t.Run(s.String(), func(t *testing.T) {
				pair := newPair(t, s)
				p := newPoller(t, pair.a.queues[receiveQueue])
				for i := range uint64(20) {
					pair.a.must(order{Do: doReceive, Context: i, Parts: mine(0, 4096)})
					sent := pair.b.start(order{Do: doSend, Context: i, Parts: mine(0, []int{8, 4096}[i%2])})
					if err := p.wait(); err != nil {
						t.Fatal(err)
					}
					if r := <-sent; r.Status != nd.Success {
						t.Fatal(r.Text)
					}
					pair.a.expect(receiveQueue, success(nd.RequestReceive, i, []int{8, 4096}[i%2]))
					pair.a.nothing(receiveQueue)
				}
				pair.a.must(order{Do: doReceive, Parts: mine(0, 4096)})
				pair.b.must(order{Do: doCloseEndpoint})
				if err := p.wait(); err != nil {
					t.Fatal(err)
				}
				pair.a.expect(receiveQueue, failure(nd.RequestReceive, 0, nd.Canceled))
			})
		}
	}
}
