package hang

import (
	"fmt"
	"strings"
	"time"

	"github.com/softnd/softnd/internal/statuspage"
)

// maxFindings is the number of findings in a report. Later findings are mostly consequences.
const maxFindings = 4

// Limits on the lines about one rank.
const (
	maxCalls     = 16
	maxEndpoints = 64
)

// Lines returns the lines of a full report: the causes, what each rank does, and the stacks.
func (p *Snapshot) Lines() []string { return append(p.Brief(), p.stackLines()...) }

// Brief returns Lines without the stacks.
func (p *Snapshot) Brief() []string {
	lines := p.Causes()
	for _, g := range p.groups() {
		lines = append(lines, g...)
	}
	return lines
}

// Causes returns the first of these lines: the findings.
func (p *Snapshot) Causes() []string {
	var lines []string
	for i, f := range p.Findings() {
		if i == maxFindings {
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
		lines = append(lines, "likely cause: none found; the state of each rank follows")
	}
	return lines
}

// groups returns the lines about all ranks. Ranks in the same state share lines.
func (p *Snapshot) groups() (groups [][]string) {
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
		lines[0] = fmt.Sprintf("%s (%s): %s", ranks(of), p.processes(of), lines[0])
		groups[at] = lines
	}
	return groups
}

// processes returns the name of a group's processes.
func (p *Snapshot) processes(of []int) string {
	r := &p.ranks[of[0]]
	if len(of) == 1 || r.pid == 0 {
		return r.process()
	}
	return r.process() + " and others"
}

// process returns the name of a rank's process.
func (r *rank) process() string {
	if r.pid == 0 {
		return r.Program
	}
	return fmt.Sprintf("%s, pid %d", r.Program, r.pid)
}

// describe returns the lines about one rank; the first follows the rank's name. since formats the
// time that has passed since a moment.
func (p *Snapshot) describe(i int, since func(int64) string) []string {
	r := &p.ranks[i]
	switch {
	case r.isGone():
		return []string{r.ending()}
	case !r.hasJoined():
		return []string{"not in softnd.Init" + r.condition()}
	case r.pageErr != nil:
		return []string{r.pageErr.Error() + r.condition()}
	case !r.idle && r.isOutside():
		return []string{"in no call of softnd" + r.condition()}
	case !r.idle:
		return []string{"running" + r.condition()}
	}
	first := fmt.Sprintf("in no call of softnd%s; last progress %s ago", r.condition(), since(r.lastProgress))
	if len(r.page.Calls) > 0 {
		first = fmt.Sprintf("%s for %s%s; last progress %s ago", callText(r.page.Calls[0]), since(r.page.Calls[0].Since), r.condition(), since(r.lastProgress))
	}
	lines := []string{first}
	for n, call := range r.page.Calls[min(1, len(r.page.Calls)):] {
		if n == maxCalls {
			lines = append(lines, fmt.Sprintf("  and %d more calls", len(r.page.Calls)-1-n))
			break
		}
		lines = append(lines, fmt.Sprintf("  also in %s for %s", callText(call), since(call.Since)))
	}
	for _, w := range p.waits[i] {
		if w.call.Round > 0 && len(w.targets) > 0 {
			var missing []int
			for _, t := range w.targets {
				missing = append(missing, t.rank)
			}
			lines = append(lines, fmt.Sprintf("  %s: not arrived: %s", w.what, ranks(missing)))
		}
	}
	for n, e := range r.page.Endpoints {
		if n == maxEndpoints {
			lines = append(lines, fmt.Sprintf("  and %d more endpoints", len(r.page.Endpoints)-n+r.page.Omitted))
			break
		}
		line := "  " + p.connection(e)
		if e.Requests > 0 {
			line += fmt.Sprintf("; requests outstanding: %d, the oldest a %s", e.Requests, e.OldestRequest)
			if e.ReceiveMissing {
				line += " for which the peer has posted no receive"
			}
		}
		if e.Receives > 0 {
			line += fmt.Sprintf("; receives outstanding: %d", e.Receives)
		}
		if e.PeerCopying {
			line += "; a transfer of the peer is in progress"
		}
		if e.Cause != "" {
			line += ": " + e.Cause
		}
		lines = append(lines, line)
	}
	for _, q := range r.page.Queues {
		lines = append(lines, fmt.Sprintf("  completion queue %d: results not polled yet: %d", q.Number, q.Results))
	}
	return lines
}

// name returns the name of an endpoint, which the program knows: that of a verbs program by the number of its queue pair.
func name(e statuspage.Endpoint) string { return nameOf(e.Number, e.QueuePair) }

func peerName(e statuspage.Endpoint) string { return nameOf(e.PeerNumber, e.PeerQueuePair) }

func nameOf(endpoint, queuePair uint64) string {
	if queuePair != 0 {
		return fmt.Sprintf("queue pair %#x", queuePair)
	}
	return fmt.Sprintf("endpoint %d", endpoint)
}

// connection describes an endpoint and its peer.
func (p *Snapshot) connection(e statuspage.Endpoint) string {
	peer := "another process"
	n, known := p.rankOf[e.Peer]
	if known {
		peer = fmt.Sprintf("%s of rank %d", peerName(e), n)
	}
	switch {
	case e.Busy:
		return name(e) + ": busy"
	case e.State != "connecting" || e.QueuePair == 0:
		return fmt.Sprintf("%s with %s: %s", name(e), peer, e.State)
	case e.Peer == 0:
		return fmt.Sprintf("%s: waits for %s, which no process has", name(e), peerName(e))
	case !known:
		peer = peerName(e) + " of another process"
	}
	return fmt.Sprintf("%s: waits for %s to name it at RTR", name(e), peer)
}

// condition describes an unusual state of the process, "" if there is none.
func (r *rank) condition() string {
	switch {
	case r.isStopped():
		return ", not responding: stopped by a signal or a debugger"
	case r.state == 'D':
		return ", in an uninterruptible system call"
	case r.state == 'Z':
		return ", a zombie: its parent has not waited for it"
	case r.noAnswer && !r.isOutside():
		return ", not responding"
	}
	return ""
}

// since formats the time between a moment and the snapshot.
func (p *Snapshot) since(at int64) string {
	return max(0, time.Duration(p.at-at).Round(100*time.Millisecond)).String()
}
