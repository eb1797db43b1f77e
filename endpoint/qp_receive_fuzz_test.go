package endpoint

import (
	"testing"

	"github.com/softnd/softnd/endpoint/internal/cm"
	"github.com/softnd/softnd/endpoint/internal/wire"
	"github.com/softnd/softnd/nd"
	"github.com/softnd/softnd/shm"
)

// The steps of FuzzReceiveDescriptor. Each is a byte that names it, a byte
// that details it, and a word of 8.
const (
	// The faulty peer stores the word in its shared queue-pair state, its descriptors, or the record.
	storePosted = iota
	storeLimitedEnd
	storeReleased
	storeFault
	storeFaultStatus
	storeNeedWakeup
	storeHazard
	storeCapacity // of the receive that the victim's next message takes
	storeEntries
	storeAddress // of entry: detail
	storeLength  // and token; in the upper 32 bits of the word
	storeWord    // of all descriptors: detail
	storeState
	storeDisconnected
	// The faulty peer stores a wrong count of consumed entries: detail is the difference.
	storeMoreReleased
	// Steps of a correct peer.
	attackerReceives // detail is the kind
	attackerServes
	attackerSends
	// The victim posts; detail says from where, the word how many bytes.
	victimSends
	victimWrites
	victimReads
	victimRevokes // the word is the token
	victimReceives
	victimMoves
	victimTargets // its requests go through the ring; if the detail is even, it executes them itself again
	victimInvalidates
	stepKinds
)

const stepSize = 10

// maxSteps bounds the work of one input.
const maxSteps = 48

type forgery struct {
	step, detail byte
	word         uint64
}

func script(steps ...forgery) (b []byte) {
	for _, s := range steps {
		b = append(append(b, s.step, s.detail), bytesOf(s.word)...)
	}
	return b
}

