package launcher

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

func TestRanksAreBoundAtStart(t *testing.T) {
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &set); err != nil {
		t.Fatal(err)
	}
	var allowed []int
	for cpu := range len(set) * 64 {
		if set.IsSet(cpu) {
			allowed = append(allowed, cpu)
		}
	}
	first, last := allowed[0], allowed[len(allowed)-1]
	cfg := config("", 3)
	cfg.Apps[0].Path, cfg.Apps[0].Args = "/bin/sh", []string{"sh", "-c", "echo cpus $(grep Cpus_allowed_list: /proc/self/status)"}
	cfg.CPUs = func(rank int) []int { return [][]int{{first}, {last}, nil}[rank] }
	j := start(t, cfg)
	got := j.out.await(3, "cpus Cpus_allowed_list:")
	j.wait()
	free, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(free), "Cpus_allowed_list:")
	all, _, _ := strings.Cut(rest, "\n")
	for rank, want := range []string{fmt.Sprint(first), fmt.Sprint(last), strings.TrimSpace(all)} {
		if got[rank] != want {
			t.Errorf("rank %d may run on %s, want %s", rank, got[rank], want)
		}
	}
}

func TestBindToMissingProcessorFails(t *testing.T) {
	cfg := config("plan", 2)
	cfg.CPUs = func(rank int) []int { return [][]int{nil, {1023}}[rank] }
	_, err := start(t, cfg).result()
	if want := "start rank 1 of 2 (plan): bind it to processors [1023]: invalid argument"; !errors.Is(err, syscall.EINVAL) || !strings.Contains(err.Error(), want) {
		t.Errorf("error %v, want %s", err, want)
	}
}
