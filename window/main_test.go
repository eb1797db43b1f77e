package window

import (
	"fmt"
	"os"
	"testing"

	"github.com/softnd/softnd/internal/proctest"
	"github.com/softnd/softnd/shm"
)

func TestMain(m *testing.M) {
	proctest.Main()
	os.Exit(m.Run())
}

// arenaRole registers a role of a process that gets the arena as its first file.
func arenaRole(name string, play func(self *proctest.Self, a *shm.Arena) error) string {
	return proctest.Role(name, func(self *proctest.Self) error {
		a, err := shm.Attach(self.Ctx, self.File(0))
		if err != nil {
			return err
		}
		return play(self, a)
	})
}

// start starts a role of an arenaRole.
func start(t testing.TB, a *shm.Arena, role string, args ...any) *proctest.Process {
	t.Helper()
	words := make([]string, len(args))
	for i, arg := range args {
		words[i] = fmt.Sprint(arg)
	}
	cmd := proctest.Command(role, words...)
	cmd.ExtraFiles = []*os.File{a.File()}
	return proctest.Start(t, cmd)
}
