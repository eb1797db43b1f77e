package endpoint

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/softnd/softnd/internal/testkit/proctest"
)

func TestMain(m *testing.M) {
	maxSleep, maxRest, maxEngineSleep = time.Hour, time.Hour, time.Hour // a sleep that nothing ends fails a test
	proctest.Main()
	proctest.SideBySide(8) // parallel tests sleep most of the time
	proctest.Exit(m.Run(), func() []string { return append(openArenas(), strayGoroutines()...) })
}

// openArenas returns the descriptors of arenas and processes that are open.
func openArenas() (names []string) {
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return []string{err.Error()}
	}
	for _, e := range entries {
		to, err := os.Readlink("/proc/self/fd/" + e.Name())
		if err == nil && (strings.Contains(to, "softnd-arena") || strings.Contains(to, "pidfd")) {
			names = append(names, "descriptor "+e.Name()+" -> "+to)
		}
	}
	return names
}

// strayGoroutines returns the stacks of goroutines of this package.
func strayGoroutines() (stacks []string) {
	for g := range strings.SplitSeq(proctest.Stacks(), "\n\n") {
		if strings.Contains(g, "/endpoint.(*engine)") || strings.Contains(g, "/endpoint.(*Provider)") {
			stacks = append(stacks, g)
		}
	}
	return stacks
}
