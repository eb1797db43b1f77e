package launcher

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/softnd/softnd/internal/linux"
)

// cgroupDir is the directory of the job's own version 2 cgroup, which holds the ranks and their
// descendants but none of the launcher's processes. The kernel kills the group in one step, so a
// process cannot escape by forking. Supervisor, watchdog and front end can each do that.
//
// The path is "" if this process sees no version 2 cgroup. The directory may be missing: creating
// it takes permission and Linux 5.14. The launcher then stops the job without it.
//
// The front end chooses the name of the directory, from which front end and watchdog derive the
// path. The supervisor creates the directory. So each of them can remove it, whichever is killed.
type cgroupDir string

func newCgroupName() string {
	return fmt.Sprintf("softnd-%d-%d", os.Getpid(), time.Now().UnixNano())
}

// cgroupDirNamed returns the group of that name below the cgroup of this process. The launcher's
// processes are all in the same cgroup.
func cgroupDirNamed(name string) cgroupDir {
	own := linux.OwnCgroupDir()
	if own == "" {
		return ""
	}
	return cgroupDir(filepath.Join(own, name))
}

// make creates the directory if the user may create it and the kernel has cgroup.kill.
func (g cgroupDir) make() {
	if g != "" && unix.Mkdir(string(g), 0o755) == nil && unix.Access(filepath.Join(string(g), "cgroup.kill"), unix.W_OK) != nil {
		_ = unix.Rmdir(string(g))
	}
}

// open opens the directory so that processes can be started in the group; -1 if that fails.
func (g cgroupDir) open() int {
	if g == "" {
		return -1
	}
	fd, err := unix.Open(string(g), unix.O_DIRECTORY|unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1
	}
	return fd
}

// kill kills all processes in the group.
func (g cgroupDir) kill() {
	if g != "" {
		// On failure, killDescendants still kills the processes that it finds.
		_ = os.WriteFile(filepath.Join(string(g), "cgroup.kill"), []byte("1"), 0)
	}
}

// destroy kills the remaining processes of the group and removes it. Other processes of the
// launcher may do the same concurrently.
func (g cgroupDir) destroy() {
	if g == "" {
		return
	}
	for giveUp := time.Now().Add(killTimeout); isBusy(g.remove()) && time.Now().Before(giveUp); time.Sleep(killPeriod) {
		g.kill()
	}
}

// isBusy reports whether remove may succeed later. Every other error says that there is no group, or
// that this process can never remove it. On a read-only mount, as containers have, the error is EROFS
// for any name.
func isBusy(err error) bool { return errors.Is(err, unix.EBUSY) || errors.Is(err, unix.EINTR) }

// remove removes the group and the groups that ranks have created below it. While there are processes
// in it, the error is EBUSY.
func (g cgroupDir) remove() error {
	err := unix.Rmdir(string(g))
	if isBusy(err) {
		entries, _ := os.ReadDir(string(g))
		for _, e := range entries {
			if e.IsDir() {
				_ = (g + "/" + cgroupDir(e.Name())).remove() // the next call removes what is left
			}
		}
		err = unix.Rmdir(string(g))
	}
	return err
}
