package launcher

import (
	"errors"
	"fmt"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/softnd/softnd/internal/linux"
)

// helperPeriod is the time between two checks whether a helper process is stopped.
const helperPeriod = time.Second

// helpers is the front end's state of its two helper processes. While one of them is stopped, by
// SIGSTOP or a debugger, it neither notices exits of ranks nor obeys orders.
type helpers struct {
	watchdog, supervisor linux.Process // PID 0 until it is found

	reported map[int]bool // by PID: helpers whose stop has been reported
	limit    time.Time    // when a stopped helper is killed; zero means never
	killed   bool         // this process has killed a helper
}

// setKillDeadline sets the time at which a stopped helper is killed, unless an earlier one is
// set.
func (h *helpers) setKillDeadline(limit time.Time) {
	if h.limit.IsZero() || limit.Before(h.limit) {
		h.limit = limit
	}
}

// find finds watchdog and supervisor in the process table, once each.
func (h *helpers) find(watchdog int) {
	if h.watchdog.PID == 0 {
		h.watchdog, _ = linux.ReadProcess(watchdog)
	}
	if h.supervisor.PID != 0 {
		return
	}
	table, _ := linux.Processes()
	for _, p := range table {
		if p.PPID == watchdog && p.Name == supervisorName {
			h.supervisor = p
		}
	}
}

// isStopped reports whether p still exists and is stopped now.
func isStopped(p linux.Process) bool {
	if p.PID == 0 {
		return false
	}
	now, err := linux.ReadProcess(p.PID)
	return err == nil && now.Start == p.Start && now.Stopped()
}

// checkHelpers reports helpers that are stopped. If the job is to end, it resumes them. It kills
// those that are still stopped at the deadline.
func (f *frontEnd) checkHelpers() {
	h := &f.helpers
	h.find(f.watchdog)
	watchdogStopped, supervisorStopped := isStopped(h.watchdog), isStopped(h.supervisor)
	if watchdogStopped {
		f.reportStopped(h.watchdog)
	}
	if supervisorStopped {
		f.reportStopped(h.supervisor)
	}
	if h.limit.IsZero() || !watchdogStopped && !supervisorStopped {
		return
	}
	if time.Now().Before(h.limit) {
		for _, p := range []linux.Process{h.watchdog, h.supervisor} {
			if isStopped(p) {
				_ = send(p, syscall.SIGCONT)
			}
		}
		return
	}
	f.killStopped(watchdogStopped, supervisorStopped)
}

// killStopped kills a stopped supervisor, with which its ranks die. It kills a stopped watchdog
// after all descendants of it. A running watchdog kills those itself, and a running supervisor
// obeys orders.
func (f *frontEnd) killStopped(watchdogStopped, supervisorStopped bool) {
	h := &f.helpers
	if supervisorStopped {
		h.killed = true
		f.cgroup.kill()
		_ = send(h.supervisor, unix.SIGKILL)
	}
	if !watchdogStopped {
		return
	}
	if now, err := linux.ReadProcess(h.supervisor.PID); !supervisorStopped && err == nil && now.Start == h.supervisor.Start && !now.Dead() {
		_ = send(h.watchdog, syscall.SIGCONT) // no need to kill it: the supervisor still works
		return
	}
	h.killed = true
	for giveUp := time.Now().Add(killTimeout); time.Now().Before(giveUp); time.Sleep(killPeriod) {
		if alive, err := killDescendants(h.watchdog.PID); err != nil || len(alive) == 0 {
			break
		}
	}
	_ = send(h.watchdog, unix.SIGKILL)
}

func (f *frontEnd) reportStopped(p linux.Process) {
	h := &f.helpers
	if h.reported[p.PID] || f.cfg.Warn == nil {
		return
	}
	if h.reported == nil {
		h.reported = make(map[int]bool)
	}
	h.reported[p.PID] = true
	role := map[string]string{watchdogName: "the watchdog of the job", supervisorName: "the supervisor of the job"}[p.Name]
	next := fmt.Sprintf("resume it with kill -CONT %d, or end the job", p.PID)
	if !h.limit.IsZero() {
		next = "it is resumed to end the job; a second signal kills the job at once"
	}
	f.cfg.Warn(fmt.Sprintf("%s (pid %d), %s, is stopped by a signal or a debugger: %s", p.Name, p.PID, role, next))
}

// errHelperStopped is the error of a job whose end the supervisor could not report.
var errHelperStopped = errors.New("end job: " + supervisorName + " was stopped by a signal or a debugger and did not respond: it was killed with the ranks")

// recordUnknownEnd records why the job ended if no supervisor could report it.
func (f *frontEnd) recordUnknownEnd() {
	f.addError(errHelperStopped)
	if r := f.report; r.First < 0 && r.Abort == nil {
		r.Signal, r.TimedOut = f.signal, f.expired && f.signal == 0
	}
}
