package report

import (
	"runtime/debug"
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

func TestTheProcessorIsFound(t *testing.T) {
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

func TestTheRevisionOfTheBuild(t *testing.T) {
	own := debug.Module{Path: module}
	vcs := []debug.BuildSetting{{Key: "vcs.revision", Value: "abc"}, {Key: "vcs.modified", Value: "false"}}
	changed := []debug.BuildSetting{{Key: "vcs.revision", Value: "abc"}, {Key: "vcs.modified", Value: "true"}}
	for _, c := range []struct {
		name string
		info *debug.BuildInfo
		want string
	}{
		{"nothing", nil, unknown},
		{"a test", &debug.BuildInfo{Main: own}, unknown},
		{"a clean build", &debug.BuildInfo{Main: own, Settings: vcs}, "abc"},
		{"a changed build", &debug.BuildInfo{Main: own, Settings: changed}, "abc+modified"},
		{"a part of another program", &debug.BuildInfo{
			Main: debug.Module{Path: "example.org/x"}, Settings: vcs, Deps: []*debug.Module{{Path: module, Version: "v1.2.3"}},
		}, "v1.2.3"},
		{"no part of the program", &debug.BuildInfo{Main: debug.Module{Path: "example.org/x"}, Settings: vcs}, unknown},
	} {
		if got := revision(c.info, c.info != nil); got != c.want {
			t.Errorf("%s: got %q, want %q", c.name, got, c.want)
		}
	}
}
