package launcher

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// deaths tells in which order ranks died. wait4 does not: of several zombies it
// takes the oldest child first. That matters when one rank fails and its peers fail
// at the loss of it before the keeper runs again. The kernel queues an epoll event
// for a pidfd at the moment of death, and hands events out in the order of the queue.
type deaths struct {
	epfd   int
	pidfds []int // by rank; -1 if there is none
	order  []int // ranks whose death is known and not yet taken
	ends   map[int]ending
}

// ending is what wait4 tells about a rank.
type ending struct {
	status syscall.WaitStatus
	usage  Usage
}

func newDeaths(ranks int) (*deaths, error) {
	epfd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, err
	}
	d := &deaths{epfd: epfd, pidfds: make([]int, ranks), ends: make(map[int]ending)}
	for r := range d.pidfds {
		d.pidfds[r] = -1
	}
	return d, nil
}

// watch starts to watch a rank that has just been started; pidfd is now owned by d.
// Without a pidfd (-1) the rank's death counts from when it is reaped.
func (d *deaths) watch(rank, pidfd int) {
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

// reaped notes how a rank ended.
func (d *deaths) reaped(rank int, e ending) {
	d.ends[rank] = e
	if d.pidfds[rank] < 0 {
		d.order = append(d.order, rank)
	}
}

// take calls f for the ranks that have been reaped, first death first. A rank whose
// earlier death is known but that has not been reaped yet holds the later ones back.
func (d *deaths) take(f func(rank int, e ending)) {
	d.collect()
	for len(d.order) > 0 {
		rank := d.order[0]
		e, ok := d.ends[rank]
		if !ok {
			return
		}
		d.order = d.order[1:]
		delete(d.ends, rank)
		f(rank, e)
	}
}

func (d *deaths) collect() {
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
			// Removed, or the event would be reported again.
			_ = unix.EpollCtl(d.epfd, unix.EPOLL_CTL_DEL, d.pidfds[rank], nil)
			unix.Close(d.pidfds[rank])
		}
	}
}
