package main

import (
	"bytes"
	"encoding/binary"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/softnd/softnd/nd"
)

func TestParse(t *testing.T) {
	for _, tc := range []struct {
		args, wrong string // part of the error, none if empty
	}{
		{"", ""},
		{"-seconds 0.5 -min 65536 -max 1048576 -seed 7 -private", ""},
		{"-seconds 0", "want more than 0"},
		{"-seconds NaN", "want more than 0"},
		{"-min 0", "-min at most -max"},
		{"-min 100 -max 99", "-min at most -max"},
		{"-max 1000000000", "-min at most -max"},
		{"-minimum 3", "-h lists the flags"},
		{"5", `"5" is not a flag`},
	} {
		_, err := parse(strings.Fields(tc.args))
		switch {
		case tc.wrong == "" && err != nil:
			t.Errorf("%q: %v", tc.args, err)
		case tc.wrong != "" && (err == nil || !strings.Contains(err.Error(), tc.wrong)):
			t.Errorf("%q: error %v, want one with %q", tc.args, err, tc.wrong)
		}
	}
	var help helpRequested
	if _, err := parse([]string{"-h"}); !errors.As(err, &help) || !strings.Contains(help.text, "-private") {
		t.Errorf("-h: %v", err)
	}
}

func TestPatternWordsDiffer(t *testing.T) {
	pattern := newPattern(3, 100)
	seen := map[uint64]bool{}
	for i := 0; i+8 <= len(pattern); i += 8 {
		word := binary.NativeEndian.Uint64(pattern[i:])
		if seen[word] {
			t.Fatalf("the word at %d is not the first of its kind", i)
		}
		seen[word] = true
	}
}

func TestPlanRepeatsAndKeepsItsLimits(t *testing.T) {
	set := settings{min: 1000, max: 5000, seed: 9}
	pattern := newPattern(set.seed, set.max)
	a, b, other := newPlan(set, 1, 4), newPlan(set, 1, 4), newPlan(set, 2, 4)
	last, same := -1, true
	smallest, largest := set.max, set.min
	for range 10000 {
		x, y := a.next(), b.next()
		if x != y {
			t.Fatal("two plans from one seed differ")
		}
		same = same && x == other.next()
		if x.from == last {
			t.Fatal("two neighbours start at the same place")
		}
		last = x.from
		smallest, largest = min(smallest, x.size), max(largest, x.size)
		x.of(pattern) // panics out of range
	}
	if smallest != set.min || largest != set.max {
		t.Errorf("sizes go from %d to %d instead of from %d to %d", smallest, largest, set.min, set.max)
	}
	if same {
		t.Error("two writers have one plan")
	}
}

func TestMessages(t *testing.T) {
	slot := make([]byte, slotSize)
	for _, last := range []bool{false, true} {
		want := access{nd.WindowDescriptor{Address: 1 << 40, Length: 77, Token: 0xfffffffe}, 1 << 33, last}
		copy(slot, want.encode())
		got, err := decodeAccess(slot)
		if err != nil || got != want {
			t.Errorf("%+v arrives as %+v, %v", want, got, err)
		}
	}
	copy(slot, report{3, 1 << 50}.encode())
	if got := decodeReport(slot); got != (report{3, 1 << 50}) {
		t.Errorf("a report arrives as %+v", got)
	}
}

func TestWatchSeesEveryByte(t *testing.T) {
	for _, size := range []int{1, 100, stretch, 3*stretch + 17} {
		mem := bytes.Repeat([]byte{5}, size)
		w := newWatch(mem)
		w.record()
		if n := w.changed(); n != 0 {
			t.Errorf("%d bytes of %d changed by themselves", n, size)
		}
		for _, at := range []int{0, size / 2, size - 1} {
			mem[at] ^= 0x10
			if n := w.changed(); n != 1 {
				t.Errorf("%d bytes changed, not 1, after byte %d of %d did", n, at, size)
			}
			mem[at] ^= 0x10
		}
	}
}

