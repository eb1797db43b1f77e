package relay

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"

	"github.com/softnd/softnd/endpoint"
	"github.com/softnd/softnd/internal/testkit/proctest"
	"github.com/softnd/softnd/nd"
	"github.com/softnd/softnd/shm"
)

// busyConn is a connection with transfers until it ends.
type busyConn struct {
	ep        nd.Endpoint
	connector nd.Connector
	queue     nd.CompletionQueue
	received  nd.CompletionQueue
	memory    nd.MemoryRegion
	window    nd.MemoryWindow
	moved     chan struct{} // closed when some requests have completed
}

const busySize = 512 << 10

func newBusyConn(ctx context.Context, ad nd.Adapter) (b *busyConn, err error) {
	b = &busyConn{moved: make(chan struct{})}
	if b.queue, err = ad.CreateCompletionQueue(ctx, 64); err != nil {
		return nil, err
	}
	if b.received, err = ad.CreateCompletionQueue(ctx, 64); err != nil {
		return nil, err
	}
	if b.window, err = ad.CreateMemoryWindow(ctx); err != nil {
		return nil, err
	}
	if b.memory, err = ad.Allocate(ctx, busySize, nd.AllowLocalWrite|nd.AllowRemoteRead|nd.AllowRemoteWrite); err != nil {
		return nil, err
	}
	if b.connector, err = ad.CreateConnector(ctx); err != nil {
		return nil, err
	}
	b.ep, err = ad.CreateEndpoint(ctx, nd.EndpointConfig{ReceiveCQ: b.received, InitiatorCQ: b.queue})
	return b, err
}

// params tells the other side about the memory.
func (b *busyConn) params() nd.ConnectParams {
	d, err := json.Marshal(nd.DescriptorOf(b.memory))
	if err != nil {
		panic(err)
	}
	return nd.ConnectParams{InboundReadLimit: 8, OutboundReadLimit: 8, PrivateData: d}
}

// far returns the memory of the other side.
func (b *busyConn) far() (d nd.WindowDescriptor, err error) {
	private := make([]byte, 512)
	n, err := b.connector.GetPrivateData(private)
	if err != nil {
		return d, err
	}
	return d, json.Unmarshal(private[:n], &d)
}

// unmatched is the number of Receives without a Send.
const unmatched = 4

// run keeps requests in progress until the connection ends. Then it waits for all results.
func (b *busyConn) run(ctx context.Context, far nd.WindowDescriptor, number int) (report connReport, err error) {
	report.Statuses = make(map[string]int)
	receives := unmatched
	if number%4 == 3 { // the other side sends
		receives = 0
	}
	for i := range receives {
		if err := b.ep.Receive(uint64(i), nd.One(nd.SGEOf(b.memory, 0, 8))); err != nil {
			return report, err
		}
	}
	notified := make(chan error, 1)
	waiting, stop := context.WithCancel(ctx)
	defer stop()
	go func() { notified <- b.received.Notify(waiting, nd.NotifyAny) }()
	report.Posted += receives
	half := func(i int) nd.SGL { return nd.One(nd.SGEOf(b.memory, 0, busySize/(1+i%2))) }
	inFlight := 0
	for i := 0; ; {
		for ; inFlight < 8 && b.ep.Err() == nil; i++ {
			switch {
			case number%4 == 3 && i > 16: // nothing receives it
				err = b.ep.Send(uint64(i), half(i), 0)
			case number%4 == 1 && i%10 == 4:
				err = b.ep.Bind(uint64(i), b.memory, b.window, b.memory.Bytes()[:busySize/2], nd.AllowRead|nd.AllowWrite)
			case number%4 == 1 && i%10 == 9:
				err = b.ep.Invalidate(uint64(i), b.window, 0)
			case i%3 == 2:
				err = b.ep.Read(uint64(i), half(i), far.Address, far.Token, 0)
			default:
				err = b.ep.Write(uint64(i), half(i), far.Address, far.Token, 0)
			}
			if err != nil {
				return report, err
			}
			report.Posted++
			inFlight++
		}
		if inFlight == 0 {
			report.Err = nd.StatusOf(b.ep.Err())
			if receives == 0 {
				stop()
				if err := <-notified; !errors.Is(err, nd.Canceled) {
					return report, fmt.Errorf("notify: %w", err)
				}
				return report, nil
			}
			return report, b.finishReceives(ctx, receives, notified, &report)
		}
		var results [8]nd.Result
		n, err := b.queue.Wait(ctx, results[:])
		if err != nil {
			return report, fmt.Errorf("%d requests have no result: %w", inFlight, err)
		}
		inFlight -= n
		before := report.Succeeded
		report.count(results[:n])
		if before < 8 && report.Succeeded >= 8 {
			close(b.moved)
		}
	}
}

