package window

import (
	"bytes"
	"math"
	"testing"

	"github.com/softnd/softnd/nd"
	"github.com/softnd/softnd/shm"
)

// fastPath is an executor with local tokens of every kind, for tests of the fast path. The memory that it has registered is
// the middle of plain.
type fastPath struct {
	*side
	plain      []byte
	registered []byte
	tokens     []nd.Token // indexed by the constants below
	words      int        // Writes of one word that putWord has made
}

const (
	fullToken     = iota // reads and writes
	readOnlyToken        // may not be a sink
	remoteToken          // the remote token of the first region, which is no local token
	windowToken          // a remote token as well
	foreignToken         // of another adapter of the process
	staleToken           // of a registration that has ended
	noToken
)

var tokenNames = [...]string{"full", "read only", "remote", "window", "foreign", "stale", "none"}

func newFastPath(t testing.TB, s *side) *fastPath {
	t.Helper()
	d := &fastPath{side: s, plain: make([]byte, 3*ChunkSize)}
	d.registered = d.plain[ChunkSize : 2*ChunkSize]
	full := s.region(t, d.registered, allRights)
	readOnly, again := s.region(t, d.registered, nd.AllowRemoteRead), s.region(t, d.registered, allRights)
	stale, _ := again.Tokens()
	s.guard.CanDeliverSend(shm.AddressOf(d.registered), stale, 1) // the guard has it cached when it becomes invalid
	deregister(t, again)
	if err := again.Register(d.registered, allRights, nil); err != nil {
		t.Fatal(err)
	}
	elsewhere := &side{arena: s.arena, member: s.member, table: s.table, domain: NewDomain(s.table, s.domain.Adapter+1)}
	local, remote := full.Tokens()
	only, _ := readOnly.Tokens()
	foreign, _ := elsewhere.region(t, d.registered, allRights).Tokens()
	d.tokens = []nd.Token{local, only, remote, bind(t, s.window(t), full, d.registered, Read|Write, 7, false), foreign, stale, 0}
	return d
}

// near returns the operand for memory of the executor.
func near(token nd.Token, rights Rights, address uint64) *Operand {
	return &Operand{Token: token, Rights: Local | rights, Address: address}
}

// allows reports whether Copy copies all of n bytes, and checks that Check agrees.
func (d *fastPath) allows(t testing.TB, sink, source *Operand, n uint64) bool {
	t.Helper()
	check := d.guard.Check(sink, n)|d.guard.Check(source, n) == NoFault
	moved, f, g := d.guard.Copy(sink, source, n)
	if copied := f|g == NoFault; copied != check || copied != (moved == n) {
		t.Fatalf("Copy: moved %d of %d, %v, %v; Check: %v", moved, n, f, g, check)
	}
	return check
}

// idle checks that the hazards are clear.
func (d *fastPath) idle(t testing.TB, after string) {
	t.Helper()
	if d.hazard.Load() != 0 || d.guard.privateHazard.Load() != 0 {
		t.Fatalf("%s leaves the hazards %#x and %#x behind", after, d.hazard.Load(), d.guard.privateHazard.Load())
	}
}

// across checks that Put and Get succeed exactly when Copy does, and copy the same bytes. there is the peer's memory if one
// of them should succeed; buf is the executor's.
func (d *fastPath) across(t testing.TB, to *FarEnd, remote nd.Token, address uint64, local nd.Token, buf, there []byte) (put, get bool) {
	t.Helper()
	n, at := uint64(len(buf)), shm.AddressOf(buf)
	saved := bytes.Clone(there)
	defer copy(there, saved)
	for _, write := range []bool{true, false} {
		name, run, sink, source := "Put", d.guard.Put, remoteOperand(to, remote, Write, address), near(local, Read, at)
		into, from := there, buf
		if !write {
			name, run, sink, source = "Get", d.guard.Get, near(local, Write, at), remoteOperand(to, remote, Read, address)
			into, from = buf, there
		}
		want := d.allows(t, sink, source, n) && d.isWhole(remote)
		fill(into, 0x33)
		copy(from, pattern(len(from), 5))
		got := run(to, &nd.SGE{Buffer: buf, Token: local}, address, remote) == NoFault
		d.idle(t, name)
		switch {
		case got != want:
			t.Fatalf("%s of %d bytes: %v, Copy: %v", name, n, got, want)
		case got && !bytes.Equal(into, pattern(len(into), 5)):
			t.Fatalf("%s of %d bytes has brought something else", name, n)
		case !got && !only(into, 0x33):
			t.Fatalf("a refused %s of %d bytes has written", name, n)
		}
		if write {
			put = got
			if n == 8 {
				d.word(t, want, to, remote, address, local, buf, into)
			}
		} else {
			get = got
		}
	}
	return put, get
}