// FuzzReceiveDescriptor changes the shared queue-pair state of the faulty peer while the victim has all kinds of requests
// in progress.
func FuzzReceiveDescriptor(f *testing.F) {
	r := newFuzzPair(f)
	l := theAttacker
	entryWord := func(n uint32, t nd.Token) uint64 { return uint64(n) | uint64(t)<<32 }
	mine := func(rng int, n uint32) uint64 { return entryWord(n, localOf(l, inArena, rng)) }
	const vastly = vastSize
	f.Add([]byte{})
	f.Add(script(forgery{attackerReceives, 6, 0}, forgery{victimSends, 0, 1000}, forgery{victimSends, 1, 20}, forgery{attackerReceives, 0, 0}, forgery{victimWrites, 2, 500}, forgery{victimReads, 1, vastly}))
	f.Add(script(forgery{victimTargets, 1, 0}, forgery{attackerReceives, 6, 0}, forgery{victimSends, 0, 1000}, forgery{victimSends, 1, 20}, forgery{attackerReceives, 0, 0}, forgery{victimWrites, 3, 500}, forgery{victimReads, 1, vastly}, forgery{victimReads, 0, 100}, forgery{attackerServes, 0, 0}))
	f.Add(script(forgery{storePosted, 0, 1 << 40}, forgery{victimSends, 0, 100}))
	f.Add(script(forgery{storePosted, 0, ^uint64(0)}, forgery{victimSends, 0, 100}))
	f.Add(script(forgery{storePosted, 0, 8}, forgery{victimSends, 0, 0}, forgery{victimSends, 0, 48}, forgery{victimSends, 0, 49}, forgery{storePosted, 0, 2}, forgery{victimSends, 0, 1}))
	f.Add(script(forgery{storePosted, 0, 8}, forgery{storeLimitedEnd, 0, 3}, forgery{victimSends, 0, 10}, forgery{storeLimitedEnd, 0, ^uint64(0)}, forgery{victimSends, 0, 10}, forgery{storeMoreReleased, 0, 0}))
	f.Add(script(forgery{storePosted, 0, 1}, forgery{storeCapacity, 0, 1000}, forgery{storeEntries, 0, 1}, forgery{storeAddress, 0, address(l, inArena, vast, 0)}, forgery{storeLength, 0, mine(vast, 1000)}, forgery{victimSends, 0, 1000}))
	f.Add(script(forgery{storePosted, 0, 1}, forgery{storeCapacity, 0, 1000}, forgery{storeEntries, 0, 2}, forgery{storeAddress, 0, address(l, inArena, vast, 0)}, forgery{storeLength, 0, mine(vast, 500)}, forgery{victimSends, 0, 1000}))
	f.Add(script(forgery{storePosted, 0, 1}, forgery{storeCapacity, 0, ^uint64(0)}, forgery{storeEntries, 0, ^uint64(0)}, forgery{victimSends, 0, 1000}))
	f.Add(script(forgery{storePosted, 0, 1}, forgery{storeCapacity, 0, 100}, forgery{victimSends, 0, 100}))
	f.Add(script(forgery{storePosted, 0, 1}, forgery{storeCapacity, 0, 100}, forgery{storeEntries, 0, 1}, forgery{storeAddress, 0, address(theVictim, inArena, local, 0)}, forgery{storeLength, 0, entryWord(100, localOf(theVictim, inArena, local))}, forgery{victimSends, 0, 100}))
	f.Add(script(forgery{storePosted, 0, 1}, forgery{storeCapacity, 0, 100}, forgery{storeEntries, 0, 1}, forgery{storeAddress, 0, address(l, inArena, foreign, 0)}, forgery{storeLength, 0, mine(foreign, 100)}, forgery{victimSends, 0, 100}))
	f.Add(script(forgery{storePosted, 0, 1}, forgery{storeCapacity, 0, 100}, forgery{storeEntries, 0, 1}, forgery{storeAddress, 0, ^uint64(0) - 10}, forgery{storeLength, 0, mine(small, ^uint32(0))}, forgery{victimSends, 0, 100}))
	f.Add(script(forgery{storePosted, 0, 1}, forgery{storeCapacity, 0, 200}, forgery{storeEntries, 0, 2}, forgery{storeAddress, 0, address(l, inArena, small, 0)}, forgery{storeLength, 0, mine(small, 100)},
		forgery{storeAddress, 1, address(l, private, small, 0)}, forgery{storeLength, 1, entryWord(100, localOf(l, private, small))}, forgery{victimSends, 0, 150}))
	f.Add(script(forgery{storePosted, 0, 1}, forgery{storeCapacity, 0, 400}, forgery{storeEntries, 0, 1}, forgery{storeAddress, 0, address(l, private, small, 0)}, forgery{storeLength, 0, entryWord(400, localOf(l, private, small))}, forgery{victimSends, 1, 150}, forgery{attackerServes, 0, 0}))
	f.Add(script(forgery{victimTargets, 1, 0}, forgery{victimWrites, 1, vastly}, forgery{storeMoreReleased, 1, 0}, forgery{storeMoreReleased, 2, 0}, forgery{attackerServes, 0, 0}, forgery{storeReleased, 0, 1 << 50}))
	f.Add(script(forgery{victimTargets, 1, 0}, forgery{victimReads, 1, 70_000}, forgery{storeMoreReleased, 1, 0}, forgery{victimMoves, 0, 0}, forgery{storeMoreReleased, 1, 0}))
	f.Add(script(forgery{victimTargets, 1, 0}, forgery{victimReads, 1, 7}, forgery{storeHazard, 0, 3}, forgery{victimReads, 1, 7}))
	f.Add(script(forgery{victimTargets, 1, 0}, forgery{victimReads, 0, 100}, forgery{victimWrites, 0, 100}, forgery{storeFault, 0, 2}, forgery{storeFaultStatus, 0, uint64(nd.AccessViolation)}, forgery{storeState, 0, uint64(cm.ConnAborted)}))
	f.Add(script(forgery{victimTargets, 1, 0}, forgery{victimReads, 0, 100}, forgery{victimWrites, 0, 100}, forgery{storeMoreReleased, 1, 0}, forgery{storeFault, 0, 1}, forgery{storeFaultStatus, 0, 0}, forgery{storeState, 0, uint64(cm.ConnAborted)}))
	f.Add(script(forgery{storeFault, 0, ^uint64(0)}, forgery{victimSends, 0, 8}, forgery{storeState, 0, 77}))
	f.Add(script(forgery{attackerReceives, 0, 0}, forgery{victimRevokes, 0, uint64(windowToken(l, 0))}, forgery{attackerServes, 0, 0}, forgery{victimRevokes, 0, 0}, forgery{attackerReceives, 0, 0}, forgery{attackerServes, 0, 0}))
	f.Add(script(forgery{storeDisconnected, 0, 1}, forgery{victimSends, 0, 8}, forgery{victimReads, 0, 8}))
	f.Add(script(forgery{victimReceives, 0, 0}, forgery{storeNeedWakeup, 0, 1}, forgery{attackerSends, 0, 20}, forgery{victimReceives, 6, 0}, forgery{attackerSends, 1, vastly}, forgery{storeNeedWakeup, 0, 9}))
	f.Add(script(forgery{victimTargets, 1, 0}, forgery{victimWrites, 2, 300}, forgery{victimWrites, 3, 40}, forgery{victimInvalidates, 0, 0}, forgery{storeHazard, 0, uint64(windowToken(theVictim, 1))}, forgery{victimInvalidates, 1, 0}, forgery{attackerServes, 0, 0}))
	f.Fuzz(func(t *testing.T, script []byte) {
		defer r.begin(t)()
		r.connect(t, len(script)/stepSize%2 == 0)
		h, rec := r.attacker.ep.localQP, r.attacker.ep.conn.record.Shared
		for range maxSteps {
			if len(script) < stepSize {
				break
			}
			var word [1]uint64
			words(word[:], script[2:])
			r.step(t, h, rec, forgery{script[0] % stepKinds, script[1], word[0]})
			script = script[stepSize:]
			r.victim.ep.progress()
			r.victim.collect(t)
			r.attacker.collect(t)
		}
		h.Hazard.Store(0)
		r.rest(t, true, nil)
		r.part(t)
	})
}

