package softnd

// TWIN c/src/job/hostlinks.c.

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/softnd/softnd/endpoint"
	"github.com/softnd/softnd/internal/statuspage"
	"github.com/softnd/softnd/nd"
)

// hostLinks connects the leader of a host with those of the others, by endpoints whose connections the relays carry. A
// leader sends one message for each exchange to each other leader. A blob that does not fit in is read by the others.
type hostLinks struct {
	job      *Job
	adapter  nd.Adapter // without the checker and the counters, which are for the program
	queue    nd.CompletionQueue
	memory   nd.MemoryRegion // of the messages
	listener nd.Listener
	links    []*hostLink // by host; nil for this one
	polled   [64]nd.Result
}

// hostLink is the connection with another host's leader.
type hostLink struct {
	host, rank int // of the other leader
	ep         nd.Endpoint
	at         int      // of its messages in hostLinks.memory: one to send, then those to receive
	arrived    [][]byte // messages
	sending    bool     // the message to send is in use
	reading    int      // Reads that have not completed
	failed     error    // the connection has ended
}

// Sizes of messages between leaders.
const (
	leaderMessage  = 8 << 10
	leaderHeader   = 32 // kind, length, address, token
	leaderReceives = 4  // a leader is at most one call ahead of another, and acknowledges its Reads
	leaderSlots    = 1 + leaderReceives
	leaderRead     = 256 << 10 // bytes of a Read
	leaderReads    = 4         // in flight
)

// ackCall is the kind of a message that says that a blob has been read.
const ackCall callKind = 100

// Contexts of the requests of leaders. Receives have the number of their slot.
const (
	sendContext = 100
	readContext = 101
)

// newHostLinks makes this rank reachable for other leaders.
func (j *Job) newHostLinks(ctx context.Context) (*hostLinks, error) {
	x := &hostLinks{job: j, links: make([]*hostLink, j.hosts.Count)}
	if err := x.open(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("connections between hosts: %w", err), x.close())
	}
	return x, nil
}

func (x *hostLinks) open(ctx context.Context) (err error) {
	j, count := x.job, len(x.links)
	if x.adapter, err = j.openHidden(ctx); err != nil {
		return err
	}
	if x.queue, err = x.adapter.CreateCompletionQueue(ctx, count*(leaderSlots+leaderReads)); err != nil {
		return err
	}
	if x.memory, err = x.adapter.Allocate(ctx, count*leaderSlots*leaderMessage, nd.AllowLocalWrite); err != nil {
		return err
	}
	if x.listener, err = x.adapter.CreateListener(ctx); err != nil {
		return err
	}
	if err = x.listener.Bind(netip.AddrPortFrom(endpoint.Address(j.arena.Host(), j.member.ID()), leaderPort)); err != nil {
		return err
	}
	return x.listener.Listen(0)
}

// connect connects this leader with the others: with those of smaller hosts first.
func (x *hostLinks) connect(ctx context.Context, all []announcement) error {
	own := x.job.hosts.Number
	for host := range own {
		if err := x.dial(ctx, host, all[host].Leader); err != nil {
			return fmt.Errorf("connect to the leader of host %d: %w", host, err)
		}
	}
	for missing := len(all) - own - 1; missing > 0; {
		host, err := x.answer(ctx, all)
		if err != nil {
			return fmt.Errorf("connect to the leaders of larger hosts: %w", err)
		}
		if host > own {
			missing--
		}
	}
	return nil
}

// newLink makes an endpoint with its Receives.
func (x *hostLinks) newLink(ctx context.Context, host int) (*hostLink, error) {
	l := &hostLink{host: host, rank: x.job.hosts.Ranks(host)[0], at: host * leaderSlots * leaderMessage}
	var err error
	l.ep, err = x.adapter.CreateEndpoint(ctx, nd.EndpointConfig{Receive: x.queue, Initiator: x.queue, Context: uint64(host)})
	for slot := 1; slot < leaderSlots && err == nil; slot++ {
		err = x.receive(l, uint64(slot))
	}
	if err != nil && l.ep != nil {
		err = errors.Join(err, l.ep.Close())
	}
	return l, err
}

