package endpoint

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Posts and polls run on a thread that a seccomp filter keeps from system calls: the first call ends
// the process. The thread cannot be used afterwards, so the test starts its binary again.
const (
	quietVariable = "ENDPOINT_TEST_QUIET"
	quietFrom     = "SOFTND_TEST_QUIET_FROM" // the first step, all of them if it is empty
	quietAll      = "all"
	quietControl  = "control" // makes a system call in the end
	quietStep     = "step: "
	quietDone     = "quiet to the end"
	quietRefused  = "no filter: "
)

// allowed are system calls of the Go runtime: those of its signal handling, and those that report the end.
// Futexes are allowed if they are private to the process, which no doorbell is.
var allowed = []uint32{
	unix.SYS_RT_SIGRETURN, unix.SYS_RT_SIGPROCMASK, unix.SYS_RT_SIGACTION, unix.SYS_SIGALTSTACK, unix.SYS_GETTID, unix.SYS_TGKILL,
	unix.SYS_EXIT_GROUP,
}

// silence lets the calling thread make no further system call.
func silence() error {
	const number, futexOperation, descriptor, private = 0, 24, 16, 128 // seccomp_data: nr, the low 32 bits of args[1] and args[0]
	load := func(at uint32) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: at}
	}
	jump := func(how uint16, k uint32, yes, no int) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_K | how, K: k, Jt: uint8(yes), Jf: uint8(no)}
	}
	answer := func(k uint32) unix.SockFilter { return unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: k} }
	filter := []unix.SockFilter{load(number)}
	for _, call := range allowed {
		filter = append(filter, jump(unix.BPF_JEQ, call, 0, 1), answer(unix.SECCOMP_RET_ALLOW))
	}
	filter = append(filter,
		jump(unix.BPF_JEQ, unix.SYS_FUTEX, 0, 3), load(futexOperation), jump(unix.BPF_JSET, private, 0, 1), answer(unix.SECCOMP_RET_ALLOW),
		load(number), jump(unix.BPF_JEQ, unix.SYS_WRITE, 0, 3), load(descriptor), jump(unix.BPF_JEQ, 2, 0, 1), answer(unix.SECCOMP_RET_ALLOW),
		answer(unix.SECCOMP_RET_TRAP))
	program := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return err
	}
	return unix.Prctl(unix.PR_SET_SECCOMP, unix.SECCOMP_MODE_FILTER, uintptr(unsafe.Pointer(&program)), 0, 0)
}

// TestPostAndPollMakeNoSystemCall checks each executor and each kind of memory.
func TestPostAndPollMakeNoSystemCall(t *testing.T) {
	if how, ok := os.LookupEnv(quietVariable); ok {
		beQuiet(t, how)
		return
	}
	if raceDetector {
		t.Skip("the race detector makes system calls of its own")
	}
	for how, want := range map[string]bool{quietAll: true, quietControl: false} {
		// The scheduler preempts a thread that has run for 10 ms, and then makes calls on it. A call of a
		// hot path ends every attempt at its step, one of the scheduler some. An attempt begins with the step at which the one before
		// it has ended.
		var out []byte
		var err error
		quiet, from := false, ""
		attempts := 5
		if want {
			attempts = 50 // on a busy machine the scheduler ends most
		}
		for attempt := 0; attempt < attempts && !quiet; attempt++ {
			if out, err = runQuietly(t, how, from); strings.Contains(string(out), quietRefused) {
				break
			}
			quiet = err == nil && strings.Contains(string(out), quietDone)
			if last := lastStep(out); want && last != "" && last != from {
				from, attempt = last, 0
			}
		}
		if _, reason, refused := strings.Cut(string(out), quietRefused); refused {
			t.Skipf("the kernel does not let us watch for system calls: %.60s", reason)
		}
		if quiet != want {
			t.Errorf("%s: quiet %v (%v), want %v; its last words are\n%s", how, quiet, err, want, out[max(0, len(out)-500):])
		}
	}
}

// lastStep returns the last step that an attempt has begun, "" if there is none.
func lastStep(out []byte) (name string) {
	for line := range strings.Lines(string(out)) {
		if step, ok := strings.CutPrefix(line, quietStep); ok {
			name = strings.TrimSuffix(step, "\n")
		}
	}
	return name
}

// runQuietly starts the test binary for one attempt, which begins with step from, and returns what it prints.
func runQuietly(t *testing.T, how, from string) ([]byte, error) {
	cmd := exec.CommandContext(t.Context(), "/proc/self/exe", "-test.run=^TestPostAndPollMakeNoSystemCall$")
	// A thread that is interrupted would go to the scheduler; an owner whose stack moves makes a call (asym.BiasedMutex), so
	// stacks do not shrink, and this one does not have to grow.
	cmd.Env = append(os.Environ(), quietVariable+"="+how, quietFrom+"="+from, "GODEBUG=asyncpreemptoff=1,gcshrinkstackoff=1")
	return cmd.CombinedOutput()
}

// makeRoom lets the stack grow beyond what any path needs.
//
//go:noinline
func makeRoom() byte {
	var room [64 << 10]byte
	return room[len(os.Args)]
}

// say prints a line past the scheduler, which would take the processor from a thread in a long system
// call, and make calls of its own to give it another.
func say(line string) {
	b := []byte(line + "\n")
	_, _, _ = unix.RawSyscall(unix.SYS_WRITE, 2, uintptr(unsafe.Pointer(&b[0])), uintptr(len(b)))
}

// beQuiet runs the hot paths on a thread that makes no system call.
func beQuiet(t *testing.T, how string) {
	type step struct {
		name string
		h    *hotPath
		run  func()
	}
	var steps []step
	for _, executor := range []Executor{Auto, Target} {
		for _, private := range []bool{false, true} {
			s := setup{Executors: [2]Executor{executor, executor}, Private: [2]bool{private, private}, Both: sideOptions{InlineSize: maxInline}}
			p := newPair(t, s)
			for _, x := range []*side{p.a, p.b} {
				x.provider.engine.stop() // to wake one that sleeps takes a call
			}
			for _, n := range []int{8, 48, 1000, 4096} {
				h := newHotPath(p, n)
				for name, f := range h.paths() {
					steps = append(steps, step{fmt.Sprintf("%s of %d bytes, %v", name, n, s), h, f})
				}
			}
		}
	}
	slices.SortFunc(steps, func(x, y step) int { return strings.Compare(x.name, y.name) })
	first := 0
	if from := os.Getenv(quietFrom); from != "" {
		if first = slices.IndexFunc(steps, func(s step) bool { return s.name == from }); first < 0 {
			t.Fatalf("no step %q", from)
		}
	}
	const rounds = 1100 // a step may be the first one of its process, and a rare check comes every 1,024 polls
	result, forEver := make(chan error), make(chan struct{})
	go func() {
		runtime.LockOSThread()
		makeRoom()
		for _, s := range steps {
			s.run() // first, so that one-time system calls are not counted
		}
		if err := silence(); err != nil {
			result <- fmt.Errorf("%s%w", quietRefused, err)
			return
		}
		for _, s := range steps[first:] {
			say(quietStep + s.name) // the last one is where a call was made
			for range rounds {
				s.run()
			}
			if s.h.err != nil {
				result <- fmt.Errorf("%s: %w", s.name, s.h.err)
				<-forEver
			}
		}
		if how == quietControl {
			_ = unix.Getppid()
		}
		result <- errors.New(quietDone)
		<-forEver // to end takes a call, too
	}()
	fmt.Println(<-result)
}
