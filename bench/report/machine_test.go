package report

import (
	"strings"
	"testing"
)

func TestThisMachineHasNoBlanks(t *testing.T) {
	m := ThisMachine()
	for what, got := range map[string]string{
		"processor": m.Processor, "kernel": m.Kernel, "system": m.System, "go": m.Go, "softnd": m.Softnd,
	} {
		if got == "" {
			t.Errorf("no %s", what)
		}
	}
	if m.Cores < 1 {
		t.Errorf("%d cores", m.Cores)
	}
}

func TestProcessorIsFound(t *testing.T) {
	for info, want := range map[string]string{
		"processor\t: 0\nmodel\t\t: 207\nmodel name\t: Some  Processor\nmodel name\t: Another\n": "Some Processor",
		"processor\t: 0\nBogoMIPS\t: 50.00\nModel\t\t: Board 5\n":                                "Board 5",
		"processor\t: 0\n": unknown,
		"":                 unknown,
	} {
		if got := model(strings.NewReader(info)); got != want {
			t.Errorf("%q: got %q, want %q", info, got, want)
		}
	}
}
