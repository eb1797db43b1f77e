package launcher

import (
	"io"
	"os"
	"os/exec"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/softnd/softnd/internal/linux"
	"github.com/softnd/softnd/internal/testkit/proctest"
)

// startChild starts a child that runs until it is killed.
func startChild(t *testing.T) *exec.Cmd {
	t.Helper()
	cmd := self("stubborn")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(out, make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
	return cmd
}

func TestDescendants(t *testing.T) {
	child := startChild(t)
	found, err := descendants(os.Getpid())
	if err != nil || len(found) != 1 || found[0].PID != child.Process.Pid {
		t.Errorf("found %+v, %v; want process %d alone", found, err, child.Process.Pid)
	}
	if found, err := descendants(child.Process.Pid); err != nil || len(found) != 0 {
		t.Errorf("found %+v, %v below a process without children", found, err)
	}
	if _, err := descendants(1 << 30); err == nil {
		t.Error("no error for a process that does not exist")
	}
}

// The PID of an entry whose process has ended may belong to another process now.
func TestSendSparesReusedPID(t *testing.T) {
	child := startChild(t)
	w := proctest.Watch(t, child.Process.Pid)
	p, err := linux.ReadProcess(child.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	former := p
	former.Start-- // the process that had the number before
	if err := send(former, syscall.SIGKILL); err != nil {
		t.Error(err)
	}
	if err := send(p, syscall.SIGKILL); err != nil {
		t.Error(err)
	}
	w.MustEnd()
	if err := child.Wait(); err == nil {
		t.Error("the child ended by itself")
	}
	if err := send(p, syscall.SIGKILL); err != nil {
		t.Errorf("signal to an ended process: %v", err)
	}
}

// The first of the two signals must not be sent; a kill would take effect at once.
func TestSendToReusedPIDDoesNothing(t *testing.T) {
	child := startChild(t)
	p, err := linux.ReadProcess(child.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	p.Start--
	if err := send(p, syscall.SIGKILL); err != nil {
		t.Error(err)
	}
	// A signal that was sent is there before any later one: SIGSTOP shows it was alone.
	if err := child.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	var ws syscall.WaitStatus
	if _, err := syscall.Wait4(child.Process.Pid, &ws, syscall.WUNTRACED, nil); err != nil || !ws.Stopped() {
		t.Errorf("status %#x, %v; want the process stopped, not killed", ws, err)
	}
}

// Ranks 0, 1, 2 exit in the order 2, 0, 1 and are reaped in the order 0, 1, 2.
func TestExitOrderIsThatOfTheExits(t *testing.T) {
	d, err := newExitOrder(3)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(d.epfd)
	var children []*exec.Cmd
	for rank := range 3 {
		child := startChild(t)
		children = append(children, child)
		fd, err := unix.PidfdOpen(child.Process.Pid, 0)
		if err != nil {
			t.Fatal(err)
		}
		d.watch(rank, fd)
	}
	for _, rank := range []int{2, 0, 1} {
		w := proctest.Watch(t, children[rank].Process.Pid)
		w.Signal(syscall.SIGKILL)
		w.MustEnd()
	}
	var order []int
	take := func() { d.deliver(func(rank int, _ exitInfo) { order = append(order, rank) }) }
	for rank, child := range children {
		child.Wait()
		d.reaped(rank, exitInfo{status: syscall.WaitStatus(syscall.SIGKILL)})
		if rank == 1 {
			take() // rank 2, the first to die, has not been reaped: it holds the others back
			if len(order) != 0 {
				t.Errorf("ranks %v before rank 2", order)
			}
		}
	}
	take()
	if len(order) != 3 || order[0] != 2 || order[1] != 0 || order[2] != 1 {
		t.Errorf("order %v, want 2, 0, 1", order)
	}
}

func TestMergeEnv(t *testing.T) {
	got := mergeEnv(mergeEnv(nil, []string{"AB=0", "A=1", "B=1", "A=2", "odd"}), []string{"B=3=4", "C=", "odd=1"})
	want := []string{"AB=0", "A=2", "B=3=4", "odd=1", "C="}
	if len(got) != len(want) {
		t.Fatalf("got %q, want %q", got, want)
	}
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
