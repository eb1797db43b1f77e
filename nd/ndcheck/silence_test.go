//go:build linux

package ndcheck_test

import (
	"context"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/softnd/softnd"
	"github.com/softnd/softnd/internal/testkit/proctest"
	"github.com/softnd/softnd/nd"
)

var roleSilence = proctest.Role("silence", runSilence)

// runSilence is a process that connects with itself and posts a silent request. It waits for a result that cannot come, or
// that another goroutine may cause.
func runSilence(self *proctest.Self) error {
	job, err := softnd.Init(self.Ctx)
	if err != nil {
		return err
	}
	a := job.Adapter()
	s := &side{ctx: self.Ctx, job: job, recv: softnd.Must(a.CreateCompletionQueue(self.Ctx, 64)), init: softnd.Must(a.CreateCompletionQueue(self.Ctx, 64))}
	if err := s.loopback().Send(1, nd.SGL{}, nd.SilentSuccess|nd.Defer); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(self.Ctx)
	defer cancel()
	if self.Args[0] == "two" {
		ended := make(chan struct{})
		defer close(ended)
		go func() { <-ended }()
		time.AfterFunc(time.Second, cancel) // there is no report to wait for: usually the checker has looked by then
	} else {
		reports, out, err := os.Pipe()
		if err != nil {
			return err
		}
		defer func(before *os.File) { os.Stderr = before }(os.Stderr)
		go io.Copy(io.MultiWriter(os.Stderr, endAtReport(cancel)), reports)
		os.Stderr = out
	}
	_ = s.init.Notify(ctx, nd.NotifyAny)
	return nil
}

// endAtReport ends a wait when the checker has reported something.
type endAtReport func()

func (end endAtReport) Write(report []byte) (int, error) {
	end()
	return len(report), nil
}

// A wait is hopeless only if there is no other goroutine that may post.
func TestWaitForSilence(t *testing.T) {
	t.Parallel()
	for goroutines, want := range map[string]bool{"one": true, "two": false} {
		cmd := proctest.Command(roleSilence, goroutines)
		cmd.Env = append(cmd.Env, softnd.EnvCheck+"=1")
		status, _, out := proctest.Run(t, cmd)
		if status != 0 || strings.Contains(out, "softnd check: N703 warning: ") != want || strings.Contains(out, "at silence_test.go:") != want {
			t.Errorf("%s: status %d, a finding is wanted: %v\n%s", goroutines, status, want, out)
		}
	}
}
