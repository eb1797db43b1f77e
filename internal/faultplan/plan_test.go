package faultplan

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/softnd/softnd/shm"
)

// rule returns a rule about Writes that change sets further.
func rule(change func(*Rule)) Rule {
	r := Rule{Operations: Write.Set(), Phase: uint32(Execute), Action: uint32(Drop), MaxSize: math.MaxUint64}
	change(&r)
	return r
}

var write = Event{Operation: Write, Phase: Execute, Peer: shm.NoRank, Endpoint: 1}

// firings returns at which of the first n events rule number 1 fires.
func firings(in *Injector, n int) (at []int) {
	for i := 1; i <= n; i++ {
		if _, ok := in.Next(write); ok {
			at = append(at, i)
		}
	}
	return at
}

func TestRuleSelectsOperations(t *testing.T) {
	for _, tc := range []struct {
		nth, every, times uint64
		want              []int
	}{
		{0, 0, 0, []int{1, 2, 3, 4, 5, 6, 7, 8, 9, 10}},
		{0, 0, 2, []int{1, 2}},
		{3, 0, 0, []int{3}},
		{1, 0, 5, []int{1}},
		{0, 1, 0, []int{1, 2, 3, 4, 5, 6, 7, 8, 9, 10}},
		{0, 3, 0, []int{3, 6, 9}},
		{2, 3, 0, []int{2, 5, 8}},
		{5, 2, 2, []int{5, 7}},
		{11, 0, 0, nil},
		{0, 11, 0, nil},
	} {
		p := New([]Rule{rule(func(r *Rule) { r.Nth, r.Every, r.Times = tc.nth, tc.every, tc.times })})
		for rank := range 2 { // each rank counts for itself
			if got := firings(p.For(rank), 10); !slices.Equal(got, tc.want) {
				t.Errorf("nth %d every %d times %d, rank %d: %v, want %v", tc.nth, tc.every, tc.times, rank, got, tc.want)
			}
		}
		if matched, fired := p.Counts(0); matched != 20 || fired != uint64(2*len(tc.want)) {
			t.Errorf("counted %d and %d", matched, fired)
		}
	}
}

func TestRuleDescribesOperations(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*Rule)
		event  func(*Event)
		want   bool
	}{
		"same":          {func(*Rule) {}, func(*Event) {}, true},
		"operation":     {func(*Rule) {}, func(e *Event) { e.Operation = Read }, false},
		"phase":         {func(*Rule) {}, func(e *Event) { e.Phase = Post }, false},
		"endpoint":      {func(r *Rule) { r.Endpoint = 2 }, func(e *Event) { e.Endpoint = 2 }, true},
		"not endpoint":  {func(r *Rule) { r.Endpoint = 2 }, func(e *Event) { e.Endpoint = 1 }, false},
		"drop":          {func(*Rule) {}, func(e *Event) { e.Endpoint = 0 }, false},
		"overrun":       {func(r *Rule) { r.Action = uint32(Overrun) }, func(e *Event) { e.Endpoint = 0 }, false},
		"kill":          {func(r *Rule) { r.Action = uint32(Kill) }, func(e *Event) { e.Endpoint = 0 }, true},
		"window":        {func(r *Rule) { r.Window = 2 }, func(e *Event) { e.Window = 2 }, true},
		"not window":    {func(r *Rule) { r.Window = 2 }, func(*Event) {}, false},
		"peer":          {func(r *Rule) { r.Peers.Add(1023) }, func(e *Event) { e.Peer = 1023 }, true},
		"not peer":      {func(r *Rule) { r.Peers.Add(1023) }, func(e *Event) { e.Peer = 1 }, false},
		"no peer":       {func(r *Rule) { r.Peers.Add(0) }, func(*Event) {}, false},
		"smallest":      {func(r *Rule) { r.MinSize = 8 }, func(e *Event) { e.Size = 8 }, true},
		"smaller":       {func(r *Rule) { r.MinSize = 8 }, func(e *Event) { e.Size = 7 }, false},
		"largest":       {func(r *Rule) { r.MaxSize = 8 }, func(e *Event) { e.Size = 8 }, true},
		"larger":        {func(r *Rule) { r.MaxSize = 8 }, func(e *Event) { e.Size = 9 }, false},
		"rank of peers": {func(r *Rule) { r.Peers.Add(0) }, func(e *Event) { e.Peer = 4000 }, false},
	} {
		e := write
		tc.event(&e)
		if _, ok := New([]Rule{rule(tc.change)}).For(0).Next(e); ok != tc.want {
			t.Errorf("%s: %v", name, ok)
		}
	}
	ranked := New([]Rule{rule(func(r *Rule) { r.Ranks.Add(64) })})
	for rank, want := range map[int]bool{64: true, 0: false, 65: false, shm.NoRank: false, 5000: false} {
		if got := ranked.For(rank) != nil; got != want {
			t.Errorf("rank %d: %v", rank, got)
		}
	}
}

