// Package statuspage implements the status pages of an arena's members. On its page a member, the
// reporter, lists the calls in which it waits, and its endpoints and completion queues with work
// outstanding. Observers such as ndrun and ndinfo read it to find out why a job hangs. Through the
// page, they also ask the member for the stacks of its goroutines.
package statuspage

// TWIN c/src/endpoint/progress_statuspage.c.

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"unicode"

	"github.com/softnd/softnd/shm"
)

// Page is the content of one status page.
type Page struct {
	Calls     []Call     `json:"c,omitempty"` // calls that wait
	Endpoints []Endpoint `json:"e,omitempty"` // endpoints that failed or have work outstanding
	Queues    []Queue    `json:"q,omitempty"` // completion queues that hold results
	Omitted   int        `json:"o,omitempty"` // number of endpoints left out of Endpoints

	// Manual reports that the member writes the page, and answers observers, only while it makes a
	// call. Members in C without a progress thread do so.
	Manual bool `json:"m,omitempty"`
}

// Call is a call that waits, or a loop of polls that return nothing.
type Call struct {
	Op     string       `json:"op"`
	Object string       `json:"x,omitempty"` // the object of the call, for messages
	Peer   shm.MemberID `json:"p,omitempty"` // the member that the call waits for; 0 = no particular one
	Queue  uint64       `json:"q,omitempty"` // number of the completion queue that the call waits on; 0 = none
	Round  uint64       `json:"r,omitempty"` // number of the ranks' barrier, from 1; 0 = the call is no barrier
	Since  int64        `json:"t,omitempty"` // when the call began, as linux.HostClock counts
}

// OpPoll is the Op of a loop of polls that return nothing.
const OpPoll = "poll"

// Endpoint is a queue pair that failed or has work outstanding.
type Endpoint struct {
	Number       uint64       `json:"n"`
	Peer         shm.MemberID `json:"p,omitempty"`
	PeerNumber   uint64       `json:"m,omitempty"` // number of the peer's endpoint
	State        string       `json:"s"`
	Busy         bool         `json:"u,omitempty"` // its lock was held: only Number and the two queues are known
	RequestQueue uint64       `json:"i,omitempty"` // number of the completion queue for requests
	ReceiveQueue uint64       `json:"r,omitempty"` // number of the completion queue for receives

	Requests       uint64 `json:"o,omitempty"` // requests outstanding
	OldestRequest  string `json:"k,omitempty"` // operation of the oldest outstanding request
	ReceiveMissing bool   `json:"w,omitempty"` // the oldest request waits for the peer to post a receive
	Receives       uint64 `json:"b,omitempty"` // receives outstanding
	Cause          string `json:"f,omitempty"` // why the endpoint failed
	PeerCopying    bool   `json:"h,omitempty"` // the peer's executor is copying to or from memory of this side

	// Of a verbs program; 0 = another one.
	QueuePair     uint64 `json:"q,omitempty"` // number of the queue pair
	PeerQueuePair uint64 `json:"d,omitempty"` // number that it has named
}

// Queue is a completion queue that holds results.
type Queue struct {
	Number  uint64 `json:"n"`
	Results uint64 `json:"r"`
}

// Limits on what encode writes and decode accepts.
const (
	maxText      = 8 * textWords // bytes
	maxCalls     = 32
	maxEndpoints = 128
	maxQueues    = 64
)

// encode returns the text of the page, of at most maxText bytes. If the content does not fit, encode
// omits what explains least.
func (p Page) encode() []byte {
	// A call that names a barrier or a peer explains more than one that waits on a queue.
	p.Calls = slices.Clone(p.Calls)
	slices.SortStableFunc(p.Calls, func(a, b Call) int { return b.weight() - a.weight() })
	p.Calls = p.Calls[:min(len(p.Calls), maxCalls)]
	p.Queues = p.Queues[:min(len(p.Queues), maxQueues)]
	for keep := min(len(p.Endpoints), maxEndpoints); ; keep /= 2 {
		p.Omitted += len(p.Endpoints) - keep
		p.Endpoints = p.Endpoints[:keep]
		text, err := json.Marshal(p)
		if err == nil && len(text) <= maxText {
			return text
		}
		if keep == 0 { // only if Op or Object is thousands of bytes long; softnd's are short
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

// decode decodes the text of a status page. Any member of the arena can have written the text, so
// decode bounds the number of entries and makes each string printable.
func decode(text []byte) (p Page, err error) {
	if err := json.Unmarshal(text, &p); err != nil {
		return Page{}, fmt.Errorf("decode status page: %w", err)
	}
	p.Calls = p.Calls[:min(len(p.Calls), maxCalls)]
	p.Queues = p.Queues[:min(len(p.Queues), maxQueues)]
	p.Endpoints = p.Endpoints[:min(len(p.Endpoints), maxEndpoints)]
	p.Omitted = min(max(p.Omitted, 0), 1<<30)
	for i := range p.Calls {
		c := &p.Calls[i]
		c.Op, c.Object = Printable(c.Op), Printable(c.Object)
	}
	for i := range p.Endpoints {
		e := &p.Endpoints[i]
		e.State, e.OldestRequest, e.Cause = Printable(e.State), Printable(e.OldestRequest), Printable(e.Cause)
	}
	return p, nil
}

// maxPrintable is the maximum length of a string that Printable returns, in bytes.
const maxPrintable = 500

// Printable returns the first 500 bytes of s with each unprintable character, line breaks
// included, replaced by a question mark.
func Printable(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return '?'
	}, s[:min(len(s), maxPrintable)])
}
