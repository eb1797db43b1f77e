package statuspage

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/softnd/softnd/shm"
)

// Of more than there is room for, what explains most stays, and what is left out counts.
func TestAsMuchAsFits(t *testing.T) {
	for _, n := range []int{0, 1, 100, 1000} {
		var told Testimony
		for i := range n {
			told.Calls = append(told.Calls, Call{Op: "wait", Queue: uint64(i), Object: strings.Repeat("x", 50)})
			told.Endpoints = append(told.Endpoints, Endpoint{Number: uint64(i), State: "failed", Cause: fmt.Sprint("cause ", i)})
			told.Queues = append(told.Queues, Queue{Number: uint64(i)})
		}
		told.Calls = append(told.Calls, Call{Op: "accept", Peer: 5}, Call{Op: "barrier", Round: 1})
		before := slices.Clone(told.Calls)
		text := told.Bytes()
		got, err := Read(text)
		if err != nil || len(text) > shm.TestimonySize || got.LeftOut+len(got.Endpoints) != n {
			t.Fatalf("%d: %d bytes, %d endpoints, %d left out, %v", n, len(text), len(got.Endpoints), got.LeftOut, err)
		}
		if n > 0 && (len(got.Endpoints) == 0 || got.Endpoints[0].Number != 0) {
			t.Errorf("%d: endpoints %+v", n, got.Endpoints)
		}
		if got.Calls[0].Op != "barrier" || got.Calls[1].Op != "accept" {
			t.Errorf("%d: first calls %+v", n, got.Calls[:2])
		}
		if !slices.Equal(told.Calls, before) {
			t.Error("the calls were put into another order in the caller's list")
		}
	}
	endless := Testimony{Calls: []Call{{Op: strings.Repeat("x", shm.TestimonySize)}}}
	if _, err := Read(endless.Bytes()); err != nil {
		t.Error(err)
	}
}

// Whatever somebody tells becomes an error, or lines of a length that can be shown.
func TestLies(t *testing.T) {
	for _, text := range []string{"", "{", "[]", "null x", `{"c": 1}`, `{"c": [{"r": -1}]}`, `{"e": [{"n": 1e99}]}`} {
		if got, err := Read([]byte(text)); err == nil {
			t.Errorf("%q: %+v, want an error", text, got)
		}
	}
	got, err := Read([]byte(`{"o": -7, "c": [` + strings.Repeat(`{"op":"a\u001b[2Jb\nc"},`, 999) + `{}], "q": [` + strings.Repeat(`{},`, 999) + `{}],
		"e": [` + strings.Repeat(`{},`, 999) + `{}]}`))
	if err != nil || len(got.Calls) != mostCalls || len(got.Endpoints) != mostEndpoints || len(got.Queues) != mostQueues || got.LeftOut != 0 {
		t.Errorf("%d calls, %d endpoints, %d queues, %d left out, %v", len(got.Calls), len(got.Endpoints), len(got.Queues), got.LeftOut, err)
	}
	if got.Calls[0].Op != "a?[2Jb?c" {
		t.Errorf("op %q", got.Calls[0].Op)
	}
	if got, err := Read([]byte(`{"c": [{"op": "` + strings.Repeat("x", 5000) + `"}]}`)); err != nil || len(got.Calls[0].Op) > longestLine {
		t.Errorf("%d bytes, %v", len(got.Calls[0].Op), err)
	}
}
