package main

import (
	"context"
	"encoding/binary"
	"fmt"

	"github.com/softnd/softnd"
	"github.com/softnd/softnd/nd"
)

// mailbox is a connection for short messages between the owner and one writer. It exists during the
// whole run. Each round has another connection for the transfers.
type mailbox struct {
	cq     nd.CompletionQueue
	ep     nd.Endpoint
	region nd.MemoryRegion // slot 0 for the outgoing message, the others for incoming ones
	inbox  []int           // slots with messages that are not received yet
	sent   bool            // the last Send has completed
}

const (
	slotSize  = 64
	inSlots   = 4
	outgoing  = 100 // request context of a send; those of receives are slot numbers
	boxMemory = slotSize * (inSlots + 1)
)

// openMailbox connects with a peer. The caller must close the mailbox even if there is an error.
func openMailbox(ctx context.Context, job *softnd.Job, peer int) (*mailbox, error) {
	m := &mailbox{}
	var err error
	if m.region, err = job.Adapter().Allocate(ctx, boxMemory, nd.AllowLocalWrite); err != nil {
		return m, err
	}
	if m.cq, err = job.Adapter().CreateCompletionQueue(ctx, 2*inSlots); err != nil {
		return m, err
	}
	m.ep, err = job.Connect(ctx, peer, nd.EndpointConfig{ReceiveCQ: m.cq, InitiatorCQ: m.cq,
		ReceiveDepth: inSlots, InitiatorDepth: 1})
	if err != nil {
		return m, err
	}
	for slot := 1; slot <= inSlots; slot++ {
		if err := m.postReceive(slot); err != nil {
			return m, err
		}
	}
	return m, nil
}

// slot returns a slot as an entry of a request.
func (m *mailbox) slot(n int) nd.SGE {
	return nd.SGEOf(m.region, n*slotSize, slotSize)
}

// postReceive posts a Receive into a slot.
func (m *mailbox) postReceive(slot int) error {
	return m.ep.Receive(uint64(slot), nd.One(m.slot(slot)))
}

// send returns when the message is in the peer's memory.
func (m *mailbox) send(ctx context.Context, message []byte) error {
	out := m.slot(0)
	out.Buffer = out.Buffer[:copy(out.Buffer, message)]
	m.sent = false
	if err := m.ep.Send(outgoing, nd.One(out), 0); err != nil {
		return err
	}
	for !m.sent {
		if err := m.waitForResult(ctx); err != nil {
			return err
		}
	}
	return nil
}

// receive waits for a message and returns a copy of its slot. The bytes after the message in
// the slot have no meaning.
func (m *mailbox) receive(ctx context.Context) ([]byte, error) {
	for len(m.inbox) == 0 {
		if err := m.waitForResult(ctx); err != nil {
			return nil, err
		}
	}
	slot := m.inbox[0]
	m.inbox = m.inbox[1:]
	message := append([]byte(nil), m.slot(slot).Buffer...)
	return message, m.postReceive(slot)
}

// waitForResult waits for one result.
func (m *mailbox) waitForResult(ctx context.Context) error {
	var r [1]nd.Result
	if _, err := m.cq.Wait(ctx, r[:]); err != nil {
		return err
	}
	switch {
	case r[0].Status.Failed():
		return fmt.Errorf("%v of a message: %w", r[0].RequestType, r[0].Status)
	case r[0].RequestContext == outgoing:
		m.sent = true
	default:
		m.inbox = append(m.inbox, int(r[0].RequestContext))
	}
	return nil
}

func (m *mailbox) close() {
	if m.ep != nil {
		m.ep.Close()
	}
	if m.cq != nil {
		m.cq.Close()
	}
	if m.region != nil {
		m.region.Close(context.Background())
	}
}

// access tells the writer that it can use a window.
type access struct {
	window nd.WindowDescriptor
	round  uint64
	last   bool // this round is the last one
}

func (a access) encode() []byte {
	b, _ := a.window.AppendBinary(nil) // never fails
	b = binary.BigEndian.AppendUint64(b, a.round)
	if a.last {
		return append(b, 1)
	}
	return append(b, 0)
}

func decodeAccess(b []byte) (a access, err error) {
	err = a.window.UnmarshalBinary(b[:nd.WindowDescriptorSize])
	a.round = binary.BigEndian.Uint64(b[nd.WindowDescriptorSize:])
	a.last = b[nd.WindowDescriptorSize+8] == 1
	return a, err
}

// report gives the owner the results of the writer's transfers in one round: done transfers
// succeeded, the next failed, and the others were cancelled.
type report struct{ done, cancelled uint64 }

func (r report) encode() []byte {
	return binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(nil, r.done), r.cancelled)
}

func decodeReport(b []byte) report {
	return report{binary.BigEndian.Uint64(b), binary.BigEndian.Uint64(b[8:])}
}
