package launcher

import "golang.org/x/sys/unix"

// maxPipes is the maximum number of pipes and sockets that the supervisor holds for ranks that it
// is about to start.
const maxPipes = 3 * startBatch

// socketFD is the descriptor number of the socket to the front end in watchdog and supervisor.
const socketFD = 3

// rankPipes are the two ends of the pipes for a rank's standard output and error, and of its
// socket pair if ranks have a socket. The supervisor creates them before it starts the rank, and
// sends the front end its ends. The front end needs a large descriptor table for them and has to
// wait for it, see growDescriptors. The ranks need not wait.
type rankPipes struct{ rank, frontEnd []int }

// pipesPerRank returns the number of pipes and sockets of each rank.
func (j *jobSpec) pipesPerRank() int {
	if j.Socket {
		return 3
	}
	return 2
}

// makeRankPipes creates the pipes and the socket of a rank. The front end's ends are
// non-blocking, the ends of the rank are blocking.
func (j *jobSpec) makeRankPipes() (p rankPipes, err error) {
	defer func() {
		if err != nil {
			closeFDs(p.rank)
			closeFDs(p.frontEnd)
			p = rankPipes{}
		}
	}()
	for i := range j.pipesPerRank() {
		var fds [2]int
		if i == 2 {
			fds, err = unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		} else {
			err = unix.Pipe2(fds[:], unix.O_CLOEXEC)
		}
		if err != nil {
			return p, err
		}
		p.frontEnd, p.rank = append(p.frontEnd, fds[0]), append(p.rank, fds[1])
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
