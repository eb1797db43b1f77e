package hang

import (
	"fmt"
	"strings"
	"time"
)

// mostFindings is how many findings are shown: what comes behind them is rather a
// consequence.
const mostFindings = 4

// How much is shown of one rank.
const (
	mostCalls     = 16
	mostEndpoints = 64
)

// Lines tells a user, in whole lines, what keeps the job from going on, what each
// rank is doing, and where its goroutines are.
func (p *Picture) Lines() []string { return append(p.Brief(), p.stackLines()...) }

// Brief is Lines without the goroutines.
func (p *Picture) Brief() []string {
	lines := p.Causes()
	for _, g := range p.groups() {
		lines = append(lines, g...)
	}
	return lines
}

// Causes are the first of the lines: the findings.
func (p *Picture) Causes() []string {
	var lines []string
	for i, f := range p.Findings() {
		if i == mostFindings {
			break
		}
		title := "also: "
		if i == 0 {
			title = "likely cause: "
		}
		lines = append(lines, title+f.Cause)
		for _, s := range f.Steps {
			lines = append(lines, "  "+s)
		}
	}
	if len(lines) == 0 {
		lines = append(lines, "likely cause: none to be seen; what the ranks do is below")
	}
	return lines
}

// groups describes all ranks; those about which there is the same to say come together.
func (p *Picture) groups() (groups [][]string) {
	index := make(map[string]int)
	var members [][]int
	for i := range p.ranks {
		key := strings.Join(p.describe(i, func(int64) string { return "" }), "\n")
		at, known := index[key]
		if !known {
			at = len(groups)
			index[key] = at
			groups, members = append(groups, nil), append(members, nil)
		}
		members[at] = append(members[at], i)
	}
	for at, of := range members {
		lines := p.describe(of[0], p.since)
		lines[0] = fmt.Sprintf("%s (%s): %s", ranks(of), p.who(of), lines[0])
		groups[at] = lines
	}
	return groups
}

// who names the processes of a group.
func (p *Picture) who(of []int) string {
	r := &p.ranks[of[0]]
	if len(of) == 1 || r.pid == 0 {
		return r.process()
	}
	return r.process() + " and others"
}

// process names the process of a rank.
func (r *rank) process() string {
	if r.pid == 0 {
		return r.Program
	}
	return fmt.Sprintf("%s, pid %d", r.Program, r.pid)
}

// describe tells about one rank, the first line to be put behind its name. since is how
// long ago something was, as text.
func (p *Picture) describe(i int, since func(int64) string) []string {
	r := &p.ranks[i]
	switch {
	case r.over():
		return []string{r.how()}
	case !r.joined():
		return []string{"not in softnd.Init" + r.condition()}
	case r.unclear != nil:
		return []string{r.unclear.Error() + r.condition()}
	case !r.still:
		return []string{"at work" + r.condition()}
	}
	first := fmt.Sprintf("in no call of softnd%s; the last that it did there was %s ago", r.condition(), since(r.moved))
	if len(r.told.Calls) > 0 {
		first = fmt.Sprintf("%s for %s%s; last progress %s ago", describe(r.told.Calls[0]), since(r.told.Calls[0].Since), r.condition(), since(r.moved))
	}
	lines := []string{first}
	for n, call := range r.told.Calls[min(1, len(r.told.Calls)):] {
		if n == mostCalls {
			lines = append(lines, fmt.Sprintf("  and %d more calls", len(r.told.Calls)-1-n))
			break
		}
		lines = append(lines, fmt.Sprintf("  also in %s for %s", describe(call), since(call.Since)))
	}
	for _, w := range p.waits[i] {
		if w.call.Round > 0 && len(w.on) > 0 {
			var missing []int
			for _, t := range w.on {
				missing = append(missing, t.rank)
			}
			lines = append(lines, fmt.Sprintf("  %s: %s not there yet", w.what, ranks(missing)))
		}
	}
	for n, e := range r.told.Endpoints {
		if n == mostEndpoints {
			lines = append(lines, fmt.Sprintf("  and %d more endpoints", len(r.told.Endpoints)-n+r.told.Omitted))
			break
		}
		peer := "another process"
		if n, ok := p.rankOf[e.Peer]; ok {
			peer = fmt.Sprintf("endpoint %d of rank %d", e.PeerNumber, n)
		}
		line := fmt.Sprintf("  endpoint %d with %s: %s", e.Number, peer, e.State)
		if e.Busy {
			line = fmt.Sprintf("  endpoint %d: in use", e.Number)
		}
		if e.Requests > 0 {
			line += fmt.Sprintf("; requests under way: %d, the oldest a %s", e.Requests, e.OldestRequest)
			if e.ReceiveMissing {
				line += " for which the peer has posted no receive"
			}
		}
		if e.Receives > 0 {
			line += fmt.Sprintf("; receives posted: %d", e.Receives)
		}
		if e.PeerCopying {
			line += "; the peer is in the middle of a transfer"
		}
		if e.Cause != "" {
			line += ": " + e.Cause
		}
		lines = append(lines, line)
	}
	for _, q := range r.told.Queues {
		lines = append(lines, fmt.Sprintf("  completion queue %d: results that nobody has taken: %d", q.Number, q.Results))
	}
	return lines
}

// condition tells about the process, if that is worth telling.
func (r *rank) condition() string {
	switch {
	case r.stopped():
		return ", not responding: stopped by a signal or a debugger"
	case r.state == 'D':
		return ", in a system call that cannot be interrupted"
	case r.state == 'Z':
		return ", a zombie: its parent has not taken note of its end"
	case r.silent:
		return ", not responding"
	}
	return ""
}

// since is how long before the picture something was.
func (p *Picture) since(at int64) string {
	return max(0, time.Duration(p.at-at).Round(100*time.Millisecond)).String()
}
