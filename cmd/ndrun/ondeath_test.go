package main

import (
	"strings"
	"testing"

	"github.com/softnd/softnd/internal/testkit/proctest"
)

func TestOnDeath(t *testing.T) {
	const script = `if [ $SOFTND_RANK = 1 ]; then exit 7; fi; sleep 0.2; echo here`
	status, out, errOut := proctest.Run(t, ndrun(t, "--on-death", "continue", "-n", "3", "sh", "-c", script))
	if status != 7 || strings.Count(out, "here") != 2 || strings.Count(errOut, ") exited with code 7; the other ranks go on\n") != 1 ||
		!strings.Contains(errOut, ") exited with code 7; 2 ranks went on\n") {
		t.Errorf("exit status %d, %q\n%s", status, out, errOut)
	}
	status, _, errOut = proctest.Run(t, ndrun(t, "--quiet", "--on-death", "continue", "-n", "3", "sh", "-c", script))
	if status != 7 || errOut != "" {
		t.Errorf("--quiet: exit status %d\n%s", status, errOut)
	}
	status, _, errOut = proctest.Run(t, ndrun(t, "--on-death", "ignore", "true"))
	if status != exitUsage || !strings.Contains(errOut, "want stop or continue") {
		t.Errorf("exit status %d\n%s", status, errOut)
	}
}
