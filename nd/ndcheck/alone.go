package ndcheck

import (
	"bytes"
	"runtime"
	"slices"
	"strings"
)

// library are the first elements of paths of the standard library whose goroutines post nothing by themselves.
var library = []string{"bufio", "context", "expvar", "internal", "io", "log", "net", "os", "runtime", "sync", "syscall", "testing", "time"}

// isAlone reports whether at most one goroutine runs code of the program, so that no other one can post while it waits.
func isAlone() bool {
	buf := make([]byte, 256<<10)
	n := runtime.Stack(buf, true)
	if n == len(buf) {
		return false // there may be more
	}
	programs := 0
	for stack := range bytes.SplitSeq(buf[:n], []byte("\n\n")) {
		if slices.ContainsFunc(strings.Split(string(stack), "\n")[1:], isProgram) {
			programs++
		}
	}
	return programs <= 1
}

// isProgram reports whether a line of a stack is a call of a function of the program.
func isProgram(line string) bool {
	if line == "" || line[0] == '\t' || strings.HasPrefix(line, "created by ") || strings.HasPrefix(line, "...") {
		return false
	}
	first := line[:strings.IndexAny(line+".", "/.")]
	return !slices.Contains(library, first) && !isOwn(line)
}
