package tiny

import (
	"os"
	"testing"
	"time"

	"github.com/softnd/softnd/nd"
	"github.com/softnd/softnd/nd/ndtest"
)

// TestConformance runs the suite. With TINY_BREAK set, windows stay usable after Invalidate, and
// the suite must fail.
func TestConformance(t *testing.T) {
	open := func(timeout time.Duration) func() (nd.Provider, error) {
		f := NewFabric()
		f.ReceiveTimeout, f.DisconnectTimeout = timeout, timeout
		f.keepWindows = os.Getenv("TINY_BREAK") != ""
		return f.Open
	}
	const short = 300 * time.Millisecond
	ndtest.Run(t, ndtest.Config{
		Open:           open(time.Hour), // longer than a scenario may take
		OpenTimed:      open(short),
		ReceiveTimeout: short, DisconnectTimeout: short,
	})
}
