package launcher

import "golang.org/x/sys/unix"

// maxPorts is how many ports the keeper has made for ranks that it is about to start.
const maxPorts = 3 * atOnce

// socketFD is where guard and keeper find the socket to the front.
const socketFD = 3

// ports are the two ends of what a rank is connected with: the pipes for its standard
// output and error, and its socket, if ranks have one. The keeper makes them
// before it starts the rank, and sends the front its ends: to hold those of all ranks takes a larger
// table of descriptors, for which the front has to wait, see growDescriptors, and the ranks
// need not.
type ports struct{ rank, front []int }

// ports is the number of ports of each rank.
func (j *job) ports() int {
	if j.Socket {
		return 3
	}
	return 2
}

// connect makes the ports of a rank. The front's ends do not block a thread; a rank expects
// its own to block.
func (j *job) connect() (p ports, err error) {
	defer func() {
		if err != nil {
			closeFDs(p.rank)
			closeFDs(p.front)
			p = ports{}
		}
	}()
	for i := range j.ports() {
		var fds [2]int
		if i == 2 {
			fds, err = unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		} else {
			err = unix.Pipe2(fds[:], unix.O_CLOEXEC)
		}
		if err != nil {
			return p, err
		}
		p.front, p.rank = append(p.front, fds[0]), append(p.rank, fds[1])
		if _, err := unix.FcntlInt(uintptr(fds[0]), unix.F_SETFL, unix.O_NONBLOCK); err != nil {
			return p, err
		}
	}
	return p, nil
}

func closeFDs(fds []int) {
	for _, fd := range fds {
		unix.Close(fd)
	}
}
