package shm

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/softnd/softnd/internal/meet/unixsock"
	"github.com/softnd/softnd/internal/testkit/proctest"
)

// roleAlien runs as another user.
var roleAlien = proctest.Role("alien", func(self *proctest.Self) error {
	name, user := self.Args[0], uint32(os.Geteuid())
	host, err := strconv.ParseUint(self.Args[1], 10, 32)
	if err != nil {
		return err
	}
	at := fabricAddress(uint32(host), name)
	refused := func(err error) error {
		both := strings.Contains(fmt.Sprint(err), fmt.Sprintf("user %d", host)) && strings.Contains(fmt.Sprint(err), fmt.Sprintf("user %d", user))
		if !errors.Is(err, errUser) || !both {
			return fmt.Errorf("the error should name users %d and %d: %v", host, user, err)
		}
		return nil
	}
	// The joiner's check.
	if _, err := openFabric(self.Ctx, at, user, &smallFabric); err != nil {
		if err := refused(err); err != nil {
			return err
		}
	} else {
		return errors.New("another user's fabric was joined")
	}
	// The member's check, for a joiner that does not check.
	c, err := unixsock.Dial(at)
	if err != nil {
		return err
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(proctest.Timeout))
	if _, err := c.Write(ownRecord().encode()); err != nil {
		return err
	}
	b, files, err := readFabric(c)
	if err != nil || len(files) != 0 {
		return fmt.Errorf("%d descriptors, %v", len(files), err)
	}
	_, err = ownRecord().checkReply(b, 0)
	if err := refused(err); err != nil {
		return err
	}
	// This user can use the same name.
	f, err := OpenFabric(self.Ctx, name, smallFabric)
	if err != nil {
		return err
	}
	if !f.fabric.created {
		return errors.New("joined another user's fabric")
	}
	// The other user has bound this user's address.
	squat, err := openFabric(self.Ctx, fabricAddress(uint32(host), name+"-taken"), user, &smallFabric)
	if err != nil {
		return err
	}
	// There, this process answers every joiner.
	trap, err := unixsock.Listen(fabricAddress(uint32(host), name+"-trap"))
	if err != nil {
		return err
	}
	arena := int(f.File().Fd())
	go func() {
		for {
			c, err := trap.Accept()
			if err != nil {
				return
			}
			c.Read(make([]byte, 1000))
			r := ownRecord()
			r.status, r.id = fabricWelcome, f.id
			raw, err := trap.SyscallConn()
			if err == nil {
				raw.Control(func(fd uintptr) {
					c.Send(r.encode(), unix.UnixRights(arena, int(fd)))
				})
			}
			c.Close()
		}
	}()
	self.Say("taken")
	if _, err := self.Hear(); err != nil {
		return err
	}
	return errors.Join(f.Close(), squat.Close(), trap.Close())
})

func TestFabricRefusesOtherUsers(t *testing.T) {
	withoutReplyTimeout(t)
	name := fabricName(t)
	f := openTest(t, name)
	refuseOtherUser(t, name, func(name string) error {
		g, err := OpenFabric(proctest.Context(t), name, smallFabric)
		if err == nil {
			return g.Close()
		}
		if !errors.Is(err, errUser) || !strings.Contains(err.Error(), "user 65534") || !strings.Contains(err.Error(), "user 0") {
			t.Errorf("%s: %v", name, err)
		}
		return err
	})
	if f.LiveMemberCount() != 0 {
		t.Error("a process has joined")
	}
}

// The same with processes that use the C library, if the environment names its programs.
func TestCFabricRefusesOtherUsers(t *testing.T) {
	program := filepath.Join(os.Getenv("SOFTND_C_TESTS"), "test_users")
	if program == "test_users" {
		t.Skip("SOFTND_C_TESTS does not name the built programs of c/tests")
	}
	name := fabricName(t)
	member := proctest.Start(t, exec.Command(program, "member", name))
	member.Expect("member")
	refuseOtherUser(t, name, func(name string) error {
		status, out, errs := proctest.Run(t, exec.Command(program, "join", name))
		if status != 0 || !strings.Contains(out, "belongs to another user") {
			t.Errorf("%s: exit status %d: %s%s", name, status, out, errs)
		}
		return errors.New(out)
	})
	member.Wait()
}

// asOtherUser returns a command for a process of another user that plays a role.
func asOtherUser(t *testing.T, role string, args ...string) *exec.Cmd {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skipf("only root can start a process of another user, this is user %d", os.Geteuid())
	}
	// Only this user can reach the test binary's path, so the child starts through a
	// descriptor.
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	binary := open(t, self, os.O_RDONLY)
	const unprivileged = 65534
	cmd := proctest.Command(role, args...)
	cmd.Path, cmd.ExtraFiles = "/proc/self/fd/3", []*os.File{binary}
	cmd.SysProcAttr.Credential = &syscall.Credential{Uid: unprivileged, Gid: unprivileged}
	return cmd
}

// refuseOtherUser starts a process of another user that tries to join the fabric, and takes other names of this user.
// join must fail there.
func refuseOtherUser(t *testing.T, name string, join func(name string) error) {
	t.Helper()
	c := proctest.Start(t, asOtherUser(t, roleAlien, name, "0"))
	c.Expect("taken")
	for _, taken := range []string{"-taken", "-trap"} {
		if join(name+taken) == nil {
			t.Errorf("%s: root has joined another user's fabric", taken)
		}
	}
	c.Say("go")
	c.Wait()
}

var roleFewDescriptors = proctest.Role("few descriptors", func(self *proctest.Self) error {
	name := self.Args[0]
	for range 2 { // the first call opens descriptors that the runtime keeps
		f, err := OpenFabric(self.Ctx, name, smallFabric)
		if err != nil {
			return err
		}
		if err := f.Close(); err != nil {
			return err
		}
	}
	next, err := unix.Open("/dev/null", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	unix.Close(next)
	old := openFiles()
	for room := 0; room < 8; room++ {
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: uint64(next + room), Max: 1 << 10}); err != nil {
			return err
		}
		f, err := OpenFabric(self.Ctx, name, smallFabric)
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 1 << 10, Max: 1 << 10}); err != nil {
			return err
		}
		if err == nil {
			self.Say("room for %d suffices", room)
			if room < 3 {
				return fmt.Errorf("joined with room for %d descriptors", room)
			}
			return f.Close()
		}
		self.Say("%v", err)
		if left := openFiles(); len(left) > len(old) {
			return fmt.Errorf("room %d: before %v, after %v", room, old, left)
		}
	}
	return errors.New("never joined")
})

// A joiner that has no descriptors left at some step reports that, and leaks none.
func TestFabricReportsMissingDescriptors(t *testing.T) {
	name := fabricName(t)
	openTest(t, name)
	c := proctest.Start(t, proctest.Command(roleFewDescriptors, name))
	c.Wait()
	said := c.Out.String()
	if !strings.Contains(said, "ulimit -n") || !strings.Contains(said, "too many open files") {
		t.Errorf("the errors were\n%s", said)
	}
}
