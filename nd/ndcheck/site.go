package ndcheck

import (
	"path/filepath"
	"runtime"
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

// here returns the line of the program that has called into the checker, such as "rank.go:42 (main.send)".
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
			return filepath.Base(f.File) + ":" + strconv.Itoa(f.Line) + " (" + f.Function[strings.LastIndexByte(f.Function, '/')+1:] + ")"
		}
		if !more {
			return ""
		}
	}
}

func isOwn(function string) bool {
	return slices.ContainsFunc(own, func(prefix string) bool { return strings.HasPrefix(function, prefix) })
}
