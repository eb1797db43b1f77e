package credit

import (
	"math/rand/v2"
	"testing"

	"github.com/softnd/softnd/endpoint/internal/wire"
)

// FuzzCredit compares a credit with plain lists of messages and receives. It checks the invariants of the doc comment
// after each step; with a faulty peer, only those that do not depend on its words.
func FuzzCredit(f *testing.F) {
	for seed := range uint64(8) {
		f.Add(randomScript(rand.New(rand.NewPCG(seed, 0)), 400), seed%4 == 3)
	}
	f.Fuzz(func(t *testing.T, script []byte, attacker bool) {
		m := creditModel{t: t, attacker: attacker}
		for m.script = script; len(m.script) > 0 && !t.Failed(); m.check() {
			m.step()
		}
	})
}

// TestCreditKeepsInvariants is FuzzCredit with more steps than its seeds have.
func TestCreditKeepsInvariants(t *testing.T) {
	for seed := range uint64(200) {
		m := creditModel{t: t, attacker: seed%4 == 3, script: randomScript(rand.New(rand.NewPCG(seed, 1)), 5000)}
		for step := 0; len(m.script) > 0; step++ {
			m.step()
			m.check()
			if t.Failed() {
				t.Fatalf("seed %d, step %d", seed, step)
			}
		}
	}
}

func randomScript(random *rand.Rand, n int) []byte {
	script := make([]byte, n)
	for i := range script {
		script[i] = byte(random.Uint32())
	}
	return script
}

const (
	creditSlots = 8 // of the ring
	creditQueue = 4 // receives that may be outstanding
)

// creditModel is a sender's credit and all that it is about.
type creditModel struct {
	t        *testing.T
	attacker bool
	script   []byte

	credit   Credit
	messages []creditMessage
	consumed uint64 // messages that the peer has taken out of the ring

	receives     []uint64 // capacities of those posted so far
	delivered    uint64
	tight, roomy uint64 // as queuePair.publishSmallReceive keeps them
}

type creditMessage struct{ fast, takes, inSlot, awaited bool }

func (m *creditModel) pushed() uint64 { return uint64(len(m.messages)) }
func (m *creditModel) free() uint64   { return creditSlots - (m.pushed() - m.consumed) }

func (m *creditModel) taken() (n uint64) {
	for _, x := range m.messages {
		if x.takes {
			n++
		}
	}
	return n
}

// next is the next byte of the script, less than n.
func (m *creditModel) next(n byte) byte {
	if len(m.script) == 0 {
		return 0
	}
	b := m.script[0]
	m.script = m.script[1:]
	return b % n
}

func (m *creditModel) step() {
	switch m.next(6) {
	case 0:
		m.post(uint64(m.next(64)))
	case 1, 2:
		m.fastSend(1 + uint64(m.next(wire.MaxSendInEntry)))
	case 3:
		m.slowSend(uint64(m.next(64)))
	case 4: // a Write, a Read, or a later part of any request
		if m.free() > 0 {
			m.push(creditMessage{awaited: m.next(2) == 0})
		} // else it is tried again
	case 5:
		m.consume(min(uint64(m.next(4)), m.pushed()-m.consumed))
	}
}

// post is queuePair.publishPosted at the peer.
func (m *creditModel) post(capacity uint64) {
	if uint64(len(m.receives))-m.delivered == creditQueue {
		return
	}
	m.receives = append(m.receives, capacity)
	if room := min(capacity, wire.MaxSendInEntry); room < wire.MaxSendInEntry {
		if m.tight > m.delivered {
			room = min(room, m.roomy)
		}
		m.tight, m.roomy = uint64(len(m.receives)), room
	}
}

// hasReceive is connection.hasReceive.
func (m *creditModel) hasReceive() bool {
	k, pushed := &m.credit, m.pushed()
	if !k.IsSpent(pushed) {
		return true
	}
	posted, tight, room := uint64(len(m.receives)), m.tight, m.roomy
	if m.attacker {
		posted, tight, room = posted+uint64(int8(m.next(255))), tight+uint64(int8(m.next(255))), uint64(m.next(255))<<m.next(57)
	}
	return k.Refresh(pushed, posted, creditQueue, tight, room)
}

