package endpoint

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/softnd/softnd/internal/testkit/proctest"
	"github.com/softnd/softnd/nd"
)

// A wait that has slept until its context ended says for how long. (On a busy machine the context may end before it sleeps.)
func TestEndedWaitSaysHowLong(t *testing.T) {
	p := newPair(t, setup{})
	cq, err := p.a.adapter.CreateCompletionQueue(t.Context(), 4)
	if err != nil {
		t.Fatal(err)
	}
	defer cq.Close()
	proctest.Eventually(t, "a wait says how long it has waited", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
		defer cancel()
		_, err := cq.Wait(ctx, make([]nd.Result, 1))
		if !errors.Is(err, nd.Canceled) || !errors.Is(err, context.DeadlineExceeded) {
			t.Fatal(err)
		}
		return strings.HasPrefix(err.Error(), "nd: wait on completion queue") && strings.Contains(err.Error(), ": waited ") && strings.Contains(err.Error(), "ms: canceled (context deadline exceeded)")
	})
}