// word checks that the steps for one word succeed only if Put has, and write then what it has.
func (d *fastPath) word(t testing.TB, allowed bool, to *FarEnd, remote nd.Token, address uint64, local nd.Token, buf, into []byte) {
	t.Helper()
	before := bytes.Clone(into)
	copy(buf, pattern(8, 6))
	done := d.putWord(to, remote, address, local, buf)
	d.idle(t, "PutWord")
	switch {
	case done && !allowed:
		t.Fatal("PutWord writes where Put does not")
	case done && !bytes.Equal(into, pattern(8, 6)):
		t.Fatal("PutWord has brought something else")
	case !done && !bytes.Equal(into, before):
		t.Fatal("a refused PutWord has written")
	case done:
		d.words++
	}
}

// putWord takes the steps of queuePair.Write of package endpoint.
func (d *fastPath) putWord(to *FarEnd, remote nd.Token, address uint64, local nd.Token, source []byte) bool {
	g, bind := d.guard, to.Known(remote)
	if address%8 != 0 || !bind.HasWord(remote, address) || !g.HasSource(local, shm.AddressOf(source)) {
		return false
	}
	p, isSame := g.Begin(remote, local)
	done := false
	if p != nil && isSame && bind.IsPresent() && to.IsOpen() {
		bind.PutWord(address, source)
		done = bind.IsPresent()
	}
	return g.End(p, done)
}

// isWhole reports whether all memory that the entry of a token names is in the heap. If a lie makes it longer, Put and Get leave the
// request to Copy, which checks the bytes of the request alone.
func (d *fastPath) isWhole(token nd.Token) bool {
	e := d.entry(token)
	return d.arena.HeapBytes(shm.Offset(e.offset.Load()), e.length.Load()) != nil
}

// here checks that CopyToEntry, DeliverSend and CanDeliverSend succeed exactly when Copy does. DeliverSend starts at an
// address, CopyToEntry at buf.
func (d *fastPath) here(t testing.TB, local nd.Token, address, n uint64, buf []byte) (taken, delivered bool) {
	t.Helper()
	defer fill(d.plain, 0)
	if got, want := d.guard.CanDeliverSend(address, local, n), d.guard.Check(near(local, Write, address), n) == NoFault; got != want {
		t.Fatalf("CanDeliverSend of %d bytes at %#x: %v, Check: %v", n, address, got, want)
	}
	out, from := make([]byte, len(buf)+9), pattern(len(buf), 9)
	want := d.allows(t, &Operand{Mem: out}, near(local, Read, shm.AddressOf(buf)), uint64(len(buf)))
	fill(out, 0x33)
	copy(buf, from)
	taken = d.guard.CopyToEntry(out, &nd.SGE{Buffer: buf, Token: local})
	d.idle(t, "CopyToEntry")
	switch {
	case taken != want:
		t.Fatalf("CopyToEntry of %d bytes: %v, Copy: %v", len(buf), taken, want)
	case taken && (!bytes.Equal(out[:len(buf)], from) || !only(out[len(buf):], 0x33)):
		t.Fatalf("CopyToEntry of %d bytes has brought something else", len(buf))
	case !taken && !only(out, 0x33):
		t.Fatalf("a refused CopyToEntry of %d bytes has written", len(buf))
	}

	want = d.allows(t, near(local, Write, address), &Operand{Mem: from}, uint64(len(from)))
	fill(d.plain, 0x33)
	delivered = d.guard.DeliverSend(address, local, from)
	d.idle(t, "DeliverSend")
	if delivered != want {
		t.Fatalf("DeliverSend of %d bytes at %#x: %v, Copy: %v", len(from), address, delivered, want)
	}
	if !delivered {
		if !only(d.plain, 0x33) {
			t.Fatal("a refused DeliverSend has written")
		}
		return taken, delivered
	}
	off := address - shm.AddressOf(d.plain)
	if !bytes.Equal(d.plain[off:][:len(from)], from) || !only(d.plain[:off], 0x33) || !only(d.plain[off+uint64(len(from)):], 0x33) {
		t.Fatalf("DeliverSend of %d bytes has written something else", len(from))
	}
	return taken, delivered
}