// fastSend is queuePair.Send.
func (m *creditModel) fastSend(n uint64) {
	k := &m.credit
	if m.pushed() >= k.FastLimit && !(m.hasReceive() && k.Extend(m.pushed(), m.free())) || n > uint64(k.FastMaxLength) {
		return
	}
	if m.free() == 0 {
		m.t.Errorf("a message of the fast path finds the ring full")
	}
	m.delivers(n)
	m.messages = append(m.messages, creditMessage{fast: true, takes: true, inSlot: true})
}

// slowSend is queuePair.executeSend.
func (m *creditModel) slowSend(n uint64) {
	if !m.hasReceive() {
		return
	}
	if m.free() == 0 {
		return
	}
	small := n <= wire.MaxSendInEntry
	if small && m.credit.Fits(m.pushed(), n) {
		m.delivers(n)
	}
	m.push(creditMessage{takes: true, inSlot: small, awaited: m.next(2) == 0})
}

// delivers checks that the next message, of n bytes, has a receive that takes it.
func (m *creditModel) delivers(n uint64) {
	if m.attacker {
		return
	}
	if taken := m.taken(); taken >= uint64(len(m.receives)) || n > m.receives[taken] {
		m.t.Errorf("a message of %d bytes counts as delivered; the receives are %v, and %d are taken", n, m.receives, taken)
	}
}

// push is queuePair.pushEntry.
func (m *creditModel) push(x creditMessage) {
	m.messages = append(m.messages, x)
	k, pushed := &m.credit, m.pushed()
	k.CountEntry(pushed-1, x.takes)
	if x.inSlot {
		k.PayloadEndBeforeRun = pushed
	}
	if x.awaited {
		k.AckRequestEnd = pushed
	}
}

func (m *creditModel) consume(n uint64) {
	for _, x := range m.messages[m.consumed:][:n] {
		if x.takes && m.delivered < uint64(len(m.receives)) {
			m.delivered++
		}
	}
	m.consumed += n
}

// check compares the credit with the lists.
func (m *creditModel) check() {
	k, pushed, taken := &m.credit, m.pushed(), m.taken()
	var rowStart, unsettled uint64
	for i, x := range m.messages {
		if !x.fast {
			rowStart = uint64(i + 1)
		}
		if x.inSlot || x.awaited {
			unsettled = uint64(i + 1)
		}
	}
	credit := k.posted - taken
	for what, ok := range map[string]bool{
		"others <= pushed":                     k.entriesWithoutReceive <= pushed,
		"taken":                                k.Taken(pushed) == taken,
		"posted - taken <= queue":              credit <= creditQueue,
		"rowStart":                             k.sendRunStart == rowStart,
		"inSlot <= pushed":                     k.PayloadEndBeforeRun <= pushed,
		"awaited <= pushed":                    k.AckRequestEnd <= pushed,
		"limit - pushed <= credit":             k.FastLimit <= pushed || k.FastLimit-pushed <= credit,
		"limit - pushed <= slots":              k.FastLimit <= pushed || k.FastLimit-pushed <= m.free(),
		"fastMaxLength, room <= inlinePayload": k.FastMaxLength <= wire.MaxSendInEntry && k.smallReceiveBytes <= wire.MaxSendInEntry,
		"lastUnsettled":                        k.OrderBarrier(pushed) == unsettled,
		"posted":                               m.attacker || k.posted <= uint64(len(m.receives)),
	} {
		if !ok {
			m.t.Errorf("%s does not hold: %+v, %d pushed, %d consumed, %d taken", what, *k, pushed, m.consumed, taken)
		}
	}
	for i := pushed; i < k.FastLimit && !m.attacker; i++ {
		if room := m.receives[taken+i-pushed]; uint64(k.FastMaxLength) > room {
			m.t.Errorf("message %d may have %d bytes, for a receive of %d", i, k.FastMaxLength, room)
		}
	}
}
