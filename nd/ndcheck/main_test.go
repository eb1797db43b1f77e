//go:build linux

package ndcheck_test

import (
	"os"
	"testing"

	"github.com/softnd/softnd/internal/testkit/proctest"
)

func TestMain(m *testing.M) {
	proctest.Main()
	proctest.SideBySide(4)
	os.Exit(m.Run())
}
