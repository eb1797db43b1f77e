package launcher

import (
	"errors"
	"fmt"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/softnd/softnd/internal/proctable"
)

// helperPeriod is the time between two checks whether guard or keeper is stopped.
const helperPeriod = time.Second

// helpers is what the front knows of guard and keeper. While one of them is stopped, by
// SIGSTOP or by a debugger, it neither sees how ranks end nor obeys orders.
type helpers struct {
	guard, keeper proctable.Process // PID 0: not found yet

	told   map[int]bool // by process number: the user has been told that it is stopped
	limit  time.Time    // when a stopped helper is killed; zero: never
	killed bool         // one of them, by this process
}

// bound sets when a helper that stays stopped is killed, unless it is to be earlier.
func (h *helpers) bound(limit time.Time) {
	if h.limit.IsZero() || limit.Before(h.limit) {
		h.limit = limit
	}
}

// find looks for guard and keeper in the process table, once for each.
func (h *helpers) find(guard int) {
	if h.guard.PID == 0 {
		h.guard, _ = proctable.Read(guard)
	}
	if h.keeper.PID != 0 {
		return
	}
	table, _ := proctable.All()
	for _, p := range table {
		if p.PPID == guard && p.Name == keeperName {
			h.keeper = p
		}
	}
}

// stopped reports whether the process that p named when it was read is stopped now.
func stopped(p proctable.Process) bool {
	if p.PID == 0 {
		return false
	}
	now, err := proctable.Read(p.PID)
	return err == nil && now.Start == p.Start && now.Stopped()
}

// checkHelpers names the helpers that are stopped. If the job is to end, it wakes them,
// and does their work if they stay stopped beyond the limit.
func (f *front) checkHelpers() {
	h := &f.helpers
	h.find(f.guard)
	guard, keeper := stopped(h.guard), stopped(h.keeper)
	if guard {
		f.nameHelper(h.guard)
	}
	if keeper {
		f.nameHelper(h.keeper)
	}
	if h.limit.IsZero() || !guard && !keeper {
		return
	}
	if time.Now().Before(h.limit) {
		for _, p := range []proctable.Process{h.guard, h.keeper} {
			if stopped(p) {
				_ = send(p, syscall.SIGCONT)
			}
		}
		return
	}
	f.replace(guard, keeper)
}

// replace kills a stopped keeper, with which its ranks die, and then a stopped guard,
// after all that descends from it. A guard that runs does the latter itself, and a
// keeper that runs obeys orders.
func (f *front) replace(guard, keeper bool) {
	h := &f.helpers
	if keeper {
		h.killed = true
		f.cgroup.kill()
		_ = send(h.keeper, unix.SIGKILL)
	}
	if !guard {
		return
	}
	if now, err := proctable.Read(h.keeper.PID); !keeper && err == nil && now.Start == h.keeper.Start && !now.Dead() {
		_ = send(h.guard, syscall.SIGCONT) // it has time: the keeper works
		return
	}
	h.killed = true
	for giveUp := time.Now().Add(patience); time.Now().Before(giveUp); time.Sleep(killPeriod) {
		if alive, err := killDescendants(h.guard.PID); err != nil || len(alive) == 0 {
			break
		}
	}
	_ = send(h.guard, unix.SIGKILL)
}

func (f *front) nameHelper(p proctable.Process) {
	h := &f.helpers
	if h.told[p.PID] || f.cfg.Notice == nil {
		return
	}
	if h.told == nil {
		h.told = make(map[int]bool)
	}
	h.told[p.PID] = true
	does := map[string]string{guardName: "which cleans up after the job", keeperName: "which starts and ends the ranks"}[p.Name]
	next := fmt.Sprintf("wake it with kill -CONT %d, or end the job, which wakes it", p.PID)
	if !h.limit.IsZero() {
		next = "it is woken to end the job; a second signal kills the job at once"
	}
	f.cfg.Notice(fmt.Sprintf("%s (pid %d), %s, is stopped by a signal or a debugger: %s", p.Name, p.PID, does, next))
}

// errReplaced is for a job whose end the keeper could not tell.
var errReplaced = errors.New("end the job: " + keeperName + " was stopped by a signal or a debugger and did not answer; it was killed with the ranks")

// conclude enters why the job ended into the report, if no keeper could tell.
func (f *front) conclude() {
	f.failed(errReplaced)
	if r := f.report; r.First < 0 && r.Abort == nil {
		r.Signal, r.TimedOut = f.signal, f.expired && f.signal == 0
	}
}