// count counts results.
func (r *connReport) count(results []nd.Result) {
	r.Completed += len(results)
	for _, x := range results {
		if x.Status == nd.Success {
			r.Succeeded++
		} else {
			r.Statuses[x.Status.String()]++
		}
	}
}

// finishReceives waits for the results of Receives, and for Notify, which returns because of them.
func (b *busyConn) finishReceives(ctx context.Context, receives int, notified <-chan error, report *connReport) error {
	if err := <-notified; err != nil {
		return fmt.Errorf("notify: %w", err)
	}
	for receives > 0 {
		var results [8]nd.Result
		n, err := b.received.Wait(ctx, results[:])
		if err != nil {
			return fmt.Errorf("%d Receives have no result: %w", receives, err)
		}
		receives -= n
		report.count(results[:n])
	}
	return nil
}

func (b *busyConn) close() error {
	return errors.Join(b.ep.Close(), b.connector.Close(), b.queue.Close(), b.received.Close(), b.window.Close(context.Background()), b.memory.Deregister(context.Background()), b.memory.Close(context.Background()))
}

// busyRank is a rank with such connections.
type busyRank struct {
	member  *shm.Member
	adapter nd.Adapter
	close   func() error
}

func openBusyRank(ctx context.Context, arena *shm.Arena) (*busyRank, error) {
	member, err := arena.Join(shm.NoRank)
	if err != nil {
		return nil, err
	}
	p, err := endpoint.New(member, endpoint.Options{})
	if err != nil {
		return nil, err
	}
	list, err := p.QueryAddressList()
	if err != nil {
		return nil, err
	}
	ad, err := nd.OpenAddress(ctx, p, list[0])
	return &busyRank{member: member, adapter: ad, close: func() error { return errors.Join(p.Close(), member.Leave()) }}, err
}

var busyRole = proctest.Role("busy rank", runBusyRank)

// runBusyRank is the rank of the second host. It says its address, and takes part in rounds: it accepts connections, says
// that all of them work, and reports how they have ended.
func runBusyRank(self *proctest.Self) error {
	ctx := context.Background()
	arena, err := shm.Attach(ctx, self.File(0))
	if err != nil {
		return err
	}
	rank, err := openBusyRank(ctx, arena)
	if err != nil {
		return err
	}
	l, err := rank.adapter.CreateListener(ctx)
	if err != nil {
		return err
	}
	list, err := rank.adapter.QueryAddressList()
	if err != nil {
		return err
	}
	if err := errors.Join(l.Bind(netip.AddrPortFrom(list[0], 0)), l.Listen(0)); err != nil {
		return err
	}
	addr, err := l.LocalAddress()
	if err != nil {
		return err
	}
	self.Say("%v", addr)
	for {
		if line, err := self.Hear(); err != nil {
			return err
		} else if line == "quit" {
			return errors.Join(l.Close(), rank.close(), arena.Close())
		}
		reports := make(chan connReport, failureConns)
		failed := make(chan error, failureConns)
		for i := range failureConns {
			b, err := newBusyConn(ctx, rank.adapter)
			if err != nil {
				return err
			}
			if err := l.GetConnectionRequest(ctx, b.connector); err != nil {
				return err
			}
			far, err := b.far()
			if err != nil {
				return err
			}
			if err := b.connector.Accept(ctx, b.ep, b.params()); err != nil {
				return err
			}
			go func() {
				report, err := b.run(ctx, far, i)
				failed <- errors.Join(err, b.close())
				reports <- report
			}()
			<-b.moved
		}
		self.Say("busy")
		all := make([]connReport, failureConns)
		for i := range all {
			if err := <-failed; err != nil {
				return err
			}
			all[i] = <-reports
		}
		text, err := json.Marshal(all)
		if err != nil {
			return err
		}
		self.Say("%s", text)
	}
}
