// Package syslimit reads the limits that control groups and resource limits set to the
// processes of a job. It also reads the kernel counters that show that a limit was reached.
package syslimit

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Mount is where control groups are mounted.
const Mount = "/sys/fs/cgroup"

// Groups returns the directories in which the files of a controller are for this process:
// its own group first, then those above it. It does not check whether they exist.
func Groups(controller string) []string {
	memberships, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return nil
	}
	return GroupsIn(string(memberships), Mount, controller)
}

// GroupsIn is [Groups] with the content of /proc/self/cgroup, where each line is
// "number:controllers:directory", and with the place of the mounts. A container may see
// directories there that are those of the host; then its own group is at the root.
func GroupsIn(memberships, root, controller string) (dirs []string) {
	for line := range strings.Lines(memberships) {
		f := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(f) != 3 {
			continue
		}
		var mounts []string
		switch {
		case f[1] == "":
			mounts = []string{root, path.Join(root, "unified")}
		case slices.Contains(strings.Split(f[1], ","), controller):
			mounts = []string{path.Join(root, controller), path.Join(root, f[1])}
		}
		for _, mount := range slices.Compact(mounts) {
			for dir := path.Clean("/" + f[2]); ; dir = path.Dir(dir) {
				dirs = append(dirs, path.Join(mount, dir))
				if dir == "/" {
					break
				}
			}
		}
	}
	return dirs
}

// number reads a file that holds one number.
func number(file string) (uint64, bool) {
	text, err := os.ReadFile(file)
	if err != nil {
		return 0, false
	}
	n, err := strconv.ParseUint(strings.TrimSpace(string(text)), 10, 64)
	return n, err == nil // no limit is "max"
}

// Tasks is a limit on processes and threads.
type Tasks struct {
	Limit, Used uint64 // Used: by others than this process
	Name        string // "pids.max of /sys/fs/cgroup/job"
}

// Left returns how many more processes and threads the limit allows.
func (t Tasks) Left() uint64 { return t.Limit - min(t.Limit, t.Used) }

func (t Tasks) String() string {
	return fmt.Sprintf("%s is %d, of which others use %d", t.Name, t.Limit, t.Used)
}

// TightestTasks returns the limit on processes and threads that leaves the fewest; ok is
// false if there is none.
func TightestTasks() (tightest Tasks, ok bool) {
	own := threads("self")
	for _, t := range append(groupTasks(), userTasks()...) {
		t.Used -= min(t.Used, own)
		if !ok || t.Left() < tightest.Left() {
			tightest, ok = t, true
		}
	}
	return tightest, ok
}

func groupTasks() (found []Tasks) {
	for _, dir := range Groups("pids") {
		limit, limited := number(path.Join(dir, "pids.max"))
		used, known := number(path.Join(dir, "pids.current"))
		if limited && known {
			found = append(found, Tasks{limit, used, "pids.max of " + dir})
		}
	}
	return found
}

// plentyOfTasks is a limit of the user that no job here reaches, so the threads of the
// user need not be counted.
const plentyOfTasks = 1 << 15

// userTasks is the limit of ulimit -u, which the kernel does not apply to processes that may
// exceed it.
func userTasks() []Tasks {
	var l unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NPROC, &l) != nil || l.Cur >= plentyOfTasks || mayExceed() {
		return nil
	}
	uid := uint32(os.Getuid())
	processes, err := os.ReadDir("/proc")
	if err != nil {
		return []Tasks{{l.Cur, 0, "ulimit -u"}}
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
	return []Tasks{{l.Cur, used, "ulimit -u"}}
}

// mayExceed reports whether this process is root of the first user namespace, or has the
// capabilities CAP_SYS_ADMIN or CAP_SYS_RESOURCE there.
func mayExceed() bool {
	const first = "         0          0 4294967295\n"
	const admin, resource = 21, 24
	if users, err := os.ReadFile("/proc/self/uid_map"); err != nil || string(users) != first {
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

// field is a line of a process's status.
func field(pid, name string) string {
	f, err := os.Open(path.Join("/proc", pid, "status"))
	if err != nil {
		return ""
	}
	defer f.Close()
	return find(f, name)
}

// find returns what follows key in a text of lines that begin with a key.
func find(text io.Reader, key string) string {
	for s := bufio.NewScanner(text); s.Scan(); {
		if name, value, ok := strings.Cut(strings.ReplaceAll(s.Text(), "\t", " "), " "); ok && name == key {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// Counter counts how often something has happened since it was made.
type Counter struct {
	File, key string
	before    uint64
}

// newCounter makes a counter of a file with lines of a key and a number.
func newCounter(file, key string) (Counter, bool) {
	c := Counter{File: file, key: key}
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

// Since is how often it has happened.
func (c *Counter) Since() uint64 {
	now, ok := c.read()
	if !ok {
		return 0
	}
	return now - min(now, c.before)
}

// OutOfMemory counts the processes that the out-of-memory killer kills: in this process's
// control group, with those below it in version 2, or else on the whole machine.
func OutOfMemory() (Counter, bool) {
	for _, dir := range Groups("memory") {
		for _, file := range []string{"memory.events", "memory.oom_control"} {
			if c, ok := newCounter(path.Join(dir, file), "oom_kill"); ok {
				return c, true
			}
		}
	}
	return newCounter("/proc/vmstat", "oom_kill")
}

// NoTasks counts, for each limit of a control group, the processes and threads that could
// not be made because it was reached.
func NoTasks() (all []Counter) {
	for _, dir := range Groups("pids") {
		if c, ok := newCounter(path.Join(dir, "pids.events"), "max"); ok {
			all = append(all, c)
		}
	}
	return all
}
