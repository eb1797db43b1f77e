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

// race is an owner, and an executor that copies the same chunk all the time while a token that it needs is invalidated
// again and again.
type race struct {
	t         *testing.T
	owner     *bindingOwner
	executor  *side
	to        *FarEnd
	far, here []byte // a chunk of the owner's, in its window; a registered one of the executor's
	region    *Region

	remote, local atomic.Uint32 // the tokens; not valid between an invalidation and the next bind
	stop          atomic.Bool
	tries         atomic.Uint64
	copier        sync.WaitGroup
}

func newRace(t *testing.T) *race {
	o := newBindingOwner(t)
	m := &race{t: t, owner: o, executor: join(t, o.arena), far: o.mem[:ChunkSize]}
	m.to = o.admit(t, m.executor)
	m.here = m.executor.alloc(t, ChunkSize)
	m.region = m.executor.region(t, m.here, nd.AllowLocalWrite)
	m.bind()
	m.name()
	return m
}

func (m *race) bind() {
	m.remote.Store(uint32(bind(m.t, m.owner.window, m.owner.region, m.far, Read|Write, 0, false)))
}

func (m *race) name() {
	local, _ := m.region.Tokens()
	m.local.Store(uint32(local))
}

// run makes the executor copy until the test ends.
func (m *race) run(copy func()) {
	m.copier.Go(func() {
		for !m.stop.Load() {
			copy()
			m.tries.Add(1)
		}
	})
	m.t.Cleanup(m.end) // before the sides leave the arena
}

func (m *race) end() {
	m.stop.Store(true)
	m.copier.Wait()
}

// let waits for a random time, in which the executor starts one or several copies.
func (m *race) let(most int) {
	for range m.owner.random.IntN(most) {
		_ = m.stop.Load()
	}
}

// invalidate makes the remote token invalid. It returns a function that reports whether the token is drained, and one that
// binds the window again.
func (m *race) invalidate() (drained func() bool, again func()) {
	o := m.owner
	if _, _, ok := o.window.Invalidate(0); !ok {
		m.t.Fatal("invalidate")
	}
	return o.window.EndInvalidation, m.bind
}

// deregister does the same with the local token.
func (m *race) deregister() (drained func() bool, again func()) {
	if err := m.region.Deregister(); err != nil {
		m.t.Fatal(err)
	}
	return m.region.EndInvalidation, func() {
		if err := m.region.Register(m.here, nd.AllowLocalWrite, nil); err != nil {
			m.t.Fatal(err)
		}
		m.name()
	}
}

// disconnect does the same with the connection.
func (m *race) disconnect() (drained func() bool, again func()) {
	m.to.State.Swap(established + 1)
	return func() bool { return m.executor.hazard.Load() == 0 }, func() { m.to.State.Store(established) }
}

func (m *race) tokens() (remote, local nd.Token) {
	return nd.Token(m.remote.Load()), nd.Token(m.local.Load())
}

func (m *race) put() bool {
	remote, local := m.tokens()
	return m.executor.guard.Put(m.to, &nd.SGE{Buffer: m.here, Token: local}, shm.AddressOf(m.far), remote) == NoFault
}

func (m *race) get() bool {
	remote, local := m.tokens()
	return m.executor.guard.Get(m.to, &nd.SGE{Buffer: m.here, Token: local}, shm.AddressOf(m.far), remote) == NoFault
}

func (m *race) fill(from []byte) bool {
	_, local := m.tokens()
	return m.executor.guard.DeliverSend(shm.AddressOf(m.here), local, from)
}

func (m *race) take(to []byte) bool {
	_, local := m.tokens()
	return m.executor.guard.CopyToEntry(to, &nd.SGE{Buffer: m.here, Token: local})
}

