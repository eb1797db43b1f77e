//go:build linux

package ndcheck_test

import (
	"os"
	"testing"

	"github.com/softnd/softnd/internal/testkit/proctest"
)

func TestMain(m *testing.M) {
	proctest.Main()
	proctest.SideBySide(6)
	os.Exit(m.Run())
}
