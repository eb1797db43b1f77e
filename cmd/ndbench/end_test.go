package main

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/softnd/softnd"
)

// rankOf returns the rank that a process has started, once it runs. Before that, there may be other children for a
// moment: the Go runtime starts one to test the kernel, and the rank itself before its exec.
func rankOf(t *testing.T, pid int) int {
	t.Helper()
	for end := time.Now().Add(watchdog); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
		if err != nil {
			t.Fatal(err)
		}
		for child := range strings.FieldsSeq(string(text)) {
			env, err := os.ReadFile("/proc/" + child + "/environ")
			if err != nil || !strings.Contains("\x00"+string(env), "\x00"+softnd.EnvRank+"=1\x00") {
				continue
			}
			rank, err := strconv.Atoi(child)
			if err != nil {
				t.Fatal(err)
			}
			return rank
		}
	}
	t.Fatal("no further rank was started")
	return 0
}

// mustEnd waits until the process of a pidfd has exited.
func mustEnd(t *testing.T, pidfd int) {
	t.Helper()
	wait := []unix.PollFd{{Fd: int32(pidfd), Events: unix.POLLIN}}
	for {
		n, err := unix.Poll(wait, int(watchdog.Milliseconds()))
		if err == unix.EINTR {
			continue
		}
		if n == 0 {
			unix.PidfdSendSignal(pidfd, unix.SIGKILL, nil, 0)
			t.Error("the other rank still lives")
		}
		return
	}
}

// TestEndOfOneProcessEndsOther: however one of the two processes ends, the other ends, too.
func TestEndOfOneProcessEndsOther(t *testing.T) {
	for _, tc := range []struct {
		sig   syscall.Signal
		child bool // the signal goes to the rank that was started
		want  string
	}{
		{syscall.SIGINT, false, ""}, {syscall.SIGTERM, false, ""}, {syscall.SIGKILL, false, ""},
		{syscall.SIGKILL, true, "rank 1 exited before the end of the test"},
	} {
		t.Run(fmt.Sprintf("%v to a child: %v", tc.sig, tc.child), func(t *testing.T) {
			cmd := command(t, "ndbench", "send_lat", "-e", "-D", "1h", "--no-pin")
			var errOut bytes.Buffer
			cmd.Stderr = &errOut
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			child := rankOf(t, cmd.Process.Pid)
			fd, err := unix.PidfdOpen(child, 0)
			if err != nil {
				t.Fatal(err)
			}
			defer unix.Close(fd)
			if tc.child {
				err = unix.PidfdSendSignal(fd, tc.sig, nil, 0)
			} else {
				err = cmd.Process.Signal(tc.sig)
			}
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Wait(); err == nil {
				t.Error("exit status 0")
			}
			mustEnd(t, fd)
			if !strings.Contains(errOut.String(), tc.want) {
				t.Errorf("no %q in %s", tc.want, &errOut)
			}
		})
	}
}

// awaitMeeting returns when a rank watches its peer, for which it opens a pidfd.
func awaitMeeting(t *testing.T, pid int) {
	t.Helper()
	dir := fmt.Sprintf("/proc/%d/fd/", pid)
	for end := time.Now().Add(watchdog); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		entries, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			if target, err := os.Readlink(dir + e.Name()); err == nil && strings.Contains(target, "pidfd") {
				return
			}
		}
	}
	t.Fatal("client and server do not meet")
}

// TestServerEndsWithItsClient: if the client is killed, the server ends, too.
func TestServerEndsWithItsClient(t *testing.T) {
	job := fmt.Sprintf("ndbench-test-%d-end", os.Getpid())
	server := command(t, "ndbench", "send_lat", "-e", "-D", "1h", "--no-pin", "--server", job)
	client := command(t, "ndbench", "send_lat", "-e", "--no-pin", "--client", job)
	var serverErr, clientErr bytes.Buffer
	server.Stderr, client.Stderr = &serverErr, &clientErr
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	if err := client.Start(); err != nil {
		t.Fatal(err)
	}
	awaitMeeting(t, client.Process.Pid)
	if err := client.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	client.Wait()
	if err := server.Wait(); err == nil || !strings.Contains(serverErr.String(), "rank 1") {
		t.Errorf("the server: %v, %s", err, &serverErr)
	}
}
