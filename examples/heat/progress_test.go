package main

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

// A rank that has shown no progress has nothing to take off the terminal: ndrun would end
// its bytes as a line.
func TestProgressClearsLineOnce(t *testing.T) {
	t.Setenv("SOFTND_TERMINAL", "1")
	f, err := os.Create(filepath.Join(t.TempDir(), "out"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	wrote := func(want string) {
		t.Helper()
		if got, err := os.ReadFile(f.Name()); err != nil || string(got) != want {
			t.Errorf("%q, %v, want %q", got, err, want)
		}
	}
	p := newProgress(f, false, 10)
	p.clear()
	wrote("")
	p.last = time.Time{}
	p.update(5)
	p.clear()
	p.clear()
	wrote("heat: step 5 of 10, 50 %\x1b[K\r\x1b[K")
}
