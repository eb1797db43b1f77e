package relayclient

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"time"
)

// Info is what ndrelay reports about itself, and about a provider at an address.
type Info struct {
	Version      string `json:"version"`  // of softnd
	Layout       string `json:"layout"`   // of the arena: version and hash
	Protocol     int    `json:"protocol"` // of two relays
	Architecture string `json:"architecture"`
	Libfabric    string `json:"libfabric"`
	Provider     string `json:"provider"` // that libfabric has opened
	Label        string `json:"label"`    // of the provider; see Label
	Error        string `json:"error"`    // why none opens
}

// Label returns "not tested here" for a provider that the tests of softnd do not use. For the others it returns "".
// The name is that of what libfabric has opened: version 1.17 opens tcp;ofi_rxm for the name tcp.
func Label(provider string) string {
	if provider == "tcp;ofi_rxm" || provider == "net" {
		return ""
	}
	return "not tested here"
}

// Check lets ndrelay at path open the provider at an address of this host. The result has an Error if that fails.
func Check(ctx context.Context, path, address, hidden string) (info Info, err error) {
	cmd := exec.CommandContext(ctx, path, "--check", Provider(), address)
	cmd.Env = without(hidden)
	cmd.WaitDelay = time.Second // of a script whose child holds the pipe
	out, err := cmd.Output()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok && len(exit.Stderr) > 0 {
		err = fmt.Errorf("%w: %.200s", err, exit.Stderr)
	}
	if err == nil {
		err = json.Unmarshal(out, &info)
	}
	if err == nil && info.Layout == "" {
		err = fmt.Errorf("malformed answer %.80q", out)
	}
	if err != nil {
		return info, fmt.Errorf("%s --check %s: %w", path, Provider(), err)
	}
	return info, nil
}
