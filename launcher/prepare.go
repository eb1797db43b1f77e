package launcher

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/softnd/softnd/internal/unixsock"
)

// Prepared is the guard and the keeper of a job. They start while their caller makes what
// the ranks are to share.
type Prepared struct {
	ranks   int
	guard   int            // its process number
	conn    *unixsock.Conn // to the keeper; nil: there is nothing, or no more, to close
	refused error          // instead of conn
	ended   chan syscall.WaitStatus

	trouble *os.File // what guard and keeper have to say; nil: they have the standard error

	cgroup  group
	limits  limits
	grouped chan struct{} // closed when cgroup and limits are known
}

// Prepare begins to start the guard and the keeper of a job with so many ranks. [Prepared.Run]
// returns what goes wrong with it. Close must be called if Run is not, and may always be.
func Prepare(ranks int) *Prepared {
	p := &Prepared{ranks: ranks, grouped: make(chan struct{}), ended: make(chan syscall.WaitStatus, 1)}
	if !served {
		p.refused = ErrNotServed // another program than this one would be started
		return p
	}
	ours, theirs, err := unixsock.Pair(unix.SOCK_STREAM)
	if err != nil {
		p.refused = fmt.Errorf("make a socket: %w%s", err, remedy(err))
		return p
	}
	p.conn = ours
	name := newGroupName()
	go func() { // meanwhile, and before there are others that count
		p.limits, p.cgroup = readLimits(), groupNamed(name)
		close(p.grouped)
	}()
	pid, err := p.forkGuard(theirs, name) // here and now: everything waits for the guard
	theirs.Close()                        // our end must not seem alive because of a copy in here
	if err != nil {
		ours.Close()
		p.conn, p.refused = nil, fmt.Errorf("start the job's guard: %w%s", err, remedy(err))
		return p
	}
	p.guard = pid
	go growDescriptors(6 * ranks)
	go p.wait(pid)
	return p
}

// wait waits for the end of the guard.
func (p *Prepared) wait(pid int) {
	var ws syscall.WaitStatus
	for {
		if _, err := syscall.Wait4(pid, &ws, 0, nil); err != syscall.EINTR {
			break
		}
	}
	p.ended <- ws
}

func (p *Prepared) forkGuard(theirs *os.File, cgroup string) (pid int, err error) {
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return 0, fmt.Errorf("%w; make it with mknod -m 666 %s c 1 3", err, os.DevNull)
	}
	defer null.Close()
	far := p.ranks + 2*maxPorts // a pidfd for each rank, both ends of some ports, and little more
	// Standard error is for a guard or keeper in trouble; ranks have their pipes. It is a
	// file in memory, since the Go runtime's last words may be hundreds of lines.
	stderr := uintptr(syscall.Stderr)
	if fd, err := unix.MemfdCreate("softnd-trouble", unix.MFD_CLOEXEC); err == nil {
		p.trouble = os.NewFile(uintptr(fd), "trouble")
		stderr = p.trouble.Fd()
	}
	pid, err = forkExec(ownProgram, []string{guardName, strconv.Itoa(far), cgroup}, &syscall.ProcAttr{
		Env:   os.Environ(),
		Files: []uintptr{null.Fd(), null.Fd(), stderr, theirs.Fd()},
		Sys:   &syscall.SysProcAttr{Setsid: true},
	})
	if errors.Is(err, syscall.ENOENT) {
		err = fmt.Errorf("%s: %w; mount /proc: mount -t proc proc /proc", ownProgram, err)
	}
	return pid, err
}

// Run is [Run] with what has been prepared, for cfg that has as many ranks.
func (p *Prepared) Run(ctx context.Context, cfg Config) (*Report, error) {
	defer p.Close()
	err := cfg.check()
	switch {
	case err != nil:
	case p.refused != nil:
		err = p.refused
	case p.ranks != cfg.ranks():
		err = fmt.Errorf("%d ranks are prepared and %d to be run", p.ranks, cfg.ranks())
	}
	if err != nil {
		return nil, fmt.Errorf("start the job: %w", err)
	}
	f, err := begin(p, cfg)
	if err != nil {
		return nil, fmt.Errorf("start the job: %w", err)
	}
	p.conn = nil // closed by the job
	return f.run(ctx)
}

// Close takes back what has been prepared, unless it has been run.
func (p *Prepared) Close() {
	p.trouble.Close() // nil refuses
	if p.conn == nil {
		return
	}
	p.conn.Close()
	p.conn = nil
	<-p.ended
	<-p.grouped
	p.cgroup.end()
}
