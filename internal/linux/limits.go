package linux

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"path"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// The limits that control groups and resource limits set for the processes of a job, and the kernel counters that show
// whether a limit was reached.

// number reads a file that holds one number.
func number(file string) (uint64, bool) {
	text, err := os.ReadFile(file)
	if err != nil {
		return 0, false
	}
	n, err := strconv.ParseUint(strings.TrimSpace(string(text)), 10, 64)
	return n, err == nil // no limit is "max"
}

// TaskLimit is a limit on the number of tasks: processes and threads.
type TaskLimit struct {
	Limit, Used uint64 // Used does not count the tasks of this process
	Name        string // "pids.max of /sys/fs/cgroup/job"
}

// Left returns how many more tasks the limit allows.
func (t TaskLimit) Left() uint64 { return t.Limit - min(t.Limit, t.Used) }

func (t TaskLimit) String() string {
	return fmt.Sprintf("%s is %d, other processes use %d", t.Name, t.Limit, t.Used)
}

// TightestTaskLimit returns the task limit that leaves the fewest tasks. ok is false if there is
// no limit.
func TightestTaskLimit() (tightest TaskLimit, ok bool) {
	own := threads("self")
	for _, t := range append(cgroupTaskLimits(), userTaskLimit()...) {
		t.Used -= min(t.Used, own)
		if !ok || t.Left() < tightest.Left() {
			tightest, ok = t, true
		}
	}
	return tightest, ok
}

func cgroupTaskLimits() (found []TaskLimit) {
	for _, dir := range CgroupDirs("pids") {
		limit, limited := number(path.Join(dir, "pids.max"))
		used, known := number(path.Join(dir, "pids.current"))
		if limited && known {
			found = append(found, TaskLimit{limit, used, "pids.max of " + dir})
		}
	}
	return found
}

// ignoredUserLimit is a limit of the user that no job reaches. From there on, the user's threads
// are not counted.
const ignoredUserLimit = 1 << 15

// userTaskLimit returns the limit of ulimit -u, or none if the kernel does not apply it to this
// process.
func userTaskLimit() []TaskLimit {
	var l unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NPROC, &l) != nil || l.Cur >= ignoredUserLimit || isExempt() {
		return nil
	}
	uid := uint32(os.Getuid())
	processes, err := os.ReadDir("/proc")
	if err != nil {
		return []TaskLimit{{l.Cur, 0, "ulimit -u"}}
	}
	used := uint64(0)
	for _, p := range processes {
		if _, err := strconv.Atoi(p.Name()); err != nil {
			continue
		}
		var st unix.Stat_t
		if unix.Stat(path.Join("/proc", p.Name()), &st) == nil && st.Uid == uid {
			used += threads(p.Name())
		}
	}
	return []TaskLimit{{l.Cur, used, "ulimit -u"}}
}

// isExempt reports whether RLIMIT_NPROC does not apply to this process: it is root of the initial
// user namespace, or has CAP_SYS_ADMIN or CAP_SYS_RESOURCE there.
func isExempt() bool {
	const initial = "         0          0 4294967295\n"
	const admin, resource = 21, 24
	if users, err := os.ReadFile("/proc/self/uid_map"); err != nil || string(users) != initial {
		return false
	}
	if os.Getuid() == 0 {
		return true
	}
	set, err := strconv.ParseUint(field("self", "CapEff:"), 16, 64)
	return err == nil && set&(1<<admin|1<<resource) != 0
}

func threads(pid string) uint64 {
	n, _ := strconv.ParseUint(field(pid, "Threads:"), 10, 64)
	return n
}

// field returns the value of a line of /proc/PID/status, "" if it cannot be read.
func field(pid, name string) string {
	f, err := os.Open(path.Join("/proc", pid, "status"))
	if err != nil {
		return ""
	}
	defer f.Close()
	return find(f, name)
}

// find returns the value of key in a text of lines "key value", "" if there is none.
func find(text io.Reader, key string) string {
	for s := bufio.NewScanner(text); s.Scan(); {
		if name, value, ok := strings.Cut(strings.ReplaceAll(s.Text(), "\t", " "), " "); ok && name == key {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// Counter is a kernel counter that only grows.
type Counter struct {
	File, key string
	before    uint64
}

// newCounter returns the counter of a key in a file of lines "key number". ok is false if the
// file has no such line.
func newCounter(file, key string) (c Counter, ok bool) {
	c = Counter{File: file, key: key}
	now, ok := c.read()
	c.before = now
	return c, ok
}

func (c *Counter) read() (uint64, bool) {
	f, err := os.Open(c.File)
	if err != nil {
		return 0, false
	}
	defer f.Close()
	n, err := strconv.ParseUint(find(f, c.key), 10, 64)
	return n, err == nil
}

// Increase returns by how much the counter has grown since it was created; 0 if it cannot be read.
func (c *Counter) Increase() uint64 {
	now, ok := c.read()
	if !ok {
		return 0
	}
	return now - min(now, c.before)
}

// OOMKills returns the counter of processes killed by the out-of-memory killer in this process's
// control group. In version 2, that includes the groups below it. Without such a counter, OOMKills
// returns that of the machine. ok is false if there is none.
func OOMKills() (c Counter, ok bool) {
	for _, dir := range CgroupDirs("memory") {
		for _, file := range []string{"memory.events", "memory.oom_control"} {
			if c, ok := newCounter(path.Join(dir, file), "oom_kill"); ok {
				return c, true
			}
		}
	}
	return newCounter("/proc/vmstat", "oom_kill")
}

// TaskLimitHits returns a counter for each pids control group of this process: how often it
// refused to create a process or thread.
func TaskLimitHits() (all []Counter) {
	for _, dir := range CgroupDirs("pids") {
		if c, ok := newCounter(path.Join(dir, "pids.events"), "max"); ok {
			all = append(all, c)
		}
	}
	return all
}
