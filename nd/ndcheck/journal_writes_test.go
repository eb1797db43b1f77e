package ndcheck

import "testing"

// A rank may have heard that an access is complete from a process that can know it.
func TestMayHaveHeard(t *testing.T) {
	const owner, poster, third, fourth = 0, 1, 2, 3
	for name, tc := range map[string]struct {
		of   access
		to   int // the rank that may have heard
		do   func(j *Journal)
		want bool
	}{
		"nothing":                    {access{write: true, rank: poster}, third, func(*Journal) {}, false},
		"a Write before":             {access{write: true, rank: poster}, third, func(j *Journal) { j.noteWrite(third, write{span{1, 8}, poster, 99, 200}) }, false},
		"a Write of its process":     {access{write: true, rank: poster}, third, func(j *Journal) { j.noteWrite(third, write{span{1, 8}, poster, 100, 100}) }, true},
		"a Write of the owner":       {access{write: true, rank: poster}, third, func(j *Journal) { j.noteWrite(third, write{span{1, 8}, owner, 101, 101}) }, true},
		"a Read, and its owner":      {access{rank: poster}, third, func(j *Journal) { j.noteWrite(third, write{span{1, 8}, owner, 101, 101}) }, false},
		"a Read, and its process":    {access{rank: poster}, third, func(j *Journal) { j.noteWrite(third, write{span{1, 8}, poster, 101, 101}) }, true},
		"another process":            {access{write: true, rank: poster}, third, func(j *Journal) { j.noteWrite(third, write{span{1, 8}, fourth, 101, 101}) }, false},
		"another process, with news": {access{write: true, rank: poster}, third, func(j *Journal) { j.learn(fourth, 100); j.noteWrite(third, write{span{1, 8}, fourth, 101, 101}) }, true},
		"another process, with old news": {access{write: true, rank: poster}, third, func(j *Journal) { j.learn(fourth, 99); j.noteWrite(third, write{span{1, 8}, fourth, 101, 101}) },
			false},
		"another process, written to": {access{write: true, rank: poster}, third, func(j *Journal) {
			j.noteWrite(fourth, write{span{1, 8}, owner, 100, 100})
			j.noteWrite(third, write{span{1, 8}, fourth, 101, 101})
		}, true},
		"another process, written to somewhere": {access{write: true, rank: poster}, third, func(j *Journal) { j.missWrite(fourth, 100); j.noteWrite(third, write{span{1, 8}, fourth, 101, 101}) }, true},
		"somewhere":                             {access{write: true, rank: poster}, third, func(j *Journal) { j.missWrite(third, 100) }, true},
		"somewhere before":                      {access{write: true, rank: poster}, third, func(j *Journal) { j.missWrite(third, 99) }, false},
		"its own Write elsewhere":               {access{rank: third}, third, func(j *Journal) { j.noteWrite(third, write{span{1, 8}, third, 101, 101}) }, false},
		"its own Write to its own":              {access{write: true, rank: third, owner: third}, third, func(j *Journal) { j.noteWrite(third, write{span{1, 8}, third, 100, 100}) }, true},
		"of the owner, own Write":               {access{write: true, rank: poster, owner: third}, third, func(j *Journal) { j.noteWrite(third, write{span{1, 8}, third, 101, 101}) }, false},
		"a rank that is impossible":             {access{write: true, rank: poster}, maxRanks, func(*Journal) {}, true},
	} {
		j := journalWith(t, nil)
		tc.of.posted = 100
		tc.do(j)
		if got := j.mayHaveHeard(tc.to, tc.of); got != tc.want {
			t.Errorf("%s: %v, want %v", name, got, tc.want)
		}
	}
}

// Bytes may have changed if a Write to them was in flight since a time.
func TestMayHaveChanged(t *testing.T) {
	j := journalWith(t, nil)
	j.noteWrite(0, write{span{100, 8}, 1, 50, 60})
	for _, tc := range []struct {
		rank  int
		since int64
		bytes []span
		want  bool
	}{
		{0, 60, []span{{107, 8}}, true},
		{0, 61, []span{{107, 8}}, false},
		{0, 60, []span{{108, 8}}, false},
		{0, 60, []span{{92, 8}}, false},
		{0, 60, []span{{92, 9}}, true},
		{0, 60, []span{{0, 8}, {100, 1}}, true},
		{1, 60, []span{{100, 8}}, false},
		{0, 60, nil, false},
	} {
		if got := j.mayHaveChanged(tc.rank, tc.since, tc.bytes); got != tc.want {
			t.Errorf("%+v: %v", tc, got)
		}
	}
	number, _ := j.open(access{write: true, rank: 1, owner: 0, address: 200, size: 8, posted: 50})
	if !j.mayHaveChanged(0, 1<<60, []span{{207, 1}}) {
		t.Error("a Write in flight is not known")
	}
	before := now()
	j.close(number)
	if !j.mayHaveChanged(0, before, []span{{207, 1}}) || j.mayHaveChanged(0, now()+1, []span{{207, 1}}) {
		t.Error("a Write is not known until its end only")
	}
	read, _ := j.open(access{rank: 1, owner: 0, address: 300, size: 8, posted: 50})
	if j.mayHaveChanged(0, 1, []span{{300, 8}}) {
		t.Error("a Read has changed bytes")
	}
	j.close(read)
	if j.mayHaveChanged(0, 1, []span{{300, 8}}) {
		t.Error("a Read has changed bytes at its end")
	}
}

