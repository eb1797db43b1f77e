package main

import (
	"bytes"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/softnd/softnd"
	"github.com/softnd/softnd/internal/testkit/proctest"
)

// rankOf returns the rank that a process has started, once it runs. Before that, there may be other children for a
// moment: the Go runtime starts one to test the kernel, and the rank itself before its exec.
func rankOf(t *testing.T, pid int) int {
	t.Helper()
	rank := 0
	proctest.Eventually(t, "a further rank is started", func() bool {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
		if err != nil {
			t.Fatal(err)
		}
		for child := range strings.FieldsSeq(string(text)) {
			env, err := os.ReadFile("/proc/" + child + "/environ")
			if err != nil || !strings.Contains("\x00"+string(env), "\x00"+softnd.EnvRank+"=1\x00") {
				continue
			}
			if rank, err = strconv.Atoi(child); err != nil {
				t.Fatal(err)
			}
			return true
		}
		return false
	})
	return rank
}

// TestEndOfOneProcessEndsOther: however one of the two processes ends, the other ends, too.
func TestEndOfOneProcessEndsOther(t *testing.T) {
	for _, tc := range []struct {
		sig   syscall.Signal
		child bool // the signal goes to the rank that was started
		want  string
	}{
		{syscall.SIGINT, false, ""}, {syscall.SIGTERM, false, ""}, {syscall.SIGKILL, false, ""},
		{syscall.SIGKILL, true, "exited before the end of the test|has died"}, // the latter if it had joined
	} {
		t.Run(fmt.Sprintf("%v to a child: %v", tc.sig, tc.child), func(t *testing.T) {
			cmd := command(t, "ndbench", "send_lat", "-e", "-D", "1h", "--no-pin")
			var errOut bytes.Buffer
			cmd.Stderr = &errOut
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			child := proctest.Watch(t, rankOf(t, cmd.Process.Pid))
			if tc.child {
				child.Signal(tc.sig)
			} else if err := cmd.Process.Signal(tc.sig); err != nil {
				t.Fatal(err)
			}
			if err := cmd.Wait(); err == nil {
				t.Error("exit status 0")
			}
			child.MustEnd()
			if !regexp.MustCompile(tc.want).Match(errOut.Bytes()) {
				t.Errorf("no %q in %s", tc.want, &errOut)
			}
		})
	}
}

// awaitMeeting returns when a rank watches its peer, for which it opens a pidfd.
func awaitMeeting(t *testing.T, pid int) {
	t.Helper()
	dir := fmt.Sprintf("/proc/%d/fd/", pid)
	proctest.Eventually(t, "client and server meet", func() bool {
		entries, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			if target, err := os.Readlink(dir + e.Name()); err == nil && strings.Contains(target, "pidfd") {
				return true
			}
		}
		return false
	})
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
