package launcher

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// exitOrder reports the exits of ranks in the order in which they happened. wait4 does not: of
// several zombies it returns the oldest child first. The order matters if peers fail because they
// lost a failed rank before the supervisor runs again. The kernel queues an epoll event for a
// pidfd at the moment of the exit and delivers events in queue order.
type exitOrder struct {
	epfd   int
	pidfds []int            // by rank; -1 without pidfd
	order  []int            // ranks whose exit is known and not yet delivered
	infos  map[int]exitInfo // of ranks that are reaped and not yet delivered
}

// exitInfo is what wait4 returns about a rank.
type exitInfo struct {
	status syscall.WaitStatus
	usage  usage
}

func newExitOrder(ranks int) (*exitOrder, error) {
	epfd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, err
	}
	d := &exitOrder{epfd: epfd, pidfds: make([]int, ranks), infos: make(map[int]exitInfo)}
	for r := range d.pidfds {
		d.pidfds[r] = -1
	}
	return d, nil
}

// watch watches a rank that has just been started. It takes ownership of pidfd. Without a pidfd
// (-1), the rank counts as exited when it is reaped.
func (d *exitOrder) watch(rank, pidfd int) {
	if pidfd < 0 {
		return
	}
	ev := unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(rank)}
	if unix.EpollCtl(d.epfd, unix.EPOLL_CTL_ADD, pidfd, &ev) != nil {
		unix.Close(pidfd)
		return
	}
	d.pidfds[rank] = pidfd
}

// reaped records how a rank ended.
func (d *exitOrder) reaped(rank int, e exitInfo) {
	d.infos[rank] = e
	if d.pidfds[rank] < 0 {
		d.order = append(d.order, rank)
	}
}

// deliver calls f for the reaped ranks in the order of their exits. A rank whose exit is known
// but that is not reaped yet delays the ranks that exited after it.
func (d *exitOrder) deliver(f func(rank int, e exitInfo)) {
	d.collect()
	for len(d.order) > 0 {
		rank := d.order[0]
		e, ok := d.infos[rank]
		if !ok {
			return
		}
		d.order = d.order[1:]
		delete(d.infos, rank)
		f(rank, e)
	}
}

func (d *exitOrder) collect() {
	var events [64]unix.EpollEvent
	for {
		n, err := unix.EpollWait(d.epfd, events[:], 0)
		if err == unix.EINTR {
			continue
		}
		if n <= 0 {
			return
		}
		for _, ev := range events[:n] {
			rank := int(ev.Fd)
			d.order = append(d.order, rank)
			// Remove it, or epoll reports the event again.
			_ = unix.EpollCtl(d.epfd, unix.EPOLL_CTL_DEL, d.pidfds[rank], nil)
			unix.Close(d.pidfds[rank])
		}
	}
}