func (x *hostLinks) receive(l *hostLink, slot uint64) error {
	return l.ep.Receive(slot, []nd.SGE{nd.SGEOf(x.memory, l.at+int(slot)*leaderMessage, leaderMessage)})
}

// dial connects to a leader.
func (x *hostLinks) dial(ctx context.Context, host int, to netip.Addr) error {
	l, err := x.newLink(ctx, host)
	if err != nil {
		return err
	}
	c, err := x.adapter.CreateConnector(ctx)
	if err == nil {
		params := nd.ConnectParams{InboundReadLimit: leaderReads, OutboundReadLimit: leaderReads, PrivateData: binary.LittleEndian.AppendUint32(nil, uint32(x.job.hosts.Number))}
		if err = c.Connect(ctx, l.ep, netip.AddrPortFrom(to, leaderPort), params); err == nil {
			err = c.CompleteConnect(ctx)
		}
		if err != nil {
			err = errors.Join(err, c.Close())
		}
	}
	if err != nil {
		return errors.Join(err, l.ep.Close())
	}
	x.links[host] = l
	return nil
}

// answer accepts a connection, and returns the number of its host. It returns -1 if the request was not a leader's.
func (x *hostLinks) answer(ctx context.Context, all []announcement) (int, error) {
	c, err := x.adapter.CreateConnector(ctx)
	if err != nil {
		return 0, err
	}
	if err := x.nextRequest(ctx, c); err != nil {
		return 0, errors.Join(err, c.Close())
	}
	var b [4]byte
	n, err := c.GetPrivateData(b[:])
	host := int(binary.LittleEndian.Uint32(b[:]))
	from, addressErr := c.PeerAddress()
	if err != nil || addressErr != nil || n != len(b) || host <= x.job.hosts.Number || host >= len(all) || x.links[host] != nil || from.Addr() != all[host].Leader {
		return -1, errors.Join(c.Reject(nil), c.Close())
	}
	l, err := x.newLink(ctx, host)
	if err != nil {
		return 0, errors.Join(err, c.Close())
	}
	if err := c.Accept(ctx, l.ep, nd.ConnectParams{InboundReadLimit: leaderReads, OutboundReadLimit: leaderReads}); err != nil {
		return 0, errors.Join(err, l.ep.Close(), c.Close())
	}
	x.links[host] = l
	return host, nil
}

// nextRequest waits for a connection request. None comes if the relay of this host has died. If a connection with another
// leader has ended, this leader gives up as well, so that all hosts learn of it.
func (x *hostLinks) nextRequest(ctx context.Context, c nd.Connector) error {
	for {
		slice, cancel := context.WithTimeout(ctx, checkInterval)
		err := x.listener.GetConnectionRequest(slice, c)
		isOver := slice.Err() != nil
		cancel()
		if err == nil || ctx.Err() != nil || !isOver {
			return err
		}
		if _, err := x.job.arena.Relay(); err != nil {
			return &nd.OpError{Op: "accept", Object: "leaders of other hosts", Status: nd.HostUnreachable, Err: err, Detail: "the relay of this host has died", Next: "start the job again"}
		}
		x.poll()
		for _, l := range x.links {
			if l != nil && l.failed != nil {
				return x.lost(l)
			}
		}
	}
}

// poll takes results from the queue.
func (x *hostLinks) poll() {
	for {
		n := x.queue.Poll(x.polled[:])
		for i := range x.polled[:n] {
			r := &x.polled[i]
			if r.EndpointContext >= uint64(len(x.links)) || x.links[r.EndpointContext] == nil {
				continue
			}
			x.links[r.EndpointContext].take(x, r)
		}
		if n < len(x.polled) {
			return
		}
	}
}

// take handles a result.
func (l *hostLink) take(x *hostLinks, r *nd.Result) {
	switch {
	case r.Status != nd.Success:
		if l.failed == nil {
			l.failed = fmt.Errorf("its connection has ended: %v", r.Status) // the status is that of a request, not of the call
		}
	case r.RequestContext == sendContext:
		l.sending = false
	case r.RequestContext == readContext:
		l.reading--
	default:
		at := l.at + int(r.RequestContext)*leaderMessage
		l.arrived = append(l.arrived, append([]byte(nil), x.memory.Bytes()[at:at+int(r.BytesTransferred)]...))
		if err := x.receive(l, r.RequestContext); err != nil && l.failed == nil {
			l.failed = err
		}
	}
}

