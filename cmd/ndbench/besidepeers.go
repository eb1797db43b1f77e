package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/softnd/softnd/bench/peers"
	"github.com/softnd/softnd/bench/report"
)

// besidePeers measures softnd and the chosen peers.
func besidePeers(ctx context.Context, chosen []peers.Peer, o peers.Options, failed func(error)) ([]report.Result, error) {
	return peers.Run(ctx, chosen, o, func(ctx context.Context, f peers.Figure) ([]report.Result, error) {
		found, err := ownRepeat(ctx, f, o)
		if err != nil {
			err = fmt.Errorf("softnd: %s: %w", f, err)
		}
		return found, err
	}, failed)
}

// ownRepeat makes one repeat of a figure with softnd. It runs this program with one test, as a user would. Between the
// repeats, no process remains that could disturb the peers.
func ownRepeat(ctx context.Context, f peers.Figure, o peers.Options) ([]report.Result, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	pin := "--no-pin"
	if o.Pinned {
		pin = "--pin"
	}
	args := []string{f.Test, "--json", "-", pin, "--duration", o.Duration.String(), "--repeats", "1"}
	if t, _ := testNamed(f.Test); t.Ranks == 0 {
		args = append(args, "--ranks", strconv.Itoa(f.Ranks))
	}
	if f.Size > 0 {
		args = append(args, "--size", strconv.Itoa(f.Size))
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
