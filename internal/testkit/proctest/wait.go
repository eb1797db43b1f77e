package proctest

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/softnd/softnd/internal/linux"
)

// Timeout limits every wait of a test. No test asserts how long anything takes.
const Timeout = time.Minute

// Context returns a context that ends after [Timeout]. The test's cleanup functions that were registered later can
// still use it.
func Context(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), Timeout)
	t.Cleanup(cancel)
	return ctx
}

// Eventually polls until ok returns true. After [Timeout] it fails the test with what, details, and the stacks of all
// goroutines.
func Eventually(t testing.TB, what string, ok func() bool, details ...any) {
	t.Helper()
	eventually(t, Timeout, what, ok, details)
}

func eventually(t testing.TB, limit time.Duration, what string, ok func() bool, details []any) {
	t.Helper()
	const spin = 10 * time.Millisecond // some tests wait for a short moment
	for began := time.Now(); !ok(); {
		switch waited := time.Since(began); {
		case waited > limit:
			t.Fatalf("not within %v: %s\n%s%s", limit, what, lines(details), Stacks())
		case waited < spin:
			Yield()
		default:
			time.Sleep(time.Millisecond)
		}
	}
}

// Yield lets other goroutines and other processes run. A loop that only did one of the two would delay the other.
func Yield() {
	runtime.Gosched()
	linux.Yield()
}

// Receive returns the next value from c. After [Timeout] it fails the test with what, details, and the stacks of all
// goroutines.
func Receive[T any](t testing.TB, what string, c <-chan T, details ...any) T {
	t.Helper()
	return receive(t, Timeout, what, c, details)
}

func receive[T any](t testing.TB, limit time.Duration, what string, c <-chan T, details []any) (v T) {
	t.Helper()
	select {
	case v = <-c:
	case <-time.After(limit):
		t.Fatalf("not within %v: %s\n%s%s", limit, what, lines(details), Stacks())
	}
	return v
}

func lines(details []any) string {
	var b strings.Builder
	for _, d := range details {
		fmt.Fprintln(&b, d)
	}
	return b.String()
}

// Watchdog ends the test binary with the stacks of all goroutines unless stop is called within [Timeout]. It is for
// code that takes no context.
func Watchdog(t testing.TB) (stop func() bool) { return watchdog(t.Name(), Timeout) }

func watchdog(name string, limit time.Duration) (stop func() bool) {
	return time.AfterFunc(limit, func() { panic(fmt.Sprintf("%s: not over after %v\n%s", name, limit, Stacks())) }).Stop
}

// Stacks returns the stacks of all goroutines.
func Stacks() string {
	buf := make([]byte, 1<<20)
	return string(buf[:runtime.Stack(buf, true)])
}