// The first rule that is due acts. The others count the operation, but do not act.
func TestFirstDueRuleActs(t *testing.T) {
	p := New([]Rule{rule(func(r *Rule) { r.Nth = 2 }), rule(func(r *Rule) { r.Every = 2 })})
	in := p.For(0)
	var numbers []int
	for range 4 {
		f, _ := in.Next(write)
		numbers = append(numbers, f.Number)
	}
	if !slices.Equal(numbers, []int{0, 1, 0, 2}) {
		t.Errorf("rules %v have acted", numbers)
	}
}

func TestDrawnRules(t *testing.T) {
	drawn := func(seed uint64, rank int) []int {
		p := New([]Rule{rule(func(r *Rule) { r.Threshold, r.Seed = 1<<62, seed })}) // a quarter
		return firings(p.For(rank), 4000)
	}
	first := drawn(1, 0)
	if n := len(first); n < 800 || n > 1200 {
		t.Errorf("%d of 4000, want about 1000", n)
	}
	if !slices.Equal(drawn(1, 0), first) {
		t.Error("the same seed draws other numbers")
	}
	if slices.Equal(drawn(2, 0), first) || slices.Equal(drawn(1, 1), first) {
		t.Error("another seed, or another rank, draws the same numbers")
	}
	random := rule(func(r *Rule) { r.Threshold, r.Seed = 1<<62, 1 })
	in, acted := New([]Rule{random, random}).For(0), map[int]bool{}
	for range 100 {
		f, _ := in.Next(write)
		acted[f.Number] = true
	}
	if !acted[1] || !acted[2] {
		t.Errorf("of two rules that are alike, %v have acted: the second draws the same numbers", acted)
	}
}

// Decisions use private counters. A peer that overwrites those in the arena changes the report only.
func TestPeersCannotChangeDecisions(t *testing.T) {
	p := New([]Rule{rule(func(r *Rule) { r.Nth, r.Times = 3, 1 })})
	records := make([]Record, 1)
	p.Store(records)
	loaded, err := Load(records, Digest(p.Rules()))
	if err != nil {
		t.Fatal(err)
	}
	in := loaded.For(0)
	in.Next(write)
	records[0].Matched.Store(77)
	records[0].Fired.Store(5)
	records[0].Rule = rule(func(r *Rule) { r.Action = uint32(Kill) })
	in.Next(write)
	if f, ok := in.Next(write); !ok || f.Action != uint32(Drop) {
		t.Error("the third operation does not meet the rule")
	}
	if matched, fired := p.Counts(0); matched != 79 || fired != 6 {
		t.Errorf("counted %d and %d", matched, fired)
	}
}

