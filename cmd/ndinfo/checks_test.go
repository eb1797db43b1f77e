package main

import (
	"errors"
	"fmt"
	"math"
	"os"
	"path"
	"testing"

	"github.com/softnd/softnd/internal/linux"
	"github.com/softnd/softnd/nd"
	"github.com/softnd/softnd/shm"
)

func TestCheckRelease(t *testing.T) {
	for release, want := range map[string]status{
		"5.10.0-28-amd64": ok, "6.1": ok, "10.0-rc1": ok, "5.9.16": warn, "4.18.0-553.el8": warn, "odd": warn,
	} {
		if c := checkRelease(release); c.Status != want || c.Remedy == "" && want == warn {
			t.Errorf("%s: %+v", release, c)
		}
	}
}

func TestCheckMemoryLeft(t *testing.T) {
	for _, tc := range []struct {
		left  uint64
		limit string
		want  status
	}{
		{0, "", warn},
		{0, "x", fail},
		{minMemory - 1, "x", fail},
		{64 << 20, "x", warn},
		{recommendedMemory, "x", ok},
	} {
		if c := checkMemoryLeft(tc.left, tc.limit); c.Status != tc.want {
			t.Errorf("%d under %q: %+v", tc.left, tc.limit, c)
		}
	}
}

func TestCheckTaskLimit(t *testing.T) {
	for _, tc := range []struct {
		used    uint64
		limited bool
		want    status
	}{{0, false, ok}, {0, true, ok}, {40, true, ok}, {41, true, warn}, {80, true, warn}, {81, true, fail}, {200, true, fail}} {
		if c := checkTaskLimit(linux.TaskLimit{Limit: 100, Used: tc.used, Name: "x"}, tc.limited, 20, 60); c.Status != tc.want || c.Remedy == "" && tc.want != ok {
			t.Errorf("%+v: %+v", tc, c)
		}
	}
}

func TestCPUQuota(t *testing.T) {
	root := t.TempDir()
	write := func(file, text string) {
		t.Helper()
		file = path.Join(root, file)
		if err := errors.Join(os.MkdirAll(path.Dir(file), 0o700), os.WriteFile(file, []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	write("a/cpu.max", "150000 100000\n")
	write("a/b/cpu.max", "max 100000\n")
	write("unified/h/cpu.max", "100000 100000\n")
	write("cpu,cpuacct/v1/cpu.cfs_quota_us", "50000\n")
	write("cpu,cpuacct/v1/cpu.cfs_period_us", "100000\n")
	write("cpu,cpuacct/v1/free/cpu.cfs_quota_us", "-1\n")
	write("cpu,cpuacct/v1/free/cpu.cfs_period_us", "100000\n")
	write("cpu/cpu.cfs_quota_us", "400000\n")
	write("cpu/cpu.cfs_period_us", "100000\n")
	for _, tc := range []struct {
		memberships string
		cores       float64
		where       string
	}{
		{"", math.Inf(1), ""},
		{"odd line\n0::/elsewhere\n", math.Inf(1), ""},
		{"0::/a/b\n", 1.5, "a/cpu.max"},
		{"0::/h\n", 1, "unified/h/cpu.max"},
		{"3:cpu,cpuacct:/v1/free\n0::/a\n", 0.5, "cpu,cpuacct/v1/cpu.cfs_quota_us"},
		{"3:cpuset:/v1\n2:cpu:/of/the/host\n", 4, "cpu/cpu.cfs_quota_us"},
	} {
		where := tc.where
		if where != "" {
			where = path.Join(root, where)
		}
		if cores, file := cpuQuota(linux.CgroupDirsIn(linux.ParseCgroups(tc.memberships), root, "cpu")); cores != tc.cores || file != where {
			t.Errorf("%q: %v by %s", tc.memberships, cores, file)
		}
	}
}

// The advice of an error is only in the remedy.
func TestRemedyFromError(t *testing.T) {
	for _, tc := range []struct {
		err         error
		text, after string
	}{
		{errors.New("odd"), "odd", ""},
		{fmt.Errorf("create: %w", &shm.NoMemoryError{Requested: 2, Available: 1, Limit: "it", Hint: "do this"}),
			"create: shm: reserve memory: not enough under it (asked 2 bytes, have 1)", "do this"},
		{&nd.OpError{Op: "write", Status: nd.Canceled, Detail: "so", Next: "do that"}, "nd: write: so: canceled", "do that"},
	} {
		if c := failed(tc.err); c.Found != tc.text || c.Remedy != tc.after {
			t.Errorf("%+v", c)
		}
	}
}
