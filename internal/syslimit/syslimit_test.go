package syslimit

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

func TestGroupsIn(t *testing.T) {
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
		if got := GroupsIn(tc.memberships, "/c", "pids"); !slices.Equal(got, tc.want) {
			t.Errorf("%q: %q, want %q", tc.memberships, got, tc.want)
		}
	}
}

func TestCounter(t *testing.T) {
	file := filepath.Join(t.TempDir(), "events")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("low 3\n")
	if _, ok := newCounter(file, "max"); ok {
		t.Error("a counter of a key that is not there")
	}
	write("low 3\nmax 5\n")
	c, ok := newCounter(file, "max")
	if !ok || c.Since() != 0 {
		t.Errorf("%v, %d", ok, c.Since())
	}
	for text, want := range map[string]uint64{"max 7\n": 2, "max 1\n": 0, "": 0} {
		if write(text); c.Since() != want {
			t.Errorf("%q: %d, want %d", text, c.Since(), want)
		}
	}
}

func TestTasksLeft(t *testing.T) {
	for _, tc := range []struct{ limit, used, want uint64 }{{5, 3, 2}, {5, 5, 0}, {5, 9, 0}} {
		if got := (Tasks{Limit: tc.limit, Used: tc.used}).Left(); got != tc.want {
			t.Errorf("%+v: %d", tc, got)
		}
	}
}
