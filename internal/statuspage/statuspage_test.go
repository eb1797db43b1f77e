package statuspage

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// A Page keeps what explains most, and counts the endpoints that it omits.
func TestEncodeKeepsWhatFits(t *testing.T) {
	for _, n := range []int{0, 1, 100, 1000} {
		var page Page
		for i := range n {
			page.Calls = append(page.Calls, Call{Op: "wait", Queue: uint64(i), Object: strings.Repeat("x", 50)})
			page.Endpoints = append(page.Endpoints, Endpoint{Number: uint64(i), State: "failed", Cause: fmt.Sprint("cause ", i)})
			page.Queues = append(page.Queues, Queue{Number: uint64(i)})
		}
		page.Calls = append(page.Calls, Call{Op: "accept", Peer: 5}, Call{Op: "barrier", Round: 1})
		before := slices.Clone(page.Calls)
		text := page.encode()
		got, err := decode(text)
		if err != nil || len(text) > maxText || got.Omitted+len(got.Endpoints) != n {
			t.Fatalf("%d: %d bytes, %d endpoints, %d omitted, %v", n, len(text), len(got.Endpoints), got.Omitted, err)
		}
		if n > 0 && (len(got.Endpoints) == 0 || got.Endpoints[0].Number != 0) {
			t.Errorf("%d: endpoints %+v", n, got.Endpoints)
		}
		if got.Calls[0].Op != "barrier" || got.Calls[1].Op != "accept" {
			t.Errorf("%d: first calls %+v", n, got.Calls[:2])
		}
		if !slices.Equal(page.Calls, before) {
			t.Error("encode changed the order of the caller's list")
		}
	}
	long := Page{Calls: []Call{{Op: strings.Repeat("x", maxText)}}}
	if _, err := decode(long.encode()); err != nil {
		t.Error(err)
	}
}

// Text from a hostile member gives an error, or bounded lists of printable strings.
func TestDecodeBoundsHostileText(t *testing.T) {
	for _, text := range []string{"", "{", "[]", "null x", `{"c": 1}`, `{"c": [{"r": -1}]}`, `{"e": [{"n": 1e99}]}`} {
		if got, err := decode([]byte(text)); err == nil {
			t.Errorf("%q: %+v, want an error", text, got)
		}
	}
	got, err := decode([]byte(`{"o": -7, "c": [` + strings.Repeat(`{"op":"a\u001b[2Jb\nc"},`, 999) + `{}], "q": [` + strings.Repeat(`{},`, 999) + `{}],
		"e": [` + strings.Repeat(`{},`, 999) + `{}]}`))
	if err != nil || len(got.Calls) != maxCalls || len(got.Endpoints) != maxEndpoints || len(got.Queues) != maxQueues || got.Omitted != 0 {
		t.Errorf("%d calls, %d endpoints, %d queues, %d omitted, %v", len(got.Calls), len(got.Endpoints), len(got.Queues), got.Omitted, err)
	}
	if got.Calls[0].Op != "a?[2Jb?c" {
		t.Errorf("op %q", got.Calls[0].Op)
	}
	if got, err := decode([]byte(`{"c": [{"op": "` + strings.Repeat("x", 5000) + `"}]}`)); err != nil || len(got.Calls[0].Op) > maxPrintable {
		t.Errorf("%d bytes, %v", len(got.Calls[0].Op), err)
	}
}
