package launcher

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"

	"github.com/softnd/softnd/internal/linux"
)

// limits are the system's limits that a job may reach, and kernel counters from before the job,
// which show whether a limit was reached.
type limits struct {
	tasks        linux.TaskLimit // the one that leaves the fewest tasks
	limited      bool            // tasks is set
	taskFailures []linux.Counter
	oomKills     linux.Counter
	oomCounts    bool // oomKills is set
}

func readLimits() (l limits) {
	l.tasks, l.limited = linux.TightestTaskLimit()
	l.taskFailures = linux.TaskLimitHits()
	l.oomKills, l.oomCounts = linux.OOMKills()
	return l
}

// launcherTasks is the number of processes and threads of the front end, watchdog and supervisor.
// tasksPerGoRank is that of a rank that is a Go program. Both are for few cores. If fewer are
// allowed, the Go runtime of one of these processes crashes with a stack dump.
const (
	launcherTasks  = 36
	tasksPerGoRank = 5
)

// frontEndThreads and supervisorThreads are the numbers of threads that these processes create
// before the ranks start, in addition to those that run then. Each of them needs a few more during a
// job. Goroutines that wait for a helper, read a file in /proc, or write to a slow output take a
// thread each, and the garbage collector takes some. The supervisor needs more than the front end: it
// reads /proc while many children end.
const (
	frontEndThreads   = 4
	supervisorThreads = 6
)

// reserveThreads makes the Go runtime create n threads. It reuses idle threads, and it ends the
// process if it needs another one when the ranks have used up the limit. It does not promise to
// keep idle threads: if it does not, that crash is possible again, and nothing else changes.
func reserveThreads(n int) {
	var begun, ended sync.WaitGroup
	release := make(chan struct{})
	begun.Add(n)
	for range n {
		ended.Go(func() {
			runtime.LockOSThread() // each takes a thread of its own until the last one has begun
			defer runtime.UnlockOSThread()
			begun.Done()
			<-release
		})
	}
	begun.Wait()
	close(release)
	ended.Wait()
}

// reserveThreads reserves the threads of the front end, if the limit allows a job at all.
func (l *limits) reserveThreads() {
	if !l.limited || l.tasks.Left() >= launcherTasks {
		reserveThreads(frontEndThreads)
	}
}

// MinTasks returns the number of processes and threads of a job whose ranks are Go programs,
// including the caller of [Job.Run]. Run refuses to start a job if a limit allows fewer.
func MinTasks(ranks int) uint64 { return uint64(launcherTasks + tasksPerGoRank*ranks) }

// checkTaskLimit returns an error if the limit on processes and threads is too low for the job.
func (l *limits) checkTaskLimit(cfg *Config) error {
	if !l.limited {
		return nil
	}
	need := uint64(launcherTasks)
	for i := range cfg.Apps {
		each := 1
		if cfg.Apps[i].isGo() {
			each = tasksPerGoRank
		}
		need += uint64(cfg.Apps[i].Ranks * each)
	}
	if l.tasks.Left() >= need {
		return nil
	}
	return fmt.Errorf("create processes of %d ranks: %w (asked %d processes and threads, %v): raise the limit or start fewer ranks",
		cfg.ranks(), syscall.EAGAIN, need, l.tasks)
}

// isGo reports whether the program is a Go program, which has several threads from its start.
func (p *App) isGo() bool {
	program := p.Program
	if program == nil {
		path := p.Path
		if !filepath.IsAbs(path) {
			path = filepath.Join(p.Dir, path)
		}
		file, err := os.Open(path)
		if err != nil {
			return false
		}
		defer file.Close()
		program = file
	}
	// The Go linker puts a note of the owner "Go" right behind the headers.
	head, _ := io.ReadAll(io.NewSectionReader(program, 0, 4096))
	return bytes.HasPrefix(head, []byte("\x7fELF")) && bytes.Contains(head, []byte("\x04\x00\x00\x00Go\x00\x00"))
}

// noThread reports whether text has the Go runtime's message that it cannot create a thread. With
// cgo the message is another one.
func noThread(text []byte) bool {
	return bytes.Contains(text, []byte("runtime: failed to create new OS thread")) ||
		bytes.Contains(text, []byte("runtime/cgo: pthread_create failed"))
}

// reportHelperOutput reports what watchdog and supervisor wrote to standard error, except stacks
// of a Go runtime that could not create a thread.
func (f *frontEnd) reportHelperOutput() {
	if f.helperOutput == nil {
		return
	}
	text, _ := io.ReadAll(io.NewSectionReader(f.helperOutput, 0, 64<<10))
	if noThread(text) {
		f.taskLimitHit = true
		return
	}
	if message := strings.TrimRight(string(text), "\n"); message != "" && f.cfg.Warn != nil {
		f.cfg.Warn(message)
	}
}

// recordLimitsReached records which limits a failed job has reached.
func (f *frontEnd) recordLimitsReached() {
	r := f.report
	if r.ExitStatus() == 0 && f.failure == nil {
		return
	}
	hit := f.taskLimitHit
	for _, s := range f.streams {
		hit = hit || s != nil && s.noThread.Load()
	}
	for i := range f.limits.taskFailures {
		hit = hit || f.limits.taskFailures[i].Increase() > 0
	}
	if hit {
		line := "limit of processes and threads reached: raise it (ulimit -u, or that of the container) or start fewer ranks"
		if t, ok := linux.TightestTaskLimit(); ok {
			line = fmt.Sprintf("limit of processes and threads reached: %s is %d: raise it or start fewer ranks", t.Name, t.Limit)
		}
		r.LimitsReached = append(r.LimitsReached, line)
	}
	if !f.limits.oomCounts {
		return
	}
	kills := f.limits.oomKills.Increase()
	if kills == 0 {
		return
	}
	r.LimitsReached = append(r.LimitsReached, fmt.Sprintf("out-of-memory killer of the kernel killed %s during the job (oom_kill in %s): give the job more memory or start fewer ranks",
		count(int(kills), "process", "processes"), f.limits.oomKills.File))
	for rank := range r.Ranks {
		if one := &r.Ranks[rank]; one.failed() && !one.Stopped && one.Status.Signal() == syscall.SIGKILL {
			one.outOfMemory = true
		}
	}
}
