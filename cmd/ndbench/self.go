package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"github.com/softnd/softnd/bench/report"
)

// runSelf runs this program with these arguments, of which --json=- is one, and returns the results of its report.
// Between two such runs, no process remains that could disturb others.
func runSelf(ctx context.Context, args []string) ([]report.Result, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, self, args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	cmd.WaitDelay = 5 * time.Second // its ranks die with it, and close its output
	var out, errOut bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errOut
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("%w: %s", err, strings.TrimSpace(errOut.String()))
	}
	r, err := report.ReadJSON(&out)
	if err != nil {
		return nil, err
	}
	return r.Results, nil
}
