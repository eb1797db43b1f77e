package main

import (
	"strings"
	"testing"

	"github.com/softnd/softnd/internal/testkit/proctest"
)

// The ranks get the option. It takes precedence over their environment.
func TestIntegrity(t *testing.T) {
	status, out, errOut := proctest.Run(t, ndrun(t, "-genv", "SOFTND_INTEGRITY=0", "--integrity", "-n", "2", "--no-label", "sh", "-c", "echo $SOFTND_INTEGRITY"))
	if status != 0 || out != strings.Repeat("1\n", 2) {
		t.Errorf("status %d, output %q, %q", status, out, errOut)
	}
}

// The second Write of rank 0 carries a wrong byte. With the option, it fails with the status for that.
func TestIntegrityFindsFault(t *testing.T) {
	const plan = "rules:\n- {operation: write, rank: 0, nth: 2, action: corrupt}\n"
	for _, c := range []struct {
		options []string
		want    string
	}{
		{nil, "[0] Success Success Success"},
		{[]string{"--integrity"}, "[0] Success DataChecksumError Canceled"},
	} {
		if _, out, errOut := faulty(t, 2, plan, c.options...); !strings.Contains(out, c.want) {
			t.Errorf("%v: %s%s\nlacks %q", c.options, out, errOut, c.want)
		}
	}
}