// A change between the samples and the copy of the rest is counted too.
func TestWatchPrefersTheSamples(t *testing.T) {
	mem := make([]byte, 2*stretch)
	w := newWatch(mem)
	w.sample()
	mem[len(mem)-1] = 9
	w.copy()
	if n := w.changed(); n != 1 {
		t.Errorf("%d bytes changed, want 1", n)
	}
}

func TestExplain(t *testing.T) {
	const size = 200 << 10
	pattern := newPattern(1, size)
	done := []transfer{{64, 150 << 10}, {640, 9000}, {128, 90 << 10}, {6400, 70000}}
	failed := transfer{64000, 100 << 10}
	// place makes the memory that these transfers leave, the failed one up to cut.
	place := func(done []transfer, cut int) []byte {
		mem := make([]byte, size)
		for _, x := range done {
			copy(mem, x.of(pattern))
		}
		copy(mem[:cut], failed.of(pattern))
		return mem
	}
	for _, tc := range []struct {
		name  string
		mem   []byte
		done  []transfer
		begun bool
		wrong int
	}{
		{"cut in the middle", place(done, 5000), done, true, 0},
		{"cut beyond the longest recent one", place(done, 80<<10), done, true, 0},
		{"complete, yet failed", place(done, failed.size), done, true, 0},
		{"not begun", place(done, 0), done, false, 0},
		{"first transfer refused", place(nil, 0), nil, false, 0},
		{"first transfer cut", place(nil, 1), nil, true, 0},
	} {
		if begun, wrong := explain(tc.mem, pattern, tc.done, failed); begun != tc.begun || wrong != tc.wrong {
			t.Errorf("%s: begun %v, %d wrong bytes", tc.name, begun, wrong)
		}
	}

	foreign := place(done, 5000)
	for _, at := range []int{0, 4999, 5000, 95 << 10, 120 << 10, 150 << 10, size - 1} {
		foreign[at] ^= 0xff
		if _, wrong := explain(foreign, pattern, done, failed); wrong != 1 {
			t.Errorf("a foreign byte at %d: %d wrong bytes", at, wrong)
		}
		foreign[at] ^= 0xff
	}

	// A transfer reported as done, of which the end is missing.
	short := place(done[:1], 0)
	clear(short[140<<10:])
	if _, wrong := explain(short, pattern, done[:1], transfer{640, 100}); wrong < 9<<10 {
		t.Errorf("10 KiB of a transfer are missing: only %d wrong bytes", wrong)
	}
}

func TestTallyErr(t *testing.T) {
	for _, tc := range []struct {
		tally tally
		wrong string
	}{
		{tally{inFlight: 1}, ""},
		{tally{inFlight: 1, late: 2}, "2 bytes changed after"},
		{tally{inFlight: 1, wrong: 3}, "3 bytes are not those"},
		{tally{refused: 4}, "no transfer failed in flight"},
	} {
		err := tc.tally.err()
		if tc.wrong == "" && err != nil || tc.wrong != "" && (err == nil || !strings.Contains(err.Error(), tc.wrong)) {
			t.Errorf("%+v: %v", tc.tally, err)
		}
	}
	var total tally
	total.add(tally{1, 2, 3, 4, 5, 6, 7 << 30, 8, 9})
	total.add(tally{1, 0, 0, 0, 0, 0, 0, 0, 0})
	const want = "revoke: in 1.5 s 2 windows bound and invalidated: 3 transfers (7 GiB) succeeded, " +
		"4 failed in flight, 5 were refused, 6 cancelled; 8 bytes changed after an invalidation completed " +
		"(2 windows were invalidated by closing them); 9 bytes are not those of the transfers reported"
	if got := total.text(1500 * time.Millisecond); got != want {
		t.Errorf("the report is\n%s\nand should be\n%s", got, want)
	}
}
