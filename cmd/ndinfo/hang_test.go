package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/softnd/softnd"
	"github.com/softnd/softnd/internal/testkit/proctest"
)

// ndinfo hang explains a job of softnd.Join.
func TestHang(t *testing.T) {
	name := fmt.Sprintf("ndinfo-test-%d", os.Getpid())
	var out, errs bytes.Buffer
	if exit := run([]string{"hang", name}, &out, &errs); exit != 1 || out.Len() > 0 || !strings.Contains(errs.String(), "no fabric of this name in this network namespace: check the name") {
		t.Errorf("without such a job: exit status %d, %s%s", exit, &out, &errs)
	}
	if exit := run([]string{"hang"}, &out, &errs); exit != 2 {
		t.Errorf("without a name: exit status %d", exit)
	}
	for _, help := range []string{"-h", "--help"} {
		errs.Reset()
		if exit := run([]string{"hang", help}, &out, &errs); exit != 0 || !strings.Contains(errs.String(), "ndinfo hang NAME") {
			t.Errorf("hang %s: exit status %d, %s", help, exit, &errs)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	joined := make(chan error)
	go func() {
		_, err := softnd.Join(ctx, name, 0, 3)
		joined <- err
	}()
	defer func() {
		cancel()
		if <-joined == nil {
			t.Error("a rank joins without the others")
		}
	}()
	const want = "likely cause: ranks 1-2 never arrived: not in softnd.Init; rank 0 waits for it (join (barrier 1))\n"
	lines := []string{fmt.Sprintf(", pid %d): join (barrier 1) for ", os.Getpid()), "\nranks 1-2 (unknown process): not in softnd.Init\n", "softnd.Join\n"}
	proctest.Eventually(t, want, func() bool { // on a busy machine a report may be without stacks
		out.Reset()
		errs.Reset()
		return run([]string{"hang", name}, &out, &errs) == 0 && strings.HasPrefix(out.String(), want) &&
			!slices.ContainsFunc(lines, func(line string) bool { return !strings.Contains(out.String(), line) })
	}, &out, &errs)
	if strings.Contains(out.String(), "(*Fabric)") {
		t.Errorf("the report shows a goroutine of softnd itself:\n%s", &out)
	}
}
