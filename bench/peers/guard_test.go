package peers

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"

	"github.com/softnd/softnd/internal/testkit/proctest"
)

// roleSession opens a session with a process that ignores SIGTERM. It says the session's mark, its directories and the number of the guard.
var roleSession = proctest.Role("session", func(self *proctest.Self) error {
	runtime.LockOSThread()
	s, err := open(Options{})
	if err != nil {
		return err
	}
	defer s.close()
	if s.shared == "" {
		return errors.New("no directory in /dev/shm")
	}
	p, err := s.start(self.Ctx, program{argv: []string{"/bin/sh", "-c", "trap '' TERM; : >" + s.dir + "/file; : >" + s.shared + "/file; while :; do sleep 1; done"}})
	if err != nil {
		return err
	}
	defer p.cancel()
	self.Say("%s %s %s %d", s.variable(), s.dir, s.shared, s.guard.cmd.Process.Pid)
	_, err = self.Hear()
	return err
})

// If ndbench is killed, or its guard is, neither a process nor a file is left.
func TestKilledSessionLeavesNothing(t *testing.T) {
	for _, victim := range []string{"ndbench", "guard"} {
		t.Run(victim, func(t *testing.T) {
			t.Setenv("TMPDIR", t.TempDir())
			p := proctest.Start(t, proctest.Command(roleSession))
			var variable, dir, shared string
			var guard int
			if _, err := fmt.Sscan(p.Hear(), &variable, &dir, &shared, &guard); err != nil {
				t.Fatal(err)
			}
			dirs := []string{dir, shared}
			proctest.Eventually(t, "the files are there", func() bool {
				files, _ := filepath.Glob(dir + "/file")
				inMemory, _ := filepath.Glob(shared + "/file")
				return len(files)+len(inMemory) == 2
			})
			if victim == "guard" {
				if err := syscall.Kill(guard, syscall.SIGKILL); err != nil {
					t.Fatal(err)
				}
				p.Say("end")
				p.Wait()
			} else {
				_ = syscall.Kill(guard, syscall.SIGTERM) // as a launcher sends it
				p.Kill()
			}
			var left []string
			proctest.Eventually(t, "nothing is left", func() bool {
				left = left[:0]
				for _, dir := range dirs {
					if _, err := os.Stat(dir); err == nil {
						left = append(left, dir)
					}
				}
				files, _ := filepath.Glob("/proc/[0-9]*/environ")
				for _, f := range files {
					if env, _ := os.ReadFile(f); bytes.Contains(env, []byte(variable)) {
						left = append(left, f)
					}
				}
				return len(left) == 0
			}, &left)
		})
	}
}
