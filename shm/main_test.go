package shm

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/softnd/softnd/internal/testkit/proctest"
)

func TestMain(m *testing.M) {
	proctest.Main()
	warmUp()
	files, before := openFiles(), segments()
	proctest.Exit(m.Run(), func() (left []string) {
		open := openFiles()
		maps.DeleteFunc(open, func(fd, to string) bool { return files[fd] == to })
		for fd, to := range open {
			left = append(left, "descriptor "+fd+" -> "+to)
		}
		return append(left, slices.DeleteFunc(segments(), func(s string) bool { return slices.Contains(before, s) })...)
	})
}

// warmUp makes the runtime open the descriptors that it keeps open.
func warmUp() {
	if r, w, err := os.Pipe(); err == nil {
		r.Close()
		w.Close()
	}
}

func openFiles() map[string]string {
	open := map[string]string{}
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return open
	}
	for _, e := range entries {
		if to, err := os.Readlink("/proc/self/fd/" + e.Name()); err == nil { // the descriptor of the directory itself is closed now
			open[e.Name()] = to
		}
	}
	return open
}

func segments() (names []string) {
	for _, pattern := range []string{"/dev/shm/*softnd*", "/tmp/*softnd-arena*"} {
		found, _ := filepath.Glob(pattern)
		names = append(names, found...)
	}
	return names
}

// joinInherited attaches to the arena in the first inherited file and joins it.
func joinInherited(self *proctest.Self, rank int) (*Member, error) {
	f := self.File(0)
	defer f.Close()
	arena, err := Attach(self.Ctx, f)
	if err != nil {
		return nil, err
	}
	return arena.Join(rank)
}
