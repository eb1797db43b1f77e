package launcher

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// group is a cgroup (version 2) of the job's own that holds the ranks and whatever
// descends from them, but none of the supervisors. The kernel kills it in one step, so
// nothing that forks gets away, and whoever still lives can do it: the keeper, the
// guard, or the front when both of those were killed.
//
// It is the path of the directory, "" if there is no place for one. The directory may be
// missing too: not every user may make one, and it takes Linux 5.14. The job comes down
// without it.
//
// The front chooses a name, from which guard and front find the path, and the keeper makes
// the directory. So whoever of them is killed, the others know what to remove.
type group string

func newGroupName() string {
	return fmt.Sprintf("softnd-%d-%d", os.Getpid(), time.Now().UnixNano())
}

// groupNamed is the group of that name below the cgroup of this process, in which those
// of the other two are too.
func groupNamed(name string) group {
	own := ownCgroup()
	if own == "" {
		return ""
	}
	return group(filepath.Join(own, name))
}

// make makes the directory, if it may be made and is of use.
func (g group) make() {
	if g != "" && unix.Mkdir(string(g), 0o755) == nil && unix.Access(filepath.Join(string(g), "cgroup.kill"), unix.W_OK) != nil {
		_ = unix.Rmdir(string(g))
	}
}

// ownCgroup is the directory in which this process's version 2 cgroup can be seen; "" if
// that is nowhere.
func ownCgroup() string {
	memberships, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return ""
	}
	var own string
	for line := range strings.Lines(string(memberships)) {
		if path, ok := strings.CutPrefix(strings.TrimSuffix(line, "\n"), "0::"); ok {
			own = path
		}
	}
	if own == "" || strings.HasPrefix(own, "/..") { // above what this namespace shows
		return ""
	}
	mounts, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return ""
	}
	defer mounts.Close()
	for s := bufio.NewScanner(mounts); s.Scan(); {
		mount, kind, _ := strings.Cut(s.Text(), " - ")
		const root, point = 3, 4
		f := strings.Fields(mount)
		if !strings.HasPrefix(kind, "cgroup2 ") || len(f) <= point {
			continue
		}
		if below, err := filepath.Rel(f[root], own); err == nil && !strings.HasPrefix(below, "..") {
			return filepath.Join(f[point], below)
		}
	}
	return ""
}

// open opens the directory, for processes to be started in it; -1 if there is none.
func (g group) open() int {
	if g == "" {
		return -1
	}
	fd, err := unix.Open(string(g), unix.O_DIRECTORY|unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1
	}
	return fd
}

// kill kills every process in the group.
func (g group) kill() {
	if g != "" {
		// A refusal leaves those who walk the process table to do it.
		_ = os.WriteFile(filepath.Join(string(g), "cgroup.kill"), []byte("1"), 0)
	}
}

// end kills what is left in the group and removes it; somebody else may be at it too.
func (g group) end() {
	if g == "" {
		return
	}
	for giveUp := time.Now().Add(patience); !g.remove() && time.Now().Before(giveUp); time.Sleep(killPeriod) {
		g.kill()
	}
}

// remove removes the group with the groups that ranks have made below it, and tells
// whether it is gone. It fails while there are processes.
func (g group) remove() bool {
	err := unix.Rmdir(string(g))
	if errors.Is(err, unix.EBUSY) {
		entries, _ := os.ReadDir(string(g))
		for _, e := range entries {
			if e.IsDir() {
				(g + "/" + group(e.Name())).remove()
			}
		}
		err = unix.Rmdir(string(g))
	}
	return err == nil || errors.Is(err, unix.ENOENT)
}
