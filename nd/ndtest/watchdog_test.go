package ndtest_test

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/softnd/softnd/nd"
	"github.com/softnd/softnd/nd/ndtest"
)

// TestMain lets all parallel tests run at once: nearly all of their time, they wait for a watchdog.
func TestMain(m *testing.M) {
	_ = flag.Set("test.parallel", "16") // the command line comes later, and wins
	os.Exit(m.Run())
}

// hanging is a provider with calls that never return.
type hanging struct{ nd.Provider }

func (hanging) QueryAddressList() ([]netip.Addr, error) { select {} }
func (hanging) Close() error                            { select {} }

// refusing is a provider whose QueryAddressList fails.
type refusing struct{ nd.Provider }

func (refusing) QueryAddressList() ([]netip.Addr, error) { return nil, errors.New("refused") }
func (refusing) Close() error                            { return nil }

func open(p nd.Provider) func() (nd.Provider, error) {
	return func() (nd.Provider, error) { return p, nil }
}

// served returns a Spawn that runs Serve in a goroutine instead of a process.
func served(t *testing.T, cfg ndtest.Config) func() (io.ReadWriteCloser, error) {
	return func() (io.ReadWriteCloser, error) {
		here, there := net.Pipe()
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			defer there.Close() // as the end of a process does
			if err := ndtest.Serve(there, cfg); err != nil {
				t.Error(err)
			}
		}()
		t.Cleanup(func() { <-ended }) // runs after the run has closed the stream
		return here, nil
	}
}

// unclosable is a provider whose Close never returns.
type unclosable struct{ refusing }

func (unclosable) Close() error { select {} }

// deaf is a Spawn whose process never answers.
func deaf() (io.ReadWriteCloser, error) {
	here, there := net.Pipe()
	go func() { _, _ = io.Copy(io.Discard, there) }()
	return here, nil
}

// hangingVariable has the Watchdog of a run that failedRun starts.
const hangingVariable = "NDTEST_HANGS"

// TestHangingProvider runs rows whose call does not return although its context has ended. Each run
// is in a process of its own and must fail with the stack of that call.
func TestHangingProvider(t *testing.T) {
	t.Parallel() // with the tests that build a module

	timed := []string{"C100", "C101"} // rows that providers of OpenTimed serve
	for _, c := range []struct {
		name   string
		config func(t *testing.T) ndtest.Config
		want   string
		failed int // scenarios
	}{
		{"alone", func(*testing.T) ndtest.Config {
			return ndtest.Config{Open: open(hanging{}), Only: []string{"C001", "C002"}}
		}, "hanging.QueryAddressList", 1},
		{"goroutines", func(*testing.T) ndtest.Config {
			return ndtest.Config{Open: open(hanging{}), OpenTimed: open(refusing{})}
		}, "hanging.QueryAddressList", 1},
		{"here", func(t *testing.T) ndtest.Config {
			return ndtest.Config{Open: open(hanging{}), Spawn: served(t, ndtest.Config{Open: open(refusing{})})}
		}, "hanging.QueryAddressList", 1},
		{"there", func(t *testing.T) ndtest.Config {
			return ndtest.Config{Open: open(refusing{}), Spawn: served(t, ndtest.Config{Open: open(hanging{})})}
		}, "hanging.QueryAddressList", 1},
		{"timed", func(*testing.T) ndtest.Config {
			return ndtest.Config{Open: open(refusing{}), OpenTimed: open(hanging{}), Only: timed}
		}, "hanging.QueryAddressList", 1},
		{"both", func(*testing.T) ndtest.Config {
			only := append([]string{"C021"}, timed...)
			return ndtest.Config{Open: open(unclosable{}), OpenTimed: open(hanging{}), Only: only}
		}, "hanging.QueryAddressList", 2},
		{"farther", func(t *testing.T) ndtest.Config {
			there := ndtest.Config{Open: open(refusing{}), OpenTimed: open(hanging{})}
			return ndtest.Config{Open: open(refusing{}), OpenTimed: open(refusing{}), Spawn: served(t, there), Only: timed}
		}, "hanging.QueryAddressList", 1},
		{"deaf", func(*testing.T) ndtest.Config {
			return ndtest.Config{Open: open(refusing{}), Spawn: deaf}
		}, "other process: it has not reported", 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			if watchdog, err := time.ParseDuration(os.Getenv(hangingVariable)); err == nil {
				cfg := c.config(t)
				cfg.Watchdog = watchdog // the other process reports a quarter of it later, and this one expects it another quarter after that
				if cfg.Only == nil {
					cfg.Only = []string{"C019", "C021"} // rows with two sides
				}
				ndtest.Run(t, cfg)
				return
			}
			t.Parallel()
			for _, watchdog := range []time.Duration{4 * time.Second, 24 * time.Second} { // a busy machine may be late by a quarter of the first
				text := failedRun(t, "^TestHangingProvider$/^"+c.name+"$", watchdog)
				var lacking []string
				for _, want := range []string{c.want, "--- FAIL: " + t.Name() + "/C", "run: stopped before C", fmt.Sprintf("%d failed", c.failed)} {
					if !strings.Contains(text, want) {
						lacking = append(lacking, want)
					}
				}
				if len(lacking) == 0 {
					return
				}
				t.Logf("with a Watchdog of %v, the output lacks %q:\n%s", watchdog, lacking, text)
			}
			t.Error("no run has all of the output")
		})
	}
}

// failedRun runs the tests that match a pattern, in a process of its own that runs scenarios. It returns the output. The process must fail.
func failedRun(t *testing.T, pattern string, watchdog time.Duration) string {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run="+pattern, "-test.v", "-test.timeout=5m")
	cmd.Env = append(os.Environ(), hangingVariable+"="+watchdog.String())
	out, err := cmd.CombinedOutput()
	text := string(out)
	if err == nil || strings.Contains(text, "panic:") {
		t.Errorf("the run ended with %v, want a failure", err)
	}
	return text
}

// TestOpenTimedInOneProcess runs a row of OpenTimed with processes of which only one sets it. Serve must fail.
func TestOpenTimedInOneProcess(t *testing.T) {
	some := ndtest.Config{Open: open(refusing{}), OpenTimed: open(refusing{}), Only: []string{"C100"}}
	none := some
	none.OpenTimed = nil
	for _, c := range []struct {
		name        string
		here, there ndtest.Config
	}{{"here", some, none}, {"there", none, some}} {
		t.Run(c.name, func(t *testing.T) {
			if os.Getenv(hangingVariable) != "" {
				c.here.Spawn = served(t, c.there)
				ndtest.Run(t, c.here)
				return
			}
			t.Parallel()
			text := failedRun(t, "^TestOpenTimedInOneProcess$/^"+c.name+"$", 3*time.Minute)
			if want := "ndtest: scenario C100 needs Config.OpenTimed in both processes"; !strings.Contains(text, want) {
				t.Errorf("the output lacks %q:\n%s", want, text)
			}
		})
	}
}
