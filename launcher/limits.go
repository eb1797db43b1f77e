package launcher

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/softnd/softnd/internal/syslimit"
)

// limits are the system's limits that a job may run into, and the counters, read before the
// job, that show whether one of them is reached.
type limits struct {
	tasks     syslimit.Tasks // the tightest on processes and threads
	tight     bool           // there is one
	noTasks   []syslimit.Counter
	oomKills  syslimit.Counter
	oomCounts bool // oomKills counts
}

func readLimits() (l limits) {
	l.tasks, l.tight = syslimit.TightestTasks()
	l.noTasks = syslimit.NoTasks()
	l.oomKills, l.oomCounts = syslimit.OutOfMemory()
	return l
}

// ownTasks is the number of processes and threads of the launcher with guard and keeper,
// goTasks that of a rank that is a Go program, on few cores. With less, the Go runtime
// of one of them ends in a trace of its stacks.
const (
	ownTasks = 28
	goTasks  = 5
)

// LeastTasks is how many processes and threads a job takes whose ranks are Go programs, the
// caller of [Run] counted. Run refuses a job that a limit leaves less.
func LeastTasks(ranks int) uint64 { return uint64(ownTasks + goTasks*ranks) }

// roomForTasks returns an error if the limit on processes and threads leaves too few for the job.
func (l *limits) roomForTasks(cfg *Config) error {
	if !l.tight {
		return nil
	}
	need := uint64(ownTasks)
	for i := range cfg.Parts {
		each := 1
		if cfg.Parts[i].isGo() {
			each = goTasks
		}
		need += uint64(cfg.Parts[i].Ranks * each)
	}
	if l.tasks.Left() >= need {
		return nil
	}
	return fmt.Errorf("make the processes of %d ranks: %w (want %d processes and threads or more, %v); raise that limit or start fewer ranks",
		cfg.ranks(), syscall.EAGAIN, need, l.tasks)
}

// isGo reports whether the program is one of Go, which has several threads from its start.
func (p *Part) isGo() bool {
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
	// The linker puts its note, of the owner "Go", right behind the headers.
	head, _ := io.ReadAll(io.NewSectionReader(program, 0, 4096))
	return bytes.HasPrefix(head, []byte("\x7fELF")) && bytes.Contains(head, []byte("\x04\x00\x00\x00Go\x00\x00"))
}

// noThread is what the Go runtime says when it cannot make a thread.
var noThread = []byte("runtime: failed to create new OS thread")

// tellTrouble tells the user what guard and keeper have said, but for the stacks of a
// runtime that got no thread.
func (f *front) tellTrouble() {
	if f.trouble == nil {
		return
	}
	text, _ := io.ReadAll(io.NewSectionReader(f.trouble, 0, 64<<10))
	if bytes.Contains(text, noThread) {
		f.noTasks = true
		return
	}
	if said := strings.TrimRight(string(text), "\n"); said != "" && f.cfg.Notice != nil {
		f.cfg.Notice(said)
	}
}

// enterShortages enters the limits that were reached during a failed job into its
// report.
func (f *front) enterShortages() {
	r := f.report
	if r.ExitStatus() == 0 && f.failure == nil {
		return
	}
	short := f.noTasks
	for _, s := range f.streams {
		short = short || s != nil && s.noThread.Load()
	}
	for i := range f.limits.noTasks {
		short = short || f.limits.noTasks[i].Since() > 0
	}
	if short {
		line := "the limit of processes and threads was reached; raise it (ulimit -u, or the container's) or start fewer ranks"
		if t, ok := syslimit.TightestTasks(); ok {
			line = fmt.Sprintf("the limit of processes and threads was reached: %s is %d; raise it or start fewer ranks", t.Name, t.Limit)
		}
		r.Shortages = append(r.Shortages, line)
	}
	if !f.limits.oomCounts {
		return
	}
	kills := f.limits.oomKills.Since()
	if kills == 0 {
		return
	}
	r.Shortages = append(r.Shortages, fmt.Sprintf("the kernel's out-of-memory killer killed %s during the job (oom_kill in %s); give the job more memory or start fewer ranks",
		count(int(kills), "process", "processes"), f.limits.oomKills.File))
	for rank := range r.Ranks {
		if one := &r.Ranks[rank]; one.failed() && !one.Stopped && one.Status.Signal() == syscall.SIGKILL {
			one.OutOfMemory = true
		}
	}
}