// wait waits until ready returns true for all links, or a connection has ended.
func (x *hostLinks) wait(ctx context.Context, op string, ready func(*hostLink) bool) error {
	var failed error
	err := x.job.provider.WaitFor(ctx, statuspage.Call{Op: op, Round: x.job.group.Round()}, func() bool {
		x.poll()
		all := true
		for _, l := range x.links {
			switch {
			case l == nil || ready(l):
			case l.failed != nil:
				failed = x.lost(l)
				return true
			default:
				all = false
			}
		}
		return all
	})
	if err != nil {
		return endpoint.Canceled(ctx, err, op, "job")
	}
	return failed
}

// lost returns the error of a call whose link has failed.
func (x *hostLinks) lost(l *hostLink) error {
	return &nd.OpError{Op: "collective call", Object: fmt.Sprintf("host %d", l.host), Status: nd.ConnectionAborted, Err: l.failed,
		Detail: fmt.Sprintf("rank %d, the first of that host, has died or left, or the host is not reachable", l.rank)}
}

// post sends a message to a leader, when the previous one has been sent.
func (x *hostLinks) post(ctx context.Context, op string, l *hostLink, message []byte) error {
	if l.sending {
		if err := x.wait(ctx, op, func(other *hostLink) bool { return other != l || !l.sending }); err != nil {
			return err
		}
	}
	copy(x.memory.Bytes()[l.at:], message)
	l.sending = true
	if err := l.ep.Send(sendContext, []nd.SGE{nd.SGEOf(x.memory, l.at, len(message))}, 0); err != nil {
		if l.failed == nil {
			l.failed = err
		}
		return x.lost(l)
	}
	return nil
}

// header returns the first bytes of a message.
func header(kind callKind, length uint64, d nd.WindowDescriptor) []byte {
	b := binary.LittleEndian.AppendUint64(nil, uint64(kind))
	b = binary.LittleEndian.AppendUint64(b, length)
	b = binary.LittleEndian.AppendUint64(b, d.Address)
	return binary.LittleEndian.AppendUint64(b, uint64(d.Token))
}

// exchange implements leaders.
func (x *hostLinks) exchange(ctx context.Context, op string, kind callKind, blob []byte, limit uint64) ([][]byte, error) {
	message := header(kind, uint64(len(blob)), nd.WindowDescriptor{})
	isLong := len(blob) > leaderMessage-leaderHeader
	if isLong {
		region, err := x.adapter.Allocate(ctx, len(blob), nd.AllowLocalWrite|nd.AllowRemoteRead)
		if err != nil {
			return nil, err
		}
		defer region.Close()
		copy(region.Bytes(), blob)
		message = header(kind, uint64(len(blob)), nd.DescriptorOf(region))
	} else {
		message = append(message, blob...)
	}
	for _, l := range x.links {
		if l != nil {
			if err := x.post(ctx, op, l, message); err != nil {
				return nil, err
			}
		}
	}
	if err := x.wait(ctx, op, func(l *hostLink) bool { return len(l.arrived) > 0 }); err != nil {
		return nil, err
	}
	all := make([][]byte, len(x.links))
	all[x.job.hosts.Number] = blob
	for host, l := range x.links {
		if l == nil {
			continue
		}
		var err error
		if all[host], err = x.next(ctx, op, l, kind, limit); err != nil {
			return nil, err
		}
	}
	if isLong { // until all have read it
		if err := x.wait(ctx, op, func(l *hostLink) bool { return len(l.arrived) > 0 }); err != nil {
			return nil, err
		}
		for _, l := range x.links {
			if l != nil {
				if _, err := x.next(ctx, op, l, ackCall, 0); err != nil {
					return nil, err
				}
			}
		}
	}
	// This rank may close the job now, which must not take messages back. The other leader may have closed it already: then the
	// result of the Send says nothing, and the message of that leader has arrived.
	if err := x.wait(ctx, op, func(l *hostLink) bool { return !l.sending || l.failed != nil }); err != nil {
		return nil, err
	}
	return all, nil
}

