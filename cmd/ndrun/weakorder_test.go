package main

import (
	"regexp"
	"strings"
	"testing"

	"github.com/softnd/softnd/internal/testkit/proctest"
)

// The ranks get the seed that ndrun prints. It takes precedence over their environment.
func TestWeakOrder(t *testing.T) {
	for _, seed := range []string{"7", "0x7", "random"} {
		status, out, errOut := proctest.Run(t, ndrun(t, "-genv", "SOFTND_WEAK_ORDER=9", "--weak-order", seed, "-n", "2", "--no-label", "sh", "-c", "echo $SOFTND_WEAK_ORDER"))
		found := regexp.MustCompile(`^ndrun: weak order with seed (\d+): --weak-order (\d+) repeats it\n$`).FindStringSubmatch(errOut)
		if status != 0 || found == nil || found[1] != found[2] || out != strings.Repeat(found[1]+"\n", 2) || seed != "random" && found[1] != "7" {
			t.Errorf("--weak-order %s: status %d, output %q, %q", seed, status, out, errOut)
		}
	}
	status, _, errOut := proctest.Run(t, ndrun(t, "--weak-order", "often", "true"))
	if status != exitUsage || !strings.Contains(errOut, "want a number from 0 to 2^64-1, or random") {
		t.Errorf("status %d, %q", status, errOut)
	}
}
