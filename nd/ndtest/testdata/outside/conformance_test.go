package tiny

import (
	"os"
	"testing"
	"time"

	"github.com/softnd/softnd/nd/ndtest"
)

// TestConformance runs the suite. With TINY_BREAK set, windows stay usable after Invalidate, and
// the suite must fail.
func TestConformance(t *testing.T) {
	f := NewFabric()
	f.ReceiveTimeout, f.DisconnectTimeout = 300*time.Millisecond, 300*time.Millisecond
	f.keepWindows = os.Getenv("TINY_BREAK") != ""
	ndtest.Run(t, ndtest.Config{
		Open:           f.Open,
		ReceiveTimeout: f.ReceiveTimeout, DisconnectTimeout: f.DisconnectTimeout,
	})
}
