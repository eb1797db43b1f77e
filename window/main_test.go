package window

import (
	"os"
	"testing"

	"github.com/softnd/softnd/internal/testkit/proctest"
	"github.com/softnd/softnd/shm"
)

func TestMain(m *testing.M) {
	proctest.Main()
	os.Exit(m.Run())
}

// arenaRole registers a role of a process that gets the arena as its first file.
func arenaRole(name string, run func(self *proctest.Self, a *shm.Arena) error) string {
	return proctest.Role(name, func(self *proctest.Self) error {
		a, err := shm.Attach(self.Ctx, self.File(0))
		if err != nil {
			return err
		}
		return run(self, a)
	})
}