// step carries one step out.
func (r *fuzzPair) step(t *testing.T, h *wire.SharedQP, rec *wire.ConnectionRecord, s forgery) {
	v, l := r.victim, r.attacker
	var descriptor []uint64
	if c := v.ep.conn; s.step >= storeCapacity && s.step <= storeLength {
		at := c.credit.Taken(c.out.Published()) & (c.receiveCount - 1) * c.stride
		descriptor = c.descriptors[at : at+c.stride]
	}
	word := r.mean(s.word)
	lower, upper := word&(1<<32-1), r.token(nd.Token(word>>32))
	switch s.step {
	case storePosted:
		h.Posted.Store(word)
	case storeLimitedEnd:
		h.SmallReceivesEnd.Store(word)
	case storeReleased:
		h.Released.Store(word)
	case storeFault:
		h.Fault.Store(word)
	case storeFaultStatus:
		h.FaultStatus.Store(uint32(word))
	case storeNeedWakeup:
		h.NeedWakeup.Store(uint32(word))
	case storeHazard:
		h.Hazard.Store(uint64(r.token(nd.Token(lower))) | uint64(upper)<<32)
	case storeCapacity:
		descriptor[0] = word
	case storeEntries:
		descriptor[1] = word
	case storeAddress:
		descriptor[2+2*(uint64(s.detail)%(v.ep.conn.stride/2-1))] = word
	case storeLength:
		descriptor[3+2*(uint64(s.detail)%(v.ep.conn.stride/2-1))] = lower | uint64(upper)<<32
	case storeWord:
		v.ep.conn.descriptors[int(s.detail)%len(v.ep.conn.descriptors)] = word
	case storeState:
		rec.State.Store(uint32(word))
	case storeDisconnected:
		rec.Disconnected[l.ep.conn.record.Side].Store(uint32(word))
	case storeMoreReleased:
		h.Released.Store(v.ep.conn.out.LoadReleased() + uint64(int8(s.detail)))
	case attackerReceives:
		l.receive(s.detail)
	case attackerServes:
		l.ep.progress()
	case attackerSends:
		l.post(nd.RequestSend, s.detail, s.word, nil, 0)
	case victimSends:
		v.post(nd.RequestSend, s.detail, s.word, nil, 0)
	case victimWrites:
		v.post(nd.RequestWrite, s.detail, s.word, l, 0)
	case victimReads:
		v.post(nd.RequestRead, s.detail, s.word, l, 0)
	case victimRevokes:
		v.post(nd.RequestSend, s.detail, 20, nil, r.token(nd.Token(s.word)))
	case victimReceives:
		v.receive(s.detail)
	case victimMoves:
		r.rest(t, false, nil)
	case victimTargets:
		v.provider.options.Executor = Executor(s.detail%2) * Target
	case victimInvalidates:
		v.posted(0, v.ep.Invalidate(v.context(), v.windows[int(s.detail)%len(v.windows)], 0))
	}
}

// post posts a transfer of n bytes. The lower bits of detail choose the memory
// at either end, and whether the request is silent.
func (a *fuzzSide) post(k nd.RequestType, detail byte, n uint64, far *fuzzSide, revoke nd.Token) {
	here, there := int(detail&1), int(detail>>1&1)
	size := int(n % (vastSize + 1))
	rng := vast
	if size <= rangeSize/2 && k != nd.RequestRead {
		rng = forPeers
	}
	list := nd.List(a.sge(here, rng, 0, size/3), a.sge(here, rng, size/3, size-size/3))
	flags := nd.OpFlags(0)
	if detail>>2&1 != 0 {
		flags = nd.SilentSuccess
	}
	var err error
	switch {
	case revoke != 0:
		err = a.ep.SendAndInvalidate(a.context(), list, revoke, flags)
	case k == nd.RequestSend:
		err = a.ep.Send(a.context(), list, flags)
	default:
		e := far.areas[there]
		at, token := shm.AddressOf(e.of(vast)), e.remote[vast]
		if k == nd.RequestWrite {
			err = a.ep.Write(a.context(), list, at, token, flags)
		} else {
			err = a.ep.Read(a.context(), list, at, token, flags)
		}
	}
	a.posted(flags, err)
}