func TestPutAndGetCheckAccess(t *testing.T) {
	const base = math.MaxUint64 - 4095 // the last address of the memory is the last of all
	owner, executor, _ := pair(t)
	d := newFastPath(t, executor)
	mem := owner.alloc(t, 3*4096)[4096:][:4096]
	private := make([]byte, 4096)
	var ends counter
	register := func(mem []byte, address uint64, flags nd.RegionFlags) nd.Token {
		r := owner.fastRegion(t)
		if !r.PrepareFastRegister(mem, address, flags, 7, ends.ended).Apply() {
			t.Fatal("it does not run")
		}
		_, remote := r.Tokens()
		return remote
	}
	both := register(mem, base, allRights)
	toRead, toWrite := register(mem, base, nd.AllowRemoteRead), register(mem, base, nd.AllowRemoteWrite)
	nothing, hidden := register(mem, base, nd.AllowLocalWrite), register(private, base, allRights)
	region := owner.region(t, mem, allRights)
	local, remote := region.Tokens()
	scoped := bind(t, owner.window(t), region, mem, Read|Write, 7, true)
	gone := owner.window(t)
	revoked := bind(t, gone, region, mem, Read|Write, 7, false)
	invalidate(t, &gone.Invalidatable)
	link := func(endpoint uint64, state, left uint32) *FarEnd {
		to := owner.farEnd(endpoint)
		to.State.Store(state)
		to.Disconnected.Store(left)
		return to
	}
	open, stranger := owner.farEnd(7), owner.farEnd(7)
	stranger.Adapter++
	at := shm.AddressOf(mem)
	for name, c := range map[string]struct {
		to        *FarEnd
		remote    nd.Token
		address   uint64
		local     int
		from, end int // of the executor's memory, relative to the registered part
		put, get  bool
	}{
		"a word":                         {open, both, base, fullToken, 0, 8, true, true},
		"a byte":                         {open, both, base + 3, fullToken, 5, 6, true, true},
		"odd":                            {open, both, base + 3, fullToken, 5, 52, true, true},
		"to the last address":            {open, both, base + 4088, fullToken, 0, 8, true, true},
		"all of it":                      {open, both, base, fullToken, ChunkSize - 4096, ChunkSize, true, true},
		"a byte beyond the last address": {open, both, base + 4089, fullToken, 0, 8, false, false},
		"to far beyond it":               {open, both, base + 1, fullToken, 0, ChunkSize, false, false},
		"a byte before it":               {open, both, base - 1, fullToken, 0, 8, false, false},
		"at 0":                           {open, both, 0, fullToken, 0, 8, false, false},
		"to read":                        {open, toRead, base, fullToken, 0, 8, false, true},
		"to write":                       {open, toWrite, base, fullToken, 0, 8, true, false},
		"no right":                       {open, nothing, base, fullToken, 0, 8, false, false},
		"private memory":                 {open, hidden, base, fullToken, 0, 8, false, false},
		"token of a registration":        {open, remote, at, fullToken, 0, 8, true, true},
		"local token":                    {open, local, at, fullToken, 0, 8, false, false},
		"revoked":                        {open, revoked, at, fullToken, 0, 8, false, false},
		"another tag":                    {open, both ^ 1<<indexBits, base, fullToken, 0, 8, false, false},
		"another index":                  {open, both ^ 1<<10, base, fullToken, 0, 8, false, false},
		"no token":                       {open, 0, base, fullToken, 0, 8, false, false},
		"our own token":                  {open, d.tokens[remoteToken], shm.AddressOf(d.registered), fullToken, 0, 8, false, false},
		"its connection":                 {open, scoped, at, fullToken, 0, 8, true, true},
		"another connection":             {owner.farEnd(8), scoped, at, fullToken, 0, 8, false, false},
		"another adapter":                {stranger, both, base, fullToken, 0, 8, false, false},
		"aborted":                        {link(7, established+1, 0), both, base, fullToken, 0, 8, false, false},
		"disconnected":                   {link(7, established, 1), both, base, fullToken, 0, 8, false, false},
		"read-only source":               {open, both, base, readOnlyToken, 0, 8, true, false},
		"remote token of ours":           {open, both, base, remoteToken, 0, 8, false, false},
		"window of ours":                 {open, both, base, windowToken, 0, 8, false, false},
		"token of our other adapter":     {open, both, base, foreignToken, 0, 8, false, false},
		"stale token of ours":            {open, both, base, staleToken, 0, 8, false, false},
		"no token of ours":               {open, both, base, noToken, 0, 8, false, false},
		"a byte before our memory":       {open, both, base, fullToken, -1, 7, false, false},
		"a byte after our memory":        {open, both, base, fullToken, ChunkSize - 7, ChunkSize + 1, false, false},
		"to the end of our memory":       {open, both, base, fullToken, ChunkSize - 8, ChunkSize, true, true},
	} {
		t.Run(name, func(t *testing.T) {
			buf := d.plain[ChunkSize+c.from : ChunkSize+c.end]
			var there []byte
			if c.put || c.get {
				off := c.address - base
				if c.remote == remote || c.remote == scoped {
					off = c.address - at
				}
				there = mem[off:][:len(buf)]
			}
			before := bytes.Clone(mem)
			put, get := d.across(t, c.to, c.remote, c.address, d.tokens[c.local], buf, there)
			if put != c.put || get != c.get {
				t.Errorf("Put %v, Get %v; want %v, %v", put, get, c.put, c.get)
			}
			if !bytes.Equal(mem, before) {
				t.Error("other memory of the peer has changed")
			}
		})
	}
	if d.words == 0 {
		t.Error("PutWord has written nothing")
	}
	if f := executor.guard.Put(open, &nd.SGE{Buffer: d.registered[:8], Token: d.tokens[fullToken]}, base, hidden); f != FaultUnreachable {
		t.Errorf("Put to private memory: %v", f)
	}
}

