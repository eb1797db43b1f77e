package ndcheck

import (
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// sites caches the text of each program counter: the same lines post again and again.
var sites sync.Map // uintptr to string

// own are the packages whose frames are not the program's.
var own = []string{"github.com/softnd/softnd.", "github.com/softnd/softnd/nd.", "github.com/softnd/softnd/nd/ndcheck.", "github.com/softnd/softnd/nd/ndcompat.",
	"github.com/softnd/softnd/endpoint.", "github.com/softnd/softnd/endpoint/", "github.com/softnd/softnd/window.", "github.com/softnd/softnd/shm.", "github.com/softnd/softnd/internal/"}

// here returns the line of the program that has called into the checker, such as "cmd/grid/rank.go:42 (main.send)".
func here() string {
	var pcs [32]uintptr
	for first, last := 0, usualDepth; first < len(pcs); first, last = last, len(pcs) {
		n := runtime.Callers(2+first, pcs[:last-first])
		for i, pc := range pcs[:n] {
			text, ok := sites.Load(pc)
			if !ok {
				text = describe(pcs[i : i+1])
				sites.Store(pc, text)
			}
			if text != "" {
				return text.(string)
			}
		}
		if n < last-first {
			break
		}
	}
	return ""
}

// usualDepth is how many frames here reads first: those of the checker, perhaps one of package nd, and that of the program.
// Each further frame costs 50 ns.
const usualDepth = 5

// describe returns the text of a frame, and "" for one that is not the program's.
func describe(pc []uintptr) string {
	frames := runtime.CallersFrames(pc)
	for {
		f, more := frames.Next() // several if calls were inlined
		if f.Function != "" && (strings.HasSuffix(f.File, "_test.go") || !isOwn(f.Function)) {
			return fitSite(fileOf(f.Function, f.File), ":"+strconv.Itoa(f.Line)+" ("+f.Function[strings.LastIndexByte(f.Function, '/')+1:]+")")
		}
		if !more {
			return ""
		}
	}
}

// fitSite joins a file and the rest of a site. It leaves out leading directories if the journal has no room for them.
func fitSite(file, rest string) string {
	for len(file)+len(rest) >= siteSize {
		_, after, ok := strings.Cut(file, "/")
		if !ok {
			break
		}
		file = after
	}
	return file + rest
}

// fileOf returns the path of a source file, with slashes: relative to the root of the program's module, or, in another module,
// with the import path in front. It returns the name alone if the module is not known.
func fileOf(function, file string) string {
	name := filepath.Base(file)
	slash := strings.LastIndexByte(function, '/') + 1
	element, _, _ := strings.Cut(function[slash:], ".")
	dir := function[:slash] + strings.ReplaceAll(element, "%2e", ".") // the linker escapes the dots of the last element
	module, program := build()
	if dir == "main" {
		dir = program
	}
	if strings.HasSuffix(name, "_test.go") {
		dir = strings.TrimSuffix(dir, "_test") // the package of an external test
	}
	switch rest, inModule := strings.CutPrefix(dir, module+"/"); {
	case module == "" || dir == "command-line-arguments": // go run with a list of files
		return name
	case dir == module:
		return name
	case inModule:
		return rest + "/" + name
	}
	return dir + "/" + name
}

// build returns the path of the program's module, "" if it is not known, and that of its package main.
var build = sync.OnceValues(func() (module, program string) {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "", ""
	}
	return info.Main.Path, info.Path
})

// baseOf returns a site without directories.
func baseOf(site string) string { return site[strings.LastIndexByte(site, '/')+1:] }

func isOwn(function string) bool {
	return slices.ContainsFunc(own, func(prefix string) bool { return strings.HasPrefix(function, prefix) })
}
