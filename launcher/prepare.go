package launcher

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/softnd/softnd/internal/meet/unixsock"
)

// Job is a job that has not run yet: its watchdog and its supervisor. They start while the
// caller creates what the ranks will share. A Job is for one goroutine at a time.
type Job struct {
	ranks    int
	watchdog int            // its PID
	conn     *unixsock.Conn // to the supervisor; nil if there is nothing to close
	refused  error          // why there is no conn
	ended    chan syscall.WaitStatus

	helperOutput *os.File // standard error of watchdog and supervisor; nil if they use the caller's

	cgroup     cgroupDir
	limits     limits
	limitsRead chan struct{} // closed when cgroup and limits are set
}

// Prepare starts the watchdog and the supervisor of a job with the given number of ranks. Errors
// are returned by [Job.Run]. The caller must call [Job.Run] or [Job.Close], and may call both.
func Prepare(ranks int) *Job {
	p := &Job{ranks: ranks, limitsRead: make(chan struct{}), ended: make(chan syscall.WaitStatus, 1)}
	if !served {
		p.refused = errNotServed // the executable would start its main program instead of the watchdog
		return p
	}
	ours, theirs, err := unixsock.Pair(unix.SOCK_STREAM)
	if err != nil {
		p.refused = fmt.Errorf("create socket pair: %w%s", err, hint(err))
		return p
	}
	p.conn = ours
	name := newCgroupName()
	go func() { // before any process of the job counts against a limit
		p.limits, p.cgroup = readLimits(), cgroupDirNamed(name)
		p.limits.reserveThreads()
		close(p.limitsRead)
	}()
	pid, err := p.startWatchdog(theirs, name) // not in a goroutine: all further steps wait for the watchdog
	theirs.Close()                            // our end must not seem alive because of a copy in here
	if err != nil {
		ours.Close()
		p.conn, p.refused = nil, fmt.Errorf("start the watchdog process: %w%s", err, hint(err))
		return p
	}
	p.watchdog = pid
	go growDescriptors(6 * ranks)
	go p.wait(pid)
	return p
}

// wait waits for the exit of the watchdog.
func (p *Job) wait(pid int) {
	var ws syscall.WaitStatus
	for {
		if _, err := syscall.Wait4(pid, &ws, 0, nil); err != syscall.EINTR {
			break
		}
	}
	p.ended <- ws
}

func (p *Job) startWatchdog(theirs *os.File, cgroup string) (pid int, err error) {
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return 0, fmt.Errorf("%w: create it with mknod -m 666 %s c 1 3", err, os.DevNull)
	}
	defer null.Close()
	far := p.ranks + 2*maxPipes // a pidfd for each rank, both ends of the pipes of one batch, and a few more
	// Watchdog and supervisor write errors to standard error. It is a memfd, because a crash of
	// the Go runtime prints hundreds of lines. Ranks have their own pipes.
	stderr := uintptr(syscall.Stderr)
	if fd, err := unix.MemfdCreate("softnd-helper-stderr", unix.MFD_CLOEXEC); err == nil {
		p.helperOutput = os.NewFile(uintptr(fd), "helper stderr")
		stderr = p.helperOutput.Fd()
	}
	pid, err = forkExec(ownProgram, []string{watchdogName, strconv.Itoa(far), cgroup}, &syscall.ProcAttr{
		Env:   os.Environ(),
		Files: []uintptr{null.Fd(), null.Fd(), stderr, theirs.Fd()},
		Sys:   &syscall.SysProcAttr{Setsid: true},
	})
	if errors.Is(err, syscall.ENOENT) {
		err = fmt.Errorf("%s: %w: mount /proc with mount -t proc proc /proc", ownProgram, err)
	}
	return pid, err
}

// Run starts the job, forwards its output and signals, and returns when no process of the job is
// left. cfg must have as many ranks as were given to [Prepare]. Run is called at most once.
//
// The launcher stops the job when:
//
//   - a rank fails or aborts the job,
//   - a signal ends the job, cfg.Timeout expires, or ctx is done,
//   - the output cannot be written,
//   - the calling process dies.
//
// Each line of a rank is written in one call, with the prefix "[rank] " unless cfg.Output says
// otherwise. The launcher adds a missing line feed at the end of the output of a rank, except in
// format Raw without time stamps. A line longer than 1 MiB is written in parts of that length.
// If Stdout or Stderr is a terminal, a carriage return ends a line too and is kept. All other
// bytes are written unchanged. No byte is dropped: a slow writer slows down the ranks.
//
// Run returns a nil report only if the job could not be started. The failure of a rank is not an
// error of Run. Run returns an error in these cases:
//
//   - main does not call [Serve];
//   - a helper process was killed (the ranks are dead then too);
//   - ctx ended: the error is its cause;
//   - the output could not be written: the error is the first one;
//   - the system refused to create pipes or processes.
func (p *Job) Run(ctx context.Context, cfg Config) (*Report, error) {
	defer p.Close()
	err := cfg.check()
	switch {
	case err != nil:
	case p.refused != nil:
		err = p.refused
	case p.ranks != cfg.ranks():
		err = fmt.Errorf("%d ranks in Config, but %d in the call of Prepare: use one number", cfg.ranks(), p.ranks)
	}
	if err != nil {
		return nil, fmt.Errorf("start job: %w", err)
	}
	f, err := begin(p, cfg)
	if err != nil {
		return nil, fmt.Errorf("start job: %w", err)
	}
	p.conn = nil // closed by the job
	return f.run(ctx)
}

// Close ends the helper processes of a job that has not run. After Run it does nothing.
func (p *Job) Close() {
	p.helperOutput.Close() // on nil it only returns an error
	if p.conn == nil {
		return
	}
	p.conn.Close()
	p.conn = nil
	<-p.ended
	<-p.limitsRead
	p.cgroup.destroy()
}