// next takes the next message of a leader, which has to be of a kind, and returns its blob.
func (x *hostLinks) next(ctx context.Context, op string, l *hostLink, kind callKind, limit uint64) ([]byte, error) {
	m := l.arrived[0]
	l.arrived = slices.Delete(l.arrived, 0, 1)
	if len(m) < leaderHeader {
		return nil, damagedPack(l.host)
	}
	theirs, length := callKind(m[0]), binary.LittleEndian.Uint64(m[8:])
	switch {
	case theirs == failedCall:
		status := nd.Status(binary.LittleEndian.Uint32(m[16:]))
		return nil, failedAt(op, l.host, status, string(m[leaderHeader:]))
	case theirs != kind:
		return nil, &nd.OpError{Op: op, Object: "job", Status: nd.InvalidDeviceState, Err: fmt.Errorf("the ranks of host %d call %v, those of this host %v", l.host, theirs, kind), Next: sameCalls}
	case length > limit:
		return nil, x.job.tooLong(fmt.Errorf("the pack of host %d has %d bytes", l.host, length))
	case uint64(len(m)-leaderHeader) == length:
		return m[leaderHeader:], nil
	}
	blob, err := x.read(ctx, op, l, int(length), binary.LittleEndian.Uint64(m[16:]), nd.Token(binary.LittleEndian.Uint64(m[24:])))
	if err != nil {
		return nil, err
	}
	return blob, x.post(ctx, op, l, header(ackCall, 0, nd.WindowDescriptor{}))
}

// read reads a blob from the memory of another leader.
func (x *hostLinks) read(ctx context.Context, op string, l *hostLink, length int, address uint64, token nd.Token) ([]byte, error) {
	into, err := x.adapter.Allocate(ctx, length, nd.AllowLocalWrite)
	if err != nil {
		return nil, err
	}
	defer into.Close()
	for at := 0; at < length; {
		n := min(length-at, leaderRead)
		if l.reading == leaderReads {
			if err := x.waitFor(ctx, op, l, leaderReads-1); err != nil {
				return nil, err
			}
		}
		if err := l.ep.Read(readContext, []nd.SGE{nd.SGEOf(into, at, n)}, address+uint64(at), token, 0); err != nil {
			l.failed = err
			return nil, x.lost(l)
		}
		l.reading++
		at += n
	}
	if err := x.waitFor(ctx, op, l, 0); err != nil {
		return nil, err
	}
	return append([]byte(nil), into.Bytes()[:length]...), nil
}

// waitFor waits until a link has at most n Reads in flight.
func (x *hostLinks) waitFor(ctx context.Context, op string, l *hostLink, n int) error {
	return x.wait(ctx, op, func(other *hostLink) bool { return other != l || l.reading <= n })
}

// failLimit is the time for which fail waits for earlier messages.
const failLimit = time.Second

// fail implements leaders. A leader whose connection has ended fails without it.
func (x *hostLinks) fail(cause error) {
	ctx, stop := context.WithTimeout(context.Background(), failLimit)
	defer stop()
	text := cause.Error()
	m := header(failedCall, 0, nd.WindowDescriptor{Address: uint64(nd.StatusOf(cause))})
	m = append(m, text[:min(len(text), maxNotice-leaderHeader)]...)
	for _, l := range x.links {
		if l != nil && l.failed == nil {
			_ = x.post(ctx, "fail", l, m)
		}
	}
	_ = x.wait(ctx, "fail", func(l *hostLink) bool { return !l.sending || l.failed != nil }) // else Close could come before
}

// close implements leaders.
func (x *hostLinks) close() error {
	var errs []error
	for _, l := range x.links {
		if l != nil {
			errs = append(errs, l.ep.Close())
		}
	}
	if x.listener != nil {
		errs = append(errs, x.listener.Close())
	}
	return errors.Join(errs...) // the rest ends with the provider
}