// One executor copies one chunk all the time, with as many invalidations as possible. So some invalidations fall between any
// two of the first steps of a copy. A copy that missed one would write the end of the chunk after the drain.
func TestInvalidateStopsStartingCopies(t *testing.T) {
	const most, budget = 100000, 600 * time.Millisecond
	for name, c := range map[string]struct {
		copy func(m *race, source []byte)
		end  func(m *race) (drained func() bool, again func())
		near bool // the memory is the executor's own
	}{
		"Copy, invalidation": {func(m *race, source []byte) {
			remote, _ := m.tokens()
			m.executor.write(remoteOperand(m.to, remote, Write, shm.AddressOf(m.far)), source)
		}, (*race).invalidate, false},
		"Copy, end of the connection": {func(m *race, source []byte) {
			remote, _ := m.tokens()
			m.executor.write(remoteOperand(m.to, remote, Write, shm.AddressOf(m.far)), source)
		}, (*race).disconnect, false},
		"Put, invalidation":          {func(m *race, _ []byte) { m.put() }, (*race).invalidate, false},
		"Put, end of the connection": {func(m *race, _ []byte) { m.put() }, (*race).disconnect, false},
		"Get, deregistration":        {func(m *race, _ []byte) { m.get() }, (*race).deregister, true},
		"Fill, deregistration":       {func(m *race, source []byte) { m.fill(source) }, (*race).deregister, true},
	} {
		t.Run(name, func(t *testing.T) {
			m := newRace(t)
			sink, other, source := m.far, m.here, make([]byte, ChunkSize)
			if c.near {
				sink, other = m.here, m.far
			}
			fill(source, 1)
			fill(other, 1)
			tail := sink[ChunkSize-64:]
			m.run(func() { c.copy(m, source) })
			began, ends, late := time.Now(), 0, 0
			for ; ends < most && time.Since(began) < budget; ends++ {
				before := m.tries.Load()
				m.owner.await("the executor runs", func() bool { return m.tries.Load() != before })
				m.let(20000)
				drained, again := c.end(m)
				m.owner.await("the drain ends", drained)
				fill(tail, owned)
				for range 30000 { // part of the time that a late copy would take
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

// A copy that succeeds was complete when the token was invalidated (P2_strict of the model). So the sink has the bytes of the
// last successful copy by then, and no successful copy has bytes that were written to the source later.
func TestSuccessfulCopyPrecedesInvalidation(t *testing.T) {
	const most, budget = 20000, 400 * time.Millisecond
	for name, c := range map[string]struct {
		copy     func(m *race, plain []byte) bool
		end      func(m *race) (drained func() bool, again func())
		of       func(m *race) []byte // the memory whose token is invalidated
		at       func(m *race) []byte // the other memory; nil: plain memory
		isSource bool
	}{
		"Put, end of the sink":    {func(m *race, _ []byte) bool { return m.put() }, (*race).invalidate, theFar, theNear, false},
		"Put, end of the source":  {func(m *race, _ []byte) bool { return m.put() }, (*race).deregister, theNear, theFar, true},
		"Get, end of the source":  {func(m *race, _ []byte) bool { return m.get() }, (*race).invalidate, theFar, theNear, true},
		"Get, end of the sink":    {func(m *race, _ []byte) bool { return m.get() }, (*race).deregister, theNear, theFar, false},
		"Fill, end of the sink":   {(*race).fill, (*race).deregister, theNear, nil, false},
		"Take, end of the source": {(*race).take, (*race).deregister, theNear, nil, true},
	} {
		t.Run(name, func(t *testing.T) {
			m := newRace(t)
			ended, other := c.of(m), make([]byte, ChunkSize)
			if c.at != nil {
				other = c.at(m)
			}
			fill(ended, 0)
			fill(other, 0)
			// In the middle, because on amd64 the last stores of a copy may be in the store
			// buffer during ENTRY-RECHECK, and become visible a moment later. The drain
			// waits for them.
			const middle, marker = ChunkSize / 2, 1 << 63
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

func theFar(m *race) []byte  { return m.far }
func theNear(m *race) []byte { return m.here }

func word(b []byte, at int) *atomic.Uint64 { return (*atomic.Uint64)(unsafe.Pointer(&b[at])) }
