package goruntime

import (
	"runtime/debug"
	"testing"
)

func TestNameOfBuildInfo(t *testing.T) {
	vcs := func(modified string) []debug.BuildSetting {
		return []debug.BuildSetting{{Key: "vcs.revision", Value: "0123456789abcdef"}, {Key: "vcs.modified", Value: modified}}
	}
	user := debug.Module{Path: "example.org/x", Version: "v9.9.9"}
	for _, c := range []struct {
		name string
		info debug.BuildInfo
		want string
	}{
		{"a test", debug.BuildInfo{Main: debug.Module{Path: module}}, UnknownBuild},
		{"without version control", debug.BuildInfo{Main: debug.Module{Path: module, Version: "(devel)"}}, UnknownBuild},
		{"a clean build", debug.BuildInfo{Main: debug.Module{Path: module, Version: "v0.0.0-2026-0123456789ab"}, Settings: vcs("false")}, "0123456789ab"},
		{"a changed build", debug.BuildInfo{Main: debug.Module{Path: module}, Settings: vcs("true")}, "0123456789ab+modified"},
		{"installed from a proxy", debug.BuildInfo{Main: debug.Module{Path: module, Version: "v0.4.1"}}, "v0.4.1"},
		{"a part of another program", debug.BuildInfo{Main: user, Settings: vcs("false"), Deps: []*debug.Module{{Path: module, Version: "v1.2.3"}}}, "v1.2.3"},
		{"from a directory", debug.BuildInfo{Main: user, Deps: []*debug.Module{{Path: module, Version: "v0.0.0", Replace: &debug.Module{Path: "../softnd"}}}}, "../softnd"},
		{"no part of the program", debug.BuildInfo{Main: user, Settings: vcs("false")}, UnknownBuild},
	} {
		if got := nameOf(&c.info); got != c.want {
			t.Errorf("%s: got %q, want %q", c.name, got, c.want)
		}
	}
}
