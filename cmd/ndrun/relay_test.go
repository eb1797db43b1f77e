package main

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/softnd/softnd/internal/meet/relayclient"
	"github.com/softnd/softnd/internal/testkit/proctest"
)

// A job of ndrun is on one host, and starts no relay: not by its variable, and not by PATH.
func TestNoRelay(t *testing.T) {
	dir := t.TempDir()
	started := filepath.Join(dir, "started")
	relay := filepath.Join(dir, "ndrelay")
	if err := os.WriteFile(relay, []byte("#!/bin/sh\necho started >>"+started+"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, variable := range []string{relayclient.EnvProgram + "=" + relay, "PATH=" + dir + ":" + os.Getenv("PATH")} {
		cmd := jobs(t, "job", nil, "close")
		if cmd.Env == nil {
			cmd.Env = os.Environ()
		}
		cmd.Env = append(cmd.Env, variable)
		status, out, errOut := proctest.Run(t, cmd)
		if status != 0 || strings.Count(out, "met 2\n") != 2 {
			t.Errorf("exit status %d, %s%s", status, out, errOut)
		}
		if _, err := os.Stat(started); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s: a relay was started: %v", variable, err)
		}
	}
}