func TestLoadRefusesChangedRules(t *testing.T) {
	p := New([]Rule{rule(func(*Rule) {}), rule(func(r *Rule) { r.Nth = 2; copy(r.Name[:], "second") })})
	digest := Digest(p.Rules())
	for name, change := range map[string]func(*Rule){
		"action": func(r *Rule) { r.Action = uint32(Kill) }, "rank": func(r *Rule) { r.Ranks.Add(7) },
		"name": func(r *Rule) { r.Name[0] = 'S' }, "reserved": func(r *Rule) { r.reserved[1] = 1 }, "seed": func(r *Rule) { r.Seed++ },
	} {
		records := make([]Record, 2)
		p.Store(records)
		if _, err := Load(records, digest); err != nil {
			t.Fatal(err)
		}
		change(&records[1].Rule)
		if _, err := Load(records, digest); err == nil || !strings.Contains(err.Error(), "a process has changed them") {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := Load(records[:1], digest); err == nil {
			t.Errorf("%s: a rule is missing, and Load succeeds", name)
		}
	}
	for name, change := range map[string]func(*Rule){
		"operations": func(r *Rule) { r.Operations = 1 << operationEnd }, "action": func(r *Rule) { r.Action = uint32(actionEnd) },
		"phase": func(r *Rule) { r.Phase = 0 }, "reserved": func(r *Rule) { r.reserved[0] = 1 }, `name "\xff"`: func(r *Rule) { r.Name[0] = 0xff },
	} {
		records := []Record{{Rule: rule(change)}}
		if _, err := Load(records, Digest([]Rule{records[0].Rule})); err == nil || !strings.Contains(err.Error(), "fault rule 1: unknown "+name) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestWindowNumbers(t *testing.T) {
	in := New([]Rule{rule(func(r *Rule) { r.Window = 1 })}).For(0)
	if !in.UsesWindows() || New([]Rule{rule(func(*Rule) {})}).For(0).UsesWindows() {
		t.Error("UsesWindows is wrong")
	}
	w, v := new(int), new(int)
	var got []uint64
	for _, named := range []struct {
		token  uint32
		window any
	}{{7, nil}, {9, nil}, {7, nil}, {0, w}, {0, v}, {0, w}, {0, nil}, {9, w}} {
		got = append(got, in.WindowNumber(named.token, named.window))
	}
	if want := []uint64{1, 2, 1, 1, 2, 1, 0, 2}; !slices.Equal(got, want) {
		t.Errorf("numbers %v, want %v", got, want)
	}
}

// Goroutines of a rank share its counters: each operation has a number of its own.
func TestNextIsSafeForConcurrentUse(t *testing.T) {
	const each = 1000
	p := New([]Rule{rule(func(r *Rule) { r.Every = 10 })})
	in := p.For(0)
	var wait sync.WaitGroup
	for range 4 {
		wait.Go(func() {
			for range each {
				in.Next(write)
			}
		})
	}
	wait.Wait()
	if matched, fired := p.Counts(0); matched != 4*each || fired != 4*each/10 {
		t.Errorf("counted %d and %d", matched, fired)
	}
}

func TestFiredNamesTheRule(t *testing.T) {
	r := rule(func(r *Rule) { copy(r.Name[:], strings.Repeat("x", 64)) })
	for want, f := range map[string]Fired{"fault rule 3": {new(rule(func(*Rule) {})), 3}, "fault rule 1 (" + strings.Repeat("x", 64) + ")": {&r, 1}} {
		if got := fmt.Sprint(f); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// FuzzLoad plays a launcher of another version, or a peer that knows the digest.
func FuzzLoad(f *testing.F) {
	seed := rule(func(r *Rule) { r.Nth = 2 })
	var b bytes.Buffer
	if err := binary.Write(&b, binary.LittleEndian, &seed); err != nil {
		f.Fatal(err)
	}
	f.Add(b.Bytes(), uint8(Write), uint64(8))
	f.Fuzz(func(_ *testing.T, words []byte, operation uint8, size uint64) {
		fields := make([]byte, binary.Size(Rule{}))
		copy(fields, words)
		records := make([]Record, 1)
		records[0].Rule = parse(fields)
		p, err := Load(records, Digest([]Rule{records[0].Rule}))
		if err != nil {
			return
		}
		for _, rank := range []int{shm.NoRank, 0, 1023} {
			if in := p.For(rank); in != nil {
				for range 4 {
					if fired, ok := in.Next(Event{Operation: Operation(operation), Phase: Phase(p.rules[0].Phase), Size: size}); ok {
						_ = fired.String()
					}
				}
			}
		}
	})
}

// parse reads the exported fields of a rule from bytes.
func parse(b []byte) (r Rule) {
	word := func() (w uint64) { w, b = binary.LittleEndian.Uint64(b), b[8:]; return w }
	half := func() (h uint32) { h, b = binary.LittleEndian.Uint32(b), b[4:]; return h }
	for _, w := range []*uint64{&r.Operations, &r.Endpoint, &r.Window, &r.MinSize, &r.MaxSize, &r.Nth, &r.Every, &r.Threshold, &r.Times, &r.Seed, &r.After, &r.Delay, &r.Offset} {
		*w = word()
	}
	for _, h := range []*uint32{&r.Status, &r.Phase, &r.Action, &r.Flip, &r.reserved[0], &r.reserved[1]} {
		*h = half()
	}
	for _, s := range []*Set{&r.Ranks, &r.Peers} {
		for i := range s {
			s[i] = word()
		}
	}
	copy(r.Name[:], b)
	return r
}
