package endpoint

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"
)

// The test binary also plays the other processes: started with a role in its environment, it
// does only what the role says.
const roleVariable = "ENDPOINT_TEST_ROLE"

const (
	exitNoRole = 64
	exitError  = 70 // the role returned an error; a panic exits with 2
)

// watchdog ends tests that hang. No test depends on how long anything takes.
const watchdog = 60 * time.Second

const (
	rolePuppet      = "puppet"
	roleConformance = "conformance"
	roleFail        = "fail"
	rolePanic       = "panic"
	roleRace        = "race"
)

func play(role string) int {
	ctx, cancel := context.WithTimeout(context.Background(), 2*watchdog)
	defer cancel()
	var err error
	switch role {
	case rolePuppet:
		err = playPuppet(ctx)
	case roleConformance:
		err = playConformance(ctx)
	case roleRace:
		err = playRace(ctx)
	case roleFail:
		err = errors.New("as asked")
	case rolePanic:
		panic("as asked")
	default:
		fmt.Fprintf(os.Stderr, "no role %q\n", role)
		return exitNoRole
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return exitError
	}
	return 0
}

func TestMain(m *testing.M) {
	if role, ok := os.LookupEnv(roleVariable); ok {
		os.Exit(play(role))
	}
	flag.Parse()
	if f := flag.Lookup("test.parallel"); f.Value.String() == f.DefValue {
		_ = f.Value.Set("12") // parallel tests mostly wait
	}
	code := m.Run()
	if code == 0 && !fuzzing() {
		code = checkLeftovers()
	}
	os.Exit(code)
}

func fuzzing() bool {
	for _, name := range []string{"test.fuzz", "test.fuzzworker"} {
		if f := flag.Lookup(name); f != nil && f.Value.String() != f.DefValue {
			return true
		}
	}
	return false
}

// checkLeftovers fails the run for arenas and process handles that are still open, and for
// goroutines of this package that still run.
func checkLeftovers() int {
	var left []string
	for deadline := time.Now().Add(watchdog); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		if left = append(openArenas(), strayGoroutines()...); len(left) == 0 {
			return 0
		}
	}
	fmt.Fprintf(os.Stderr, "FAIL: left behind:\n%s\n", strings.Join(left, "\n"))
	return 1
}

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

func strayGoroutines() (stacks []string) {
	for g := range strings.SplitSeq(allStacks(), "\n\n") {
		if strings.Contains(g, "/endpoint.(*engine)") || strings.Contains(g, "/endpoint.(*Provider)") {
			stacks = append(stacks, g)
		}
	}
	return stacks
}

func allStacks() string {
	buf := make([]byte, 1<<20)
	return string(buf[:runtime.Stack(buf, true)])
}

// eventually waits for a condition, at most for the watchdog's time.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(watchdog); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("this never came about: %s\n%s", what, allStacks())
		}
	}
}

// TestRoles checks that the failure of a role is noticed.
func TestRoles(t *testing.T) {
	for role, want := range map[string]int{roleFail: exitError, rolePanic: 2, "no such role": exitNoRole} {
		cmd := command(t.Context(), role)
		out, _ := cmd.CombinedOutput() // the exit code says more than the error
		if got := cmd.ProcessState.ExitCode(); got != want {
			t.Errorf("role %q exits with %d, want %d: %s", role, got, want, out)
		}
	}
}
