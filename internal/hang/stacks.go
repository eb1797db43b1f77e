package hang

import (
	"bytes"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/softnd/softnd/internal/statuspage"
)

// What is shown of stacks at the most, whatever ranks have answered.
const (
	mostStacks = 64  // different ones
	mostBlocks = 512 // of one rank
	mostLines  = 60  // of one stack
)

// patterns are made when they are needed: few jobs hang, and all have to start.
var patterns = sync.OnceValue(func() (p struct{ head, arguments, offset, creator, inner *regexp.Regexp }) {
	p.head = regexp.MustCompile(`^goroutine \d+ (?:gp=\S+ m=\S+ (?:mp=\S+ )?)?\[([^\],]*)[^\]]*\]:$`)
	// What differs between stacks that are the same to a reader.
	p.arguments = regexp.MustCompile(`\([^()]*\)$`)
	p.offset = regexp.MustCompile(` \+0x[0-9a-f]+$`)
	p.creator = regexp.MustCompile(` in goroutine \d+$`)
	// Functions of the runtime and of softnd. Of those that stand at the inner end of a
	// stack only the outermost is shown, which is what the program has called.
	p.inner = regexp.MustCompile(`^(runtime|syscall|time|sync|golang\.org/x/sys/unix|github\.com/softnd/softnd(/(shm|window|endpoint|internal/\w+))?)\.`)
	return p
})

// ours are goroutines of softnd itself and of the runtime, which say nothing about
// the program.
var ours = []string{
	"endpoint.(*engine).run", "endpoint.(*housekeeper).run", "shm.(*Member).watch", "shm.(*Fabric).serve",
	"endpoint.(*Provider).park.", "os/signal.loop", "os/signal.signal_recv",
}

// stack is one of a rank's goroutines.
type stack struct {
	state string   // "running", "chan receive"
	waits bool     // in a call of softnd that waits, and may spin or yield before it sleeps
	lines []string // two by call, the innermost first
}

// waitFrame is in the stack of each call of softnd that waits.
const waitFrame = "endpoint.(*Provider).wait("

// computes reports whether a goroutine of the rank runs that is none of softnd's, does not
// wait in softnd, and is not the one that polls.
func (r *rank) computes() bool {
	return !slices.ContainsFunc(r.calls(), func(c statuspage.Call) bool { return c.Op == statuspage.OpPoll }) &&
		slices.ContainsFunc(r.stacks, func(s stack) bool { return (s.state == "running" || s.state == "runnable") && !s.waits })
}

// stackLines shows each stack once, with the ranks that have it.
func (p *Picture) stackLines() (lines []string) {
	type shared struct {
		stack
		ranks []int
	}
	var all []*shared
	index := make(map[string]*shared)
	for i := range p.ranks {
		for _, s := range p.ranks[i].stacks {
			key := s.state + "\n" + strings.Join(s.lines, "\n")
			same := index[key]
			if same == nil {
				same = &shared{stack: s}
				index[key] = same
				all = append(all, same)
			}
			if n := len(same.ranks); n == 0 || same.ranks[n-1] != i {
				same.ranks = append(same.ranks, i)
			}
		}
	}
	for n, s := range all {
		if n == mostStacks {
			lines = append(lines, fmt.Sprintf("and %d more stacks", len(all)-n))
			break
		}
		lines = append(lines, fmt.Sprintf("stack of %s, %s:", ranks(s.ranks), s.state))
		for _, line := range s.lines {
			lines = append(lines, "  "+line)
		}
	}
	return lines
}

// readStacks cuts what a process has answered, which may be anything, into the stacks
// that say something, each without what differs from one process to the next.
func readStacks(answer []byte) (all []stack) {
	for block := range bytes.SplitSeq(bytes.TrimSpace(answer), []byte("\n\n")) {
		if len(all) == mostBlocks {
			break
		}
		if s, ok := readStack(block); ok {
			all = append(all, s)
		}
	}
	return all
}

func readStack(block []byte) (s stack, ok bool) {
	re := patterns()
	first, rest, _ := bytes.Cut(block, []byte("\n"))
	m := re.head.FindStringSubmatch(statuspage.Printable(string(first)))
	if m == nil || slices.ContainsFunc(ours, func(name string) bool { return bytes.Contains(block, []byte(name)) }) {
		return stack{}, false
	}
	s.state, s.waits = m[1], bytes.Contains(block, []byte(waitFrame))
	for line := range bytes.SplitSeq(rest, []byte("\n")) {
		if len(s.lines) == mostLines {
			s.lines = append(s.lines, "...")
			break
		}
		place, isPlace := bytes.CutPrefix(line, []byte("\t"))
		text := re.offset.ReplaceAllString(statuspage.Printable(string(place)), "")
		if isPlace {
			text = "\t" + text
		} else {
			text = re.arguments.ReplaceAllString(re.creator.ReplaceAllString(text, ""), "")
		}
		s.lines = append(s.lines, text)
		if n := len(s.lines); n == 3 && re.inner.MatchString(s.lines[0]) && re.inner.MatchString(s.lines[2]) {
			s.lines = append(s.lines[:0], text) // an outer one of the same
		}
	}
	return s, true
}
