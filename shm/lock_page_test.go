package shm

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/softnd/softnd/internal/testkit/proctest"
)

// arenaDescriptors returns the descriptors of this process that refer to an arena.
func arenaDescriptors() (fds []int) {
	for fd, to := range openFiles() {
		var n int
		if _, err := fmt.Sscan(fd, &n); err == nil && strings.Contains(to, "softnd-arena") {
			fds = append(fds, n)
		}
	}
	return fds
}

var roleStrayClose = proctest.Role("stray close", func(self *proctest.Self) error {
	m, err := joinInherited(self, NoRank)
	if err != nil {
		return err
	}
	held, err := m.heap.Alloc(3 * chunkSize)
	if err != nil {
		return err
	}
	fds := arenaDescriptors()
	if len(fds) == 0 {
		return errors.New("no descriptor of the arena")
	}
	for _, fd := range fds {
		unix.Close(fd)
	}
	self.Say("%d", m.ID())
	if _, err := self.Hear(); err != nil {
		return err
	}
	// The numbers now refer to a file of the program.
	path := self.Args[0]
	for range fds {
		fd, err := unix.Open(path, unix.O_RDWR|unix.O_CLOEXEC, 0)
		if err != nil {
			return err
		}
		if fd > fds[len(fds)-1] && len(fds) == 1 {
			return fmt.Errorf("descriptor %d was not used again, but %d", fds[0], fd)
		}
	}
	if _, err := m.heap.Alloc(chunkSize); !errors.Is(err, errClosed) {
		return fmt.Errorf("an allocation without the descriptor: %v", err)
	}
	if err := m.heap.Free(held); !errors.Is(err, errClosed) {
		return fmt.Errorf("a free without the descriptor: %v", err)
	}
	if _, err := m.Arena().Join(NoRank); !errors.Is(err, errClosed) {
		return fmt.Errorf("a join without the descriptor: %v", err)
	}
	if _, _, err := m.Arena().MapPages([]Offset{held}); !errors.Is(err, errClosed) {
		return fmt.Errorf("an alias without the descriptor: %v", err)
	}
	// It cannot check which members live, so it marks none dead.
	m.CheckLiveness(noDrop)
	for slot := range maxMembers {
		if s := stateIn(m.Arena(), slot); s.status() == statusDead {
			return fmt.Errorf("slot %d is in state %#x", slot, uint64(s))
		}
	}
	self.Say("done")
	_, err = self.Hear()
	return err
})

// A program closes descriptors that are not its own. The member stays alive, and does not write to
// another file that has one of those numbers.
func TestStrayCloseKeepsMemberAlive(t *testing.T) {
	a := newArena(t, 0)
	m := join(t, a, NoRank)
	file := filepath.Join(t.TempDir(), "own")
	if err := os.WriteFile(file, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	c := proctest.StartWith(t, a.File(), roleStrayClose, file)
	id := memberIDFrom(t, c.Hear())
	p := peerOf(t, m, id)
	m.CheckLiveness(noDrop)
	if p.Gone() || chunksOf(a, id.Slot()) != 3 {
		t.Errorf("a program that has closed the arena's descriptors is dead (%v), and has %d of 3 chunks", p.Gone(), chunksOf(a, id.Slot()))
	}
	c.Say("go")
	c.Expect("done")
	if b, err := os.ReadFile(file); err != nil || string(b) != "precious" {
		t.Errorf("the file that got the number of the arena's descriptor is %d bytes long: %.20q, %v", len(b), b, err)
	}
	c.Kill()
	if m.checkAlive(p) {
		t.Error("its death is not found")
	}
	m.CheckLiveness(noDrop)
	if chunksOf(a, id.Slot()) != 0 {
		t.Error("its memory was kept")
	}
}

var roleFork = proctest.Role("fork", func(self *proctest.Self) error {
	m, err := joinInherited(self, NoRank)
	if err != nil {
		return err
	}
	_, unmap, err := m.Arena().MapPages([]Offset{m.Arena().geo.heap})
	if err != nil {
		return err
	}
	defer unmap()
	rest := &unix.Timespec{Sec: int64(proctest.Timeout.Seconds())}
	pid, _, errno := syscall.RawSyscall6(syscall.SYS_CLONE, uintptr(syscall.SIGCHLD), 0, 0, 0, 0, 0)
	if pid == 0 { // a child that continues without exec
		syscall.RawSyscall(syscall.SYS_NANOSLEEP, uintptr(unsafe.Pointer(rest)), 0, 0)
		syscall.RawSyscall(syscall.SYS_EXIT_GROUP, 0, 0, 0)
	}
	if errno != 0 {
		return errno
	}
	self.Say("%d", m.ID())
	self.Say("%d", pid)
	_, err = self.Hear()
	return err
})

// A child that a member has forked neither keeps the member alive nor has its memory mapped.
func TestForkedChildHidesNoDeath(t *testing.T) {
	a := newArena(t, 0)
	m := join(t, a, NoRank)
	c := proctest.StartWith(t, a.File(), roleFork)
	p := peerOf(t, m, memberIDFrom(t, c.Hear()))
	var child int
	if _, err := fmt.Sscan(c.Hear(), &child); err != nil {
		t.Fatal(err)
	}
	defer unix.Kill(child, unix.SIGKILL)
	if !m.checkAlive(p) {
		t.Error("the fork has ended the member's life")
	}
	maps, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", child))
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(maps), "softnd-arena") {
		t.Error("the child has the arena mapped")
	}
	if err := c.Cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	proctest.Eventually(t, "the death of the parent is found", func() bool { return !m.checkAlive(p) })
	if err := unix.Kill(child, 0); err != nil {
		t.Errorf("the child has ended: %v", err)
	}
	unix.Kill(child, unix.SIGKILL) // it holds the parent's output
	c.Kill()
}
