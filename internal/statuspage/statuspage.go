// Package testimony is what a process that stands still tells of itself to one who looks
// at the arena from outside: what it waits for, and what it has under way. Members write
// it ([shm.Member.Tell]) for ndrun and whoever else wants to know why a job hangs.
package statuspage

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"unicode"

	"github.com/softnd/softnd/shm"
)

// Testimony is one process's view of itself.
type Testimony struct {
	Calls     []Call     `json:"c,omitempty"` // that wait
	Endpoints []Endpoint `json:"e,omitempty"` // with something under way, or failed
	Queues    []Queue    `json:"q,omitempty"` // completion queues in which results lie
	LeftOut   int        `json:"o,omitempty"` // endpoints that are not listed
}

// Call is a call that waits, or a loop of polls that find nothing.
type Call struct {
	Op     string       `json:"op"`
	Object string       `json:"x,omitempty"` // on what, for messages
	Peer   shm.MemberID `json:"p,omitempty"` // whom it waits for; 0: whoever uses the queue, or nobody
	Queue  uint64       `json:"q,omitempty"` // number of the completion queue that it waits at; 0 = none
	Round  uint64       `json:"r,omitempty"` // of the ranks' barriers, from 1; 0 = it is none
	Since  int64        `json:"t,omitempty"` // as shm.Clock counts
}

// OpPoll is the Op of a loop of polls that find nothing.
const OpPoll = "poll"

// Endpoint is a queue pair with something under way.
type Endpoint struct {
	Number     uint64       `json:"n"`
	Peer       shm.MemberID `json:"p,omitempty"`
	PeerNumber uint64       `json:"m,omitempty"` // of the peer's endpoint
	State      string       `json:"s"`
	Unknown    bool         `json:"u,omitempty"` // somebody was at it: all that is known is its number and queues
	Initiator  uint64       `json:"i,omitempty"` // number of the completion queue for requests
	Receive    uint64       `json:"r,omitempty"` // and for receives

	Requests  uint64 `json:"o,omitempty"` // that have not completed
	Oldest    string `json:"k,omitempty"` // what the oldest is
	NoReceive bool   `json:"w,omitempty"` // the oldest waits for the peer to post a receive
	Receives  uint64 `json:"b,omitempty"` // posted, and not filled yet
	Cause     string `json:"f,omitempty"` // why it failed
	Touched   bool   `json:"h,omitempty"` // the peer is in the middle of a transfer to or from this side's memory
}

// Queue is a completion queue in which results lie that nobody has taken.
type Queue struct {
	Number  uint64 `json:"n"`
	Results uint64 `json:"r"`
}

// What is told, and believed, at the most.
const (
	mostCalls     = 32
	mostEndpoints = 128
	mostQueues    = 64
)

// Bytes is the testimony as it is told, with as much as fits.
func (t Testimony) Bytes() []byte {
	// Those that name somebody explain more than those that wait at a queue.
	t.Calls = slices.Clone(t.Calls)
	slices.SortStableFunc(t.Calls, func(a, b Call) int { return b.weight() - a.weight() })
	t.Calls = t.Calls[:min(len(t.Calls), mostCalls)]
	t.Queues = t.Queues[:min(len(t.Queues), mostQueues)]
	for keep := min(len(t.Endpoints), mostEndpoints); ; keep /= 2 {
		t.LeftOut += len(t.Endpoints) - keep
		t.Endpoints = t.Endpoints[:keep]
		text, err := json.Marshal(t)
		if err == nil && len(text) <= shm.TestimonySize {
			return text
		}
		if keep == 0 { // texts of our own are short; these are not
			return []byte("{}")
		}
	}
}

func (c Call) weight() int {
	switch {
	case c.Round > 0:
		return 2
	case c.Peer > 0:
		return 1
	}
	return 0
}

// Read reads what a member has told. Any member may have told anything.
func Read(text []byte) (t Testimony, err error) {
	if err := json.Unmarshal(text, &t); err != nil {
		return Testimony{}, fmt.Errorf("read the testimony of a member: %w", err)
	}
	t.Calls = t.Calls[:min(len(t.Calls), mostCalls)]
	t.Queues = t.Queues[:min(len(t.Queues), mostQueues)]
	t.Endpoints = t.Endpoints[:min(len(t.Endpoints), mostEndpoints)]
	t.LeftOut = min(max(t.LeftOut, 0), 1<<30)
	for i := range t.Calls {
		c := &t.Calls[i]
		c.Op, c.Object = Line(c.Op), Line(c.Object)
	}
	for i := range t.Endpoints {
		e := &t.Endpoints[i]
		e.State, e.Oldest, e.Cause = Line(e.State), Line(e.Oldest), Line(e.Cause)
	}
	return t, nil
}

// longestLine is the longest of the texts within a testimony, in bytes.
const longestLine = 500

// Line makes one line, of a length that can be shown, of what may be anything.
func Line(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return '?'
	}, s[:min(len(s), longestLine)])
}
