package linux

import (
	"os"
	"path/filepath"
	"testing"
)

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
		t.Error("newCounter succeeds for a key that is not in the file")
	}
	write("low 3\nmax 5\n")
	c, ok := newCounter(file, "max")
	if !ok || c.Increase() != 0 {
		t.Errorf("%v, %d", ok, c.Increase())
	}
	for text, want := range map[string]uint64{"max 7\n": 2, "max 1\n": 0, "": 0} {
		if write(text); c.Increase() != want {
			t.Errorf("%q: %d, want %d", text, c.Increase(), want)
		}
	}
}

func TestTaskLimitLeft(t *testing.T) {
	for _, tc := range []struct{ limit, used, want uint64 }{{5, 3, 2}, {5, 5, 0}, {5, 9, 0}} {
		if got := (TaskLimit{Limit: tc.limit, Used: tc.used}).Left(); got != tc.want {
			t.Errorf("%+v: %d", tc, got)
		}
	}
}
