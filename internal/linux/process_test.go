package linux

import (
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"
)

// A program can set any name in the process table.
func TestProcessNameMayContainAnything(t *testing.T) {
	old, err := os.ReadFile("/proc/self/comm")
	if err != nil {
		t.Fatal(err)
	}
	defer os.WriteFile("/proc/self/comm", old, 0)
	if err := os.WriteFile("/proc/self/comm", []byte("a) Z 1 (b"), 0); err != nil {
		t.Fatal(err)
	}
	p, err := ReadProcess(os.Getpid())
	all, allErr := Processes()
	if allErr != nil || all[os.Getpid()].Start != p.Start {
		t.Errorf("among all: %+v, %v", all[os.Getpid()], allErr)
	}
	if err != nil || p.Name != "a) Z 1 (b" || p.PPID != os.Getppid() || p.Dead() || p.Start == 0 {
		t.Errorf("read %+v, %v", p, err)
	}
}

// The time in which a process is ready grows while it computes, and not while it is stopped.
func TestReadyTime(t *testing.T) {
	if _, err := os.Stat("/proc/self/schedstat"); err != nil {
		t.Skip("the kernel does not count how long processes wait for a core")
	}
	cmd := exec.Command("sh", "-c", "while :; do :; done")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}()
	pid, end := cmd.Process.Pid, time.Now().Add(time.Minute)
	for ReadyTime(pid) < 100*time.Millisecond {
		if time.Now().After(end) {
			t.Fatalf("%v in a minute", ReadyTime(pid))
		}
	}
	_ = cmd.Process.Signal(syscall.SIGSTOP)
	for p, _ := ReadProcess(pid); !p.Stopped() && time.Now().Before(end); p, _ = ReadProcess(pid) {
	}
	// It counts as stopped before it has left its processor.
	var before, after time.Duration
	for again := true; again; again = time.Now().Before(end) {
		before = ReadyTime(pid)
		time.Sleep(20 * time.Millisecond)
		if after = ReadyTime(pid); after == before {
			break
		}
	}
	if after != before {
		t.Errorf("stopped, it went from %v to %v", before, after)
	}
	if d := ReadyTime(-1); d != 0 {
		t.Errorf("%v of no process", d)
	}
}
