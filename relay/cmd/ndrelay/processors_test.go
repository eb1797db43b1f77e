package main

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/softnd/softnd/internal/linux"
)

// A relay that a bound rank has started uses all processors, or those that the user has listed.
func TestRelayIsNotBoundWithItsLeader(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	all, err := linux.CPUs()
	if err != nil {
		t.Fatal(err)
	}
	last := all[len(all)-1:]
	for list, want := range map[string][]int{"": all, fmt.Sprint(last[0]): last} {
		t.Setenv(envProcessors, list)
		restore, err := linux.BindThread(all[:1])
		if err != nil {
			t.Fatal(err)
		}
		h := newHost(t, 0)
		if err := restore(); err != nil {
			t.Fatal(err)
		}
		for thread, cpus := range processors(t, h.relay.PID()) {
			if missing := slices.DeleteFunc(slices.Clone(want), func(cpu int) bool { return slices.Contains(cpus, cpu) }); len(missing) > 0 || list != "" && len(cpus) > len(want) {
				t.Errorf("%s=%q: thread %s runs on %v, want %v", envProcessors, list, thread, cpus, want)
			}
		}
		h.relay.Kill()
	}
}

// processors returns the processors of each thread of a process.
func processors(t *testing.T, pid int) map[string][]int {
	t.Helper()
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/status", pid))
	if err != nil || len(files) == 0 {
		t.Fatalf("threads of process %d: %v, %v", pid, files, err)
	}
	threads := make(map[string][]int)
	for _, file := range files {
		status, err := os.ReadFile(file)
		if err != nil {
			continue // the thread has ended
		}
		_, list, _ := strings.Cut(string(status), "Cpus_allowed_list:")
		list, _, _ = strings.Cut(list, "\n")
		if threads[file], err = linux.ParseList(strings.TrimSpace(list), linux.MaxCPU); err != nil {
			t.Fatal(err)
		}
	}
	return threads
}

func TestRelayRefusesUnknownProcessors(t *testing.T) {
	for list, want := range map[string]string{
		"all":  `SOFTND_RELAY_CPUS="all": "all" is not a number or range`,
		"1023": "SOFTND_RELAY_CPUS=\"1023\": invalid argument: list processors of this host",
	} {
		if err := useProcessors(list); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}
