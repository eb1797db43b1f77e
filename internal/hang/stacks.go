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

// Limits on the stacks in a report. A rank can publish anything.
const (
	maxStacks = 64  // different stacks
	maxBlocks = 512 // stacks of one rank
	maxLines  = 60  // lines of one stack
	maxRead   = 300 // lines of one stack that readStack reads; Go publishes 100 calls of two lines
)

// patterns are compiled at first use: few jobs hang, and all programs pay for work at their start.
var patterns = sync.OnceValue(func() (p struct{ head, arguments, offset, creator, inner *regexp.Regexp }) {
	p.head = regexp.MustCompile(`^goroutine \d+ (?:gp=\S+ m=\S+ (?:mp=\S+ )?)?\[([^\],]*)[^\]]*\]:$`)
	// Parts in which stacks with the same calls differ.
	p.arguments = regexp.MustCompile(`\([^()]*\)$`)
	p.offset = regexp.MustCompile(` \+0x[0-9a-f]+$`)
	p.creator = regexp.MustCompile(` in goroutine \d+$`)
	// Functions of the runtime and of softnd. Of those at the inner end of a stack the report shows
	// only the outermost, which is the function that the program has called.
	p.inner = regexp.MustCompile(`^(runtime|syscall|time|sync|golang\.org/x/sys/unix|github\.com/softnd/softnd(/(nd|shm|window|endpoint|(endpoint/)?internal/\w+))?)\.`)
	return p
})

// internalGoroutines are functions of goroutines of softnd and of the runtime. The report omits
// these goroutines.
var internalGoroutines = []string{
	"endpoint.(*engine).run", "endpoint.(*housekeeper).run", "shm.(*Member).watch", "shm.(*Fabric).serve",
	"endpoint.(*Provider).park.", "os/signal.loop", "os/signal.signal_recv",
}

// stack is one of a rank's goroutines.
type stack struct {
	state string   // "running", "chan receive"
	waits bool     // in a waiting call of softnd, which may spin or yield before it parks
	lines []string // two for each call, the innermost call first
}

// waitFrame is in the stack of each waiting call of softnd.
const waitFrame = "endpoint.(*Provider).wait("

// isComputing reports whether a goroutine of the program runs that neither waits in softnd nor
// polls.
func (r *rank) isComputing() bool {
	return !slices.ContainsFunc(r.calls(), func(c statuspage.Call) bool { return c.Op == statuspage.OpPoll }) &&
		slices.ContainsFunc(r.stacks, func(s stack) bool { return (s.state == "running" || s.state == "runnable") && !s.waits })
}

// stackLines returns the lines of each stack once, with the ranks that have it.
func (p *Snapshot) stackLines() (lines []string) {
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
		if n == maxStacks {
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

// readStacks parses the stacks that a process has published, which may be anything. It leaves out
// internal goroutines, and removes from each stack what differs between processes.
func readStacks(answer []byte) (all []stack) {
	for block := range bytes.SplitSeq(bytes.TrimSpace(answer), []byte("\n\n")) {
		if len(all) == maxBlocks {
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
	if m == nil || slices.ContainsFunc(internalGoroutines, func(name string) bool { return bytes.Contains(block, []byte(name)) }) {
		return stack{}, false
	}
	s.state, s.waits = m[1], bytes.Contains(block, []byte(waitFrame))
	read := 0
	for line := range bytes.SplitSeq(rest, []byte("\n")) {
		if read++; len(s.lines) == maxLines || read > maxRead {
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
			s.lines = append(s.lines[:0], text) // replaces the inner frames
		}
	}
	return s, true
}
