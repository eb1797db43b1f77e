package main

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/softnd/softnd/internal/testkit/proctest"
)

func init() {
	plays["serve"] = func(args []string) error {
		time.Sleep(200 * time.Millisecond)
		l, err := net.Listen("unix", args[0])
		if err != nil {
			return err
		}
		for range 2 { // clients
			if _, err := l.Accept(); err != nil {
				return err
			}
		}
		return nil
	}
	plays["call"] = func(args []string) error {
		_, err := net.Dial("unix", args[0])
		return err
	}
}

// Both servers listen before the clients start, also where the ranks of a program have different wrappers.
func TestAfterListen(t *testing.T) {
	address, self := fmt.Sprintf("@softnd-after-%d-", os.Getpid()), testBinary(t)
	script := `exec "$0" "$1" "$2$SOFTND_RANK"`
	cmd := ndrun(t, "-n", "2", "--wrap", "0:env -u NOTHING", "sh", "-c", script, self, "serve", address, ":",
		"--after", "1h", "--after", "listen", "-n", "2", "--wrap", "3:env -u NOTHING", "sh", "-c", `"$0" call "$1"0 && exec "$0" call "$1"1`, self, address)
	if status, out, errOut := proctest.Run(t, cmd); status != 0 {
		t.Errorf("exit status %d\n%s%s", status, out, errOut)
	}
}

// A program that waits to be started is named by the messages about the job, and never runs if the job ends before.
func TestEndBeforeStart(t *testing.T) {
	t.Parallel()
	status, out, errOut := proctest.Run(t, ndrun(t, "sh", "-c", "exit 7", ":", "--after", "1h", "echo", "too early"))
	if status != 7 || out != "" || !strings.Contains(errOut, "exited with code 7; 1 rank was not started") {
		t.Errorf("failure: exit status %d, output %q, messages\n%s", status, out, errOut)
	}
	for limit := range proctest.Limits(t, "rank 0 runs", 2*time.Second) {
		status, out, errOut = proctest.Run(t, ndrun(t, "--timeout", limit.String(), "sleep", "600", ":", "--after", "listen", "echo", "too early"))
		if !strings.Contains(errOut, "no rank has been started") {
			break
		}
	}
	if status != 124 || out != "" || !strings.Contains(errOut, "of 2 ranks, only 0 still runs") ||
		!strings.Contains(errOut, "rank 1 (echo) waits to be started (--after listen), while others still run") {
		t.Errorf("timeout: exit status %d, output %q, messages\n%s", status, out, errOut)
	}
	waiting := func(hangAfter string) *exec.Cmd {
		return ndrun(t, "--hang-after", hangAfter, "sleep", "600", ":", "--after", "3600", "echo", "too early")
	}
	endHanging(t, waiting, "no rank has made progress for [0-9.]+m?s", `rank 1 \(echo\) waits to be started \(--after 3600\), while others still run`)
}

func TestAfterIsShown(t *testing.T) {
	status, out, errOut := proctest.Run(t, ndrun(t, "--dry-run", "true", ":", "--after", "1.5", "true", ":", "--after=listen", "true"))
	if status != 0 || strings.Count(out, "starts") != 2 || !strings.Contains(out, "\n  starts       --after 1.5\n") || !strings.Contains(out, "\n  starts       --after listen\n") {
		t.Errorf("exit status %d, output\n%s%s", status, out, errOut)
	}
}

func TestInvalidAfter(t *testing.T) {
	const form = "want listen, or a duration such as 2 (seconds) or 500ms"
	for _, tc := range []struct {
		want string
		args []string
	}{
		{form, []string{"true", ":", "--after", "soon", "true"}},
		{form, []string{"true", ":", "--after", "-1s", "true"}},
		{"option --after 1s: no program is before the first one: move it behind a colon", []string{"--after", "1s", "true", ":", "true"}},
		{"option --after listen: no program is before the first one: move it behind a colon", []string{"--after", "listen", "true"}},
	} {
		if status, out, errOut := proctest.Run(t, ndrun(t, tc.args...)); status != 2 || out != "" || !strings.Contains(errOut, tc.want) {
			t.Errorf("%q: exit status %d, output %q, message\n%s want\n%s", tc.args, status, out, errOut, tc.want)
		}
	}
}
