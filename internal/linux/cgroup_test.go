package linux

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

func TestDirsIn(t *testing.T) {
	for _, tc := range []struct {
		memberships string
		want        []string
	}{
		{"", nil},
		{"odd line\n", nil},
		{"0::/a\n", []string{"/c/a", "/c", "/c/unified/a", "/c/unified"}},
		{"8:pids:/x/y\n", []string{"/c/pids/x/y", "/c/pids/x", "/c/pids"}},
		{"8:cpuset,pids:/x\n5:memory:/z\n", []string{"/c/pids/x", "/c/pids", "/c/cpuset,pids/x", "/c/cpuset,pids"}},
	} {
		if got := CgroupDirsIn(ParseCgroups(tc.memberships), "/c", "pids"); !slices.Equal(got, tc.want) {
			t.Errorf("%q: %q, want %q", tc.memberships, got, tc.want)
		}
	}
}

// The directory of this process's cgroup lists this process.
func TestOwnDir(t *testing.T) {
	dir := OwnCgroupDir()
	if dir == "" {
		t.Skip("no mount shows the version 2 cgroup of this process")
	}
	pids, err := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
	if err != nil || !slices.Contains(strings.Fields(string(pids)), strconv.Itoa(os.Getpid())) {
		t.Errorf("%s/cgroup.procs does not list process %d: %q, %v", dir, os.Getpid(), pids, err)
	}
}
