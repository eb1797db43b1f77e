package goruntime

import (
	"cmp"
	"runtime/debug"
	"strings"
	"sync"
)

const module = "github.com/softnd/softnd"

// UnknownBuild is the name of a build without a recorded version or revision, such as a test, or a build
// from sources outside of version control.
const UnknownBuild = "of unknown revision"

// BuildName returns the module version of softnd in this program, such as "v0.4.1", or the first digits of
// the revision, followed by "+modified" if the sources were changed.
var BuildName = sync.OnceValue(func() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return UnknownBuild
	}
	return nameOf(info)
})

func nameOf(info *debug.BuildInfo) string {
	m := &info.Main
	if m.Path != module {
		for _, d := range info.Deps {
			if d.Path == module {
				m = d
			}
		}
	}
	if m.Path != module {
		return UnknownBuild
	}
	if m == &info.Main {
		if revision := revisionOf(info.Settings); revision != "" {
			return revision
		}
	} else if strings.HasPrefix(info.Main.Path, module+"/") { // of the same repository, with a path in place of a version
		return cmp.Or(revisionOf(info.Settings), UnknownBuild)
	}
	version := m.Version
	if r := m.Replace; r != nil {
		version = strings.TrimSpace(r.Path + " " + r.Version)
	}
	if version == "" || version == "(devel)" {
		return UnknownBuild
	}
	return version
}

// digits is the number of digits of a revision in a name, the same as in a pseudo-version.
const digits = 12

// revisionOf returns the revision of the main module, "" if it is not recorded.
func revisionOf(settings []debug.BuildSetting) string {
	found, modified := "", ""
	for _, s := range settings {
		switch {
		case s.Key == "vcs.revision":
			found = s.Value[:min(len(s.Value), digits)]
		case s.Key == "vcs.modified" && s.Value == "true":
			modified = "+modified"
		}
	}
	if found == "" {
		return ""
	}
	return found + modified
}
