package softnd_test

import (
	"bytes"
	"log/slog"
	"strings"
	"sync"
	"testing"

	"github.com/softnd/softnd"
	"github.com/softnd/softnd/nd"
	"github.com/softnd/softnd/softndtest"
)

func TestWithLoggerNamesTheRank(t *testing.T) {
	var text lockedBuffer
	logger := slog.New(slog.NewTextHandler(&text, nil))
	jobs := softndtest.New(t, 2, softnd.WithLogger(logger))
	connected := make(chan error, 2)
	for _, job := range jobs {
		go func() {
			queue, err := job.Adapter().CreateCompletionQueue(t.Context(), 16)
			if err == nil {
				_, err = job.Connect(t.Context(), 1-job.Rank(), nd.EndpointConfig{ReceiveCQ: queue, InitiatorCQ: queue})
			}
			connected <- err
		}()
	}
	for range jobs {
		if err := <-connected; err != nil {
			t.Fatal(err)
		}
	}
	for _, job := range jobs {
		if err := job.Close(); err != nil {
			t.Fatal(err)
		}
	}
	for _, want := range []string{`msg=connected rank=0 endpoint=1 peer="endpoint 1 of rank 1`, `msg=connected rank=1 endpoint=1 peer="endpoint 1 of rank 0`} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("no event %q in\n%s", want, text.String())
		}
	}
}

func TestWithLoggerRefusesNil(t *testing.T) {
	if _, err := softnd.Join(t.Context(), "refused", 0, 1, softnd.WithLogger(nil)); err == nil {
		t.Error("Join accepted a nil logger")
	}
}

func TestStatsOfProviderWithoutCounters(t *testing.T) {
	if _, ok := nd.StatsOf(nil); ok {
		t.Error("StatsOf reports counters of nil")
	}
	if _, ok := nd.QueueStatsOf(nil); ok {
		t.Error("QueueStatsOf reports counters of nil")
	}
}

// lockedBuffer is a buffer for goroutines that read and write at the same time.
type lockedBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}