// A message orders a Write before other accesses. Until its result, it may still change bytes.
func TestOrderedWrite(t *testing.T) {
	j := journalWith(t, nil)
	number, _ := j.open(access{write: true, rank: 1, owner: 0, address: 200, size: 8, posted: 50})
	j.order([]uint32{number})
	other, conflicts := j.open(access{write: true, rank: 2, owner: 0, address: 200, size: 8, posted: 60})
	if len(conflicts) != 0 || other == number {
		t.Errorf("access %d has conflicts %v, after the ordered access %d", other, conflicts, number)
	}
	j.close(other)
	if !j.mayHaveChanged(0, now()+1, []span{{207, 1}}) {
		t.Error("the ordered Write cannot change bytes")
	}
	j.close(number)
	if j.mayHaveChanged(0, now()+1, []span{{207, 1}}) {
		t.Error("the ordered Write can change bytes after its end")
	}
	number, _ = j.open(access{write: true, rank: 1, owner: 0, address: 200, size: 8, posted: 70})
	if _, conflicts = j.open(access{write: true, rank: 2, owner: 0, address: 200, size: 8, posted: 80}); len(conflicts) != 1 {
		t.Errorf("access %d in the place of an ordered one is ordered, too", number)
	}
}

// A Write that has no place in the table may change its bytes at any time.
func TestWriteWithoutPlace(t *testing.T) {
	j := journalWith(t, nil)
	var done uint32
	for i := range uint64(maxAccesses) {
		done, _ = j.open(access{rank: 1, owner: 1, address: 1000 + i, size: 1, posted: 50})
	}
	late := access{write: true, rank: 1, owner: 0, address: 200, size: 8, posted: 60}
	if number, _ := j.reopen(late, nil); number != 0 {
		t.Fatalf("there is place %d in a full table", number)
	}
	if !j.mayHaveChanged(0, now()+1, []span{{207, 1}}) || j.mayHaveChanged(0, now()+1, []span{{208, 1}}) {
		t.Error("the Write without a place can change other bytes than its own")
	}
	late.address = 300
	number, _ := j.reopen(late, []uint32{done})
	if j.close(number); number == 0 || j.mayHaveChanged(0, now()+1, []span{{300, 8}}) {
		t.Errorf("the Write with place %d has no end", number)
	}
}

// Writes to the same bytes need one record. If there are too many, the oldest may have been anywhere.
func TestManyWrites(t *testing.T) {
	j := journalWith(t, nil)
	const n = maxWrites
	for round := range int64(100) {
		for i := range uint64(n) {
			j.noteWrite(0, write{span{1000 * i, 8 + uint64(round)}, 1, 100*round + int64(i) + 1, 100*round + int64(i) + 1})
		}
	}
	if at := j.missedWrite(0); at != 0 {
		t.Fatalf("a Write of time %d is lost, although there is room", at)
	}
	last := int64(9900)
	if !j.mayHaveChanged(0, last+1, []span{{0, 1}}) || j.mayHaveChanged(0, last+2, []span{{0, 1}}) || !j.mayHaveChanged(0, last+n, []span{{1000 * (n - 1), 1}}) {
		t.Error("the records are not those of the last round")
	}
	j.noteWrite(0, write{span{1, 1}, 2, 1, 10}) // a part of the first record, of another rank: it takes the place of the first
	if at := j.missedWrite(0); at != last+1 {
		t.Errorf("the Write of time %d is lost, want the oldest, of %d", at, last+1)
	}
	if !j.mayHaveChanged(0, last+1, []span{{1 << 40, 1}}) || j.mayHaveChanged(0, last+2, []span{{1 << 40, 1}}) || j.mayHaveChanged(1, 1, []span{{0, 1 << 50}}) {
		t.Error("the lost Write was not anywhere")
	}
}
