package window

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"github.com/softnd/softnd/nd"
	"github.com/softnd/softnd/shm"
)

// meeting is an owner and one executor that copies the same chunk all the time,
// while a token that it needs comes to its end, again and again.
type meeting struct {
	t         *testing.T
	owner     *bindingOwner
	executor  *side
	to        *Peer
	far, here []byte // a chunk of the owner's, granted through its window; one of the executor's, registered
	region    *Region

	remote, local atomic.Uint32 // the tokens; stale between an end and the next begin
	stop          atomic.Bool
	tries         atomic.Uint64
	copier        sync.WaitGroup
}

func newMeeting(t *testing.T) *meeting {
	o := newBindingOwner(t)
	m := &meeting{t: t, owner: o, executor: join(t, o.arena), far: o.mem[:Chunk]}
	m.to = o.admit(t, m.executor)
	m.executor.space.Watch(m.executor.guard.Hazard())
	m.here = m.executor.alloc(t, Chunk)
	m.region = m.executor.region(t, m.here, nd.AllowLocalWrite)
	m.bind()
	m.name()
	return m
}

func (m *meeting) bind() {
	m.remote.Store(uint32(bind(m.t, m.owner.window, m.owner.region, m.far, Read|Write, 0, false)))
}

func (m *meeting) name() {
	local, _ := m.region.Tokens()
	m.local.Store(uint32(local))
}

// run lets the executor copy until the test ends.
func (m *meeting) run(copy func()) {
	m.copier.Go(func() {
		for !m.stop.Load() {
			copy()
			m.tries.Add(1)
		}
	})
	m.t.Cleanup(m.end) // before the sides leave
}

func (m *meeting) end() {
	m.stop.Store(true)
	m.copier.Wait()
}

// let passes some time, in which the executor begins a copy, or several.
func (m *meeting) let(most int) {
	for range m.owner.random.IntN(most) {
		_ = m.stop.Load()
	}
}

// invalidate ends the remote token. It returns whether nobody uses it, and what
// makes the next one.
func (m *meeting) invalidate() (drained func() bool, again func()) {
	o := m.owner
	token, ok := o.window.Invalidate(0)
	if !ok {
		m.t.Fatal("invalidate")
	}
	return func() bool { return o.space.Drained(token) }, func() { o.window.Release(); m.bind() }
}

// deregister does the same with the local one.
func (m *meeting) deregister() (drained func() bool, again func()) {
	s := m.executor.space
	local, remote, err := m.region.Revoke()
	if err != nil {
		m.t.Fatal(err)
	}
	return func() bool { return s.Drained(local) && s.Drained(remote) }, func() {
		m.region.Release()
		if err := m.region.Register(m.here, nd.AllowLocalWrite); err != nil {
			m.t.Fatal(err)
		}
		m.name()
	}
}

// disconnect ends the connection.
func (m *meeting) disconnect() (drained func() bool, again func()) {
	m.to.Link.State.Swap(linkOpen + 1)
	return func() bool { return m.executor.hazard.Load() == 0 }, func() { m.to.Link.State.Store(linkOpen) }
}

func (m *meeting) tokens() (remote, local nd.Token) {
	return nd.Token(m.remote.Load()), nd.Token(m.local.Load())
}

func (m *meeting) put() bool {
	remote, local := m.tokens()
	return m.executor.guard.Put(m.to, remote, shm.AddressOf(m.far), local, m.here)
}

func (m *meeting) get() bool {
	remote, local := m.tokens()
	return m.executor.guard.Get(m.to, remote, shm.AddressOf(m.far), local, m.here)
}

func (m *meeting) fill(from []byte) bool {
	_, local := m.tokens()
	return m.executor.guard.Fill(local, shm.AddressOf(m.here), from)
}

func (m *meeting) take(to []byte) bool {
	_, local := m.tokens()
	return m.executor.guard.Take(to, local, m.here)
}