func TestEntryCopiesCheckAccess(t *testing.T) {
	d := newFastPath(t, join(t, newArena(t)))
	at := shm.AddressOf(d.registered)
	for local, name := range tokenNames {
		t.Run(name, func(t *testing.T) {
			reads, writes := local == fullToken || local == readOnlyToken, local == fullToken
			for _, c := range []struct {
				from, to int
				inside   bool
			}{
				{0, 8, true}, {0, ChunkSize, true}, {5, 6, true}, {ChunkSize - 8, ChunkSize, true}, {3, 50, true},
				{-1, 7, false}, {-8, 0, false}, {ChunkSize - 7, ChunkSize + 1, false}, {ChunkSize, ChunkSize + 1, false},
			} {
				buf := d.plain[ChunkSize+c.from : ChunkSize+c.to]
				taken, delivered := d.here(t, d.tokens[local], at+uint64(c.from), uint64(len(buf)), buf)
				if taken != (reads && c.inside) || delivered != (writes && c.inside) {
					t.Errorf("bytes %d to %d: CopyToEntry %v, DeliverSend %v", c.from, c.to, taken, delivered)
				}
			}
			for _, c := range []struct {
				address, n uint64
				inside     bool
			}{
				{at, ChunkSize, true}, {at, ChunkSize + 1, false}, {at + 1, ChunkSize, false}, {at, math.MaxUint64, false}, {at + 1, math.MaxUint64, false},
				{at + 1, -at, false}, {0, 8, false}, {math.MaxUint64, 1, false}, {math.MaxUint64, 2, false}, {math.MaxUint64, math.MaxUint64, false},
				{at + ChunkSize, 0, true}, {at + ChunkSize + 1, 0, false}, {at - 1, 0, false},
			} {
				if got := d.guard.CanDeliverSend(c.address, d.tokens[local], c.n); got != (writes && c.inside) {
					t.Errorf("CanDeliverSend %#x bytes at %d after the begin: %v", c.n, int64(c.address-at), got)
				}
			}
		})
	}
}

