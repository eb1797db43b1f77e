package faultplan

import (
	"fmt"
	"strings"
	"testing"
	"unsafe"

	"github.com/softnd/softnd/internal/layout/layouttest"
	"github.com/softnd/softnd/shm"
)

func TestLayout(t *testing.T) {
	layouttest.Check(t, []string{"faultplan."}, layouttest.Struct[Rule]("faultplan.Rule"), layouttest.Struct[Record]("faultplan.Record"))
	if want := fmt.Sprintf("fault rules        %d x %d\n", MaxRules, recordSize); !strings.Contains(layouttest.Sections()["file"], want) || maxRanks != shm.MaxRanks {
		t.Errorf("LAYOUT.txt lacks %q", want)
	}
	if n := unsafe.Sizeof(Record{}); n != recordSize {
		t.Errorf("a record has %d bytes", n)
	}
}