// One copier, one chunk, and as many ends as fit into the time: so that some of
// them fall between any two steps of a copy that is just beginning. Such a copy
// writes the end of the chunk a while after the owner has got it back.
func TestEndMeetsBeginning(t *testing.T) {
	const most, budget = 100000, 600 * time.Millisecond
	for name, c := range map[string]struct {
		copy func(m *meeting, source []byte)
		end  func(m *meeting) (drained func() bool, again func())
		near bool // the memory is the executor's own
	}{
		"Copy, invalidation": {func(m *meeting, source []byte) {
			remote, _ := m.tokens()
			m.executor.write(farRef(m.to, remote, Write, shm.AddressOf(m.far)), source)
		}, (*meeting).invalidate, false},
		"Copy, end of the connection": {func(m *meeting, source []byte) {
			remote, _ := m.tokens()
			m.executor.write(farRef(m.to, remote, Write, shm.AddressOf(m.far)), source)
		}, (*meeting).disconnect, false},
		"Put, invalidation":          {func(m *meeting, _ []byte) { m.put() }, (*meeting).invalidate, false},
		"Put, end of the connection": {func(m *meeting, _ []byte) { m.put() }, (*meeting).disconnect, false},
		"Get, deregistration":        {func(m *meeting, _ []byte) { m.get() }, (*meeting).deregister, true},
		"Fill, deregistration":       {func(m *meeting, source []byte) { m.fill(source) }, (*meeting).deregister, true},
	} {
		t.Run(name, func(t *testing.T) {
			m := newMeeting(t)
			sink, other, source := m.far, m.here, make([]byte, Chunk)
			if c.near {
				sink, other = m.here, m.far
			}
			fill(source, 1)
			fill(other, 1)
			tail := sink[Chunk-64:]
			m.run(func() { c.copy(m, source) })
			began, ends, late := time.Now(), 0, 0
			for ; ends < most && time.Since(began) < budget; ends++ {
				before := m.tries.Load()
				m.owner.await("the executor runs", func() bool { return m.tries.Load() != before })
				m.let(20000)
				drained, again := c.end(m)
				m.owner.await("the drain ends", drained)
				fill(tail, owned)
				for range 30000 { // some of the time that a late copy would take
					_ = m.stop.Load()
				}
				if !only(tail, owned) {
					late++
				}
				again()
			}
			m.end()
			if t.Logf("%d ends, %d copies", ends, m.tries.Load()); late > 0 {
				t.Errorf("after %d of %d ends the copier wrote", late, ends)
			}
		})
	}
}

// A copy that reports success was over when the token was taken back (P2_strict
// of the model). So a sink holds by then what the latest success has brought, and
// no success brings what was written to a source since.
func TestSuccessIsBeforeTheEnd(t *testing.T) {
	const most, budget = 20000, 400 * time.Millisecond
	for name, c := range map[string]struct {
		copy     func(m *meeting, plain []byte) bool
		end      func(m *meeting) (drained func() bool, again func())
		of       func(m *meeting) []byte // the memory whose token ends
		at       func(m *meeting) []byte // the other; nil: plain memory
		isSource bool
	}{
		"Put, end of the sink":    {func(m *meeting, _ []byte) bool { return m.put() }, (*meeting).invalidate, theFar, theNear, false},
		"Put, end of the source":  {func(m *meeting, _ []byte) bool { return m.put() }, (*meeting).deregister, theNear, theFar, true},
		"Get, end of the source":  {func(m *meeting, _ []byte) bool { return m.get() }, (*meeting).invalidate, theFar, theNear, true},
		"Get, end of the sink":    {func(m *meeting, _ []byte) bool { return m.get() }, (*meeting).deregister, theNear, theFar, false},
		"Fill, end of the sink":   {(*meeting).fill, (*meeting).deregister, theNear, nil, false},
		"Take, end of the source": {(*meeting).take, (*meeting).deregister, theNear, nil, true},
	} {
		t.Run(name, func(t *testing.T) {
			m := newMeeting(t)
			ended, other := c.of(m), make([]byte, Chunk)
			if c.at != nil {
				other = c.at(m)
			}
			fill(ended, 0)
			fill(other, 0)
			// In the middle, because on amd64 the latest stores of a copy may become
			// visible a moment after the last look at the tokens: those that lie in the
			// processor's store buffer. What needs them to be there waits for the drain.
			const middle, marker = Chunk / 2, 1 << 63
			var sequence uint64
			var brought, late atomic.Uint64
			m.run(func() {
				if sequence++; !c.isSource {
					word(other, middle).Store(sequence)
				}
				switch ok := c.copy(m, other); {
				case !ok:
				case c.isSource && word(other, middle).Load() == marker:
					late.Add(1)
				default:
					brought.Store(sequence)
				}
			})
			began, ends := time.Now(), uint64(0)
			for ; ends < most && time.Since(began) < budget; ends++ {
				before := brought.Load()
				m.owner.await("a copy succeeds", func() bool { return brought.Load() != before })
				m.let(20000)
				drained, again := c.end(m)
				seen := word(ended, middle).Load()
				if c.isSource {
					word(ended, middle).Store(marker)
				}
				tried := m.tries.Load()
				m.owner.await("the drain ends", drained)
				m.owner.await("the executor has been refused", func() bool { return m.tries.Load() >= tried+2 })
				if !c.isSource && brought.Load() > seen {
					late.Add(1)
				}
				word(ended, middle).Store(0)
				again()
			}
			m.end()
			if t.Logf("%d ends, %d copies", ends, m.tries.Load()); late.Load() > 0 {
				t.Errorf("%d copies that went on after one of %d ends report success", late.Load(), ends)
			}
		})
	}
}

func theFar(m *meeting) []byte  { return m.far }
func theNear(m *meeting) []byte { return m.here }

func word(b []byte, at int) *atomic.Uint64 { return (*atomic.Uint64)(unsafe.Pointer(&b[at])) }