// FuzzFastPath has an owner that writes arbitrary words into its entries, and an executor that uses arbitrary operands.
func FuzzFastPath(f *testing.F) {
	a := newArena(f)
	owner, executor := join(f, a), join(f, a)
	owner.admit(f, executor)
	d := newFastPath(f, executor)
	mem := owner.alloc(f, 4096)
	remote := bind(f, owner.window(f), owner.region(f, mem, allRights), mem, Read|Write, 7, false)
	base, offset := shm.AddressOf(mem), uint64(owner.offsetOf(f, mem))
	block := indexOf(remote) / shm.WindowBlockEntries * shm.WindowBlockEntries
	entries, err := a.Bytes(a.Info().WindowTable+shm.Offset(block)*shm.WindowEntrySize, shm.WindowBlockEntries*shm.WindowEntrySize)
	if err != nil {
		f.Fatal(err)
	}
	const all = uint64(Remote|Read|Write) << 32
	f.Add(entryOf(all, base, 4096, offset), uint32(9), base, uint32(0), uint32(8), byte(fullToken), byte(makeValid|makeOurs))
	f.Add(entryOf(all, base, 4096, offset), uint32(9), uint64(5), uint32(ChunkSize), uint32(47), byte(readOnlyToken), byte(makeValid|makeOurs|makeScope|makeNear))
	f.Add(entryOf(all, math.MaxUint64-7, 8, offset), uint32(9), uint64(0), uint32(ChunkSize), uint32(8), byte(fullToken), byte(makeValid|makeOurs|makeNear))
	f.Add(entryOf(all, math.MaxUint64-7, 80, offset), uint32(9), uint64(8), uint32(ChunkSize), uint32(7), byte(fullToken), byte(makeValid|makeOurs|makeNear))
	f.Add(entryOf(all, math.MaxUint64-7, 80, 1<<40), uint32(1<<20|9), uint64(3), uint32(2*ChunkSize-8), uint32(9), byte(staleToken), byte(makeValid|makeOurs|makeNear|makeArena))
	f.Add(entryOf(all, base, math.MaxUint64, a.Info().Size-4), uint32(1<<20|9), uint64(0), uint32(ChunkSize), uint32(8), byte(fullToken), byte(makeValid|makeOurs|makeNear))
	f.Add(entryOf(all, base, 4096, offset), uint32(9), base, uint32(ChunkSize), uint32(8), byte(fullToken), byte(makeValid|makeOurs|disconnect))
	f.Add(entryOf(all, 0, math.MaxUint64), uint32(9), uint64(a.Info().HeapStart), uint32(ChunkSize), uint32(8), byte(fullToken), byte(makeValid|makeOurs))
	f.Add(entryOf(all|uint64(makeToken(block+9, 0)), base, 4096, offset), uint32(9), base, uint32(ChunkSize), uint32(8), byte(fullToken), byte(makeOurs))
	f.Add(bytes.Repeat([]byte{0xff}, 64), uint32(math.MaxUint32), uint64(math.MaxUint64), uint32(math.MaxUint32), uint32(math.MaxUint32), byte(255), byte(0))
	f.Add([]byte{}, uint32(0), uint64(0), uint32(0), uint32(0), byte(foreignToken), byte(abort))

	f.Fuzz(func(t *testing.T, raw []byte, number uint32, address uint64, at, length uint32, which, help byte) {
		token := makeToken(block+number%shm.WindowBlockEntries, number>>8)
		to := owner.farEnd(7)
		words, entry := helped(raw, token, number, a, to, help)
		local := nd.Token(address)
		if int(which) < len(d.tokens) {
			local = d.tokens[which]
		}
		buf := d.plain[at%(2*ChunkSize):][:1+length%ChunkSize]
		n := uint64(len(buf))
		d.here(t, local, address, uint64(number), buf)
		d.here(t, local, shm.AddressOf(d.plain)+address%(3*ChunkSize), uint64(number), buf)
		if help&makeNear != 0 {
			address = words[1] + address%8192
		}

		before := bytes.Clone(entries)
		defer copy(entries, before)
		copy(executor.raw(t, token), entry[:])
		there := d.memoryOf(t, to, token, address, n)
		if hazard, at := uint64(d.at), d.whereabouts(there); at < hazard+8 && hazard < at+n && there != nil {
			return // the hazard word changes during the copy
		}
		unchanged, lies := watchTables(t, a), bytes.Clone(entries)
		d.across(t, to, token, address, local, buf, there)
		fill(d.plain, 0)
		if !unchanged() || !bytes.Equal(entries, lies) {
			t.Error("the tables have changed")
		}
	})
}

// memoryOf returns the memory that a peer's token names, nil if there is none.
func (d *fastPath) memoryOf(t testing.TB, to *FarEnd, token nd.Token, address, n uint64) []byte {
	t.Helper()
	if d.guard.Check(remoteOperand(to, token, 0, address), n) != NoFault {
		return nil
	}
	e := d.entry(token)
	there, err := d.arena.Bytes(shm.Offset(e.offset.Load()+address-e.base.Load()), n)
	if err != nil {
		t.Fatal(err)
	}
	return there
}

func (d *fastPath) whereabouts(b []byte) uint64 {
	off, _ := d.arena.Locate(b)
	return uint64(off)
}
