package main

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"strconv"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/softnd/softnd"
	"github.com/softnd/softnd/nd"
)

// kill is a rank of c/tests/kill.c: it makes requests on connections with all other ranks, of which one may be killed.

const (
	ranks       = 3
	killSize    = 300_000
	killMessage = 20_000
	killSlots   = 24
	killHello   = 2 * nd.WindowDescriptorSize
	killWords   = killSize - 8*ranks // in memory: a number for each rank, to which only that rank adds
)

// peer is the connection with another rank. Its requests and its receives are counted.
type peer struct {
	ep                 nd.Endpoint
	window             nd.MemoryWindow
	theirs             []nd.WindowDescriptor
	shared, failed     bool
	requests, receives int
}

type killer struct {
	cq                           nd.CompletionQueue
	srq                          nd.SharedReceiveQueue
	memory, secret, inbox, hello nd.MemoryRegion // hello describes the first two to peers
	peers                        [ranks]peer
	sharedReceives               int
	succeeded                    uint64
	words                        []uint64                   // of memory
	counts                       []killCount                // of each rank at each of its peers
	used                         [2 * ranks * killSlots]int // 1: a receive of an endpoint has the slot; 2: one of the shared queue
}

// killCount says how many additions a rank has posted to its number in the memory of a peer, and how many were complete.
type killCount struct{ Posted, Done uint64 }

func (k *killer) count(rank, peer int) *killCount { return &k.counts[rank*ranks+peer] }

// descriptors returns the number of open descriptors.
func descriptors() int { return len(must(os.ReadDir("/proc/self/fd"))) }

func kill() {
	r, w, err := os.Pipe() // with the first pipe the runtime opens descriptors of its own
	must(0, errors.Join(err, r.Close(), w.Close()))
	before := descriptors()
	commands := make(chan byte)
	go func() {
		for b := make([]byte, 1); ; {
			if _, err := io.ReadFull(os.Stdin, b); err != nil {
				close(commands) // the test has ended
				return
			}
			commands <- b[0]
		}
	}()
	if job, err = softnd.Init(ctx, softnd.WithExit()); errors.Is(err, nd.ConnectionAborted) {
		return // another was killed before this rank was ready
	} else if err != nil {
		must(0, err)
	}
	const flags = nd.AllowLocalWrite | nd.AllowRemoteRead | nd.AllowRemoteWrite | nd.AllowRemoteAtomic
	a := job.Adapter()
	k := &killer{
		cq:     must(a.CreateCompletionQueue(ctx, 1024)),
		srq:    must(a.CreateSharedReceiveQueue(ctx, nd.SharedReceiveQueueConfig{Depth: killSlots})),
		memory: must(a.Allocate(ctx, killSize, flags)),
		secret: must(a.Register(ctx, make([]byte, killSize), flags)),
		inbox:  must(a.Allocate(ctx, len(killer{}.used)*killMessage, nd.AllowLocalWrite)),
		hello:  must(a.Allocate(ctx, killHello, nd.AllowLocalWrite)),
	}
	k.words = must(nd.View[uint64](k.memory.Bytes()[killWords:]))
	fd := must(strconv.Atoi(os.Getenv("KILL_COUNTS")))
	k.counts = must(nd.View[killCount](must(syscall.Mmap(fd, 0, 4096, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED))))
	n := copy(k.hello.Bytes(), must(nd.DescriptorOf(k.memory).MarshalBinary()))
	copy(k.hello.Bytes()[n:], must(nd.DescriptorOf(k.secret).MarshalBinary()))
	self := job.Rank()
	for sum := 1; sum < 2*ranks-2; sum++ { // in an order in which no rank waits for one that waits for it
		if other := sum - self; other >= 0 && other < ranks && other != self {
			k.begin(other, 20*time.Second)
		}
	}
	for stopped := false; !stopped; {
		select {
		case <-commands:
			stopped = true
			continue
		default:
		}
		for rank := range k.peers {
			p := &k.peers[rank]
			switch {
			case rank == self:
			case p.ep != nil && (p.failed || rand.IntN(2000) == 0):
				k.finish(rank)
			case p.ep != nil:
				k.postReceives(p)
				for range 6 {
					k.request(rank, p)
				}
			case rand.IntN(10) == 0:
				k.begin(rank, time.Second/5)
			}
		}
		k.poll(time.Millisecond)
	}
	for rank := range k.peers {
		k.finish(rank)
	}
	for _, mr := range []nd.MemoryRegion{k.secret, k.memory, k.inbox, k.hello} {
		ok(mr.Close(ctx))
	}
	for _, c := range []io.Closer{k.srq, k.cq} {
		ok(c.Close())
	}
	ok(binary.Write(os.Stdout, binary.LittleEndian, k.succeeded))
	<-commands
	ok(job.Close())
	for range 1000 { // the runtime closes some of them a little later
		if descriptors() <= before {
			return
		}
		time.Sleep(time.Millisecond)
	}
	check(false, descriptors()-before)
}

// begin connects with a rank, if it still lives.
func (k *killer) begin(rank int, timeout time.Duration) {
	bounded, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	p := &k.peers[rank]
	*p = peer{shared: rand.IntN(2) == 0}
	cfg := nd.EndpointConfig{ReceiveCQ: k.cq, InitiatorCQ: k.cq, Context: uint64(rank), ReceiveDepth: killSlots, InitiatorDepth: 32}
	if p.shared {
		cfg.SharedReceive = k.srq
	}
	ep, err := job.Connect(bounded, rank, cfg)
	if err != nil {
		check(errors.Is(err, nd.HostUnreachable) || errors.Is(err, nd.ConnectionAborted) || errors.Is(err, nd.ConnectionRefused) ||
			errors.Is(err, nd.IOTimeout) || errors.Is(err, context.DeadlineExceeded), err)
		return
	}
	p.ep = ep
	p.window = must(job.Adapter().CreateMemoryWindow(ctx))
	k.postReceives(p)
	p.count(p.ep.Send(1, nd.One(nd.SGEOf(k.hello, 0, killHello)), 0))
}

// count counts a request that was posted.
func (p *peer) count(err error) {
	if err == nil {
		p.requests++
		return
	}
	check(errors.Is(err, nd.NoMoreEntries) || errors.Is(err, nd.ConnectionInvalid), err)
}

func (k *killer) postReceives(p *peer) {
	outstanding, kind := &p.receives, 1
	if p.shared {
		outstanding, kind = &k.sharedReceives, 2
	}
	for i := 0; i < len(k.used) && *outstanding < killSlots; i++ {
		if k.used[i] != 0 {
			continue
		}
		sge := nd.One(nd.SGEOf(k.inbox, i*killMessage, killMessage))
		var err error
		if p.shared {
			err = k.srq.Receive(uint64(i+1), sge)
		} else {
			err = p.ep.Receive(uint64(i+1), sge)
		}
		if err != nil {
			return
		}
		k.used[i] = kind
		*outstanding++
	}
}

func (k *killer) request(rank int, p *peer) {
	n := rand.IntN(60)
	if rand.IntN(5) == 0 {
		n = rand.IntN(killMessage)
	}
	if n == killHello {
		n++
	}
	m := k.memory
	if rand.IntN(2) == 0 {
		m = k.secret
	}
	var sge nd.SGL
	if n > 0 {
		sge = nd.One(nd.SGEOf(m, 0, n))
	}
	switch op := rand.IntN(9); {
	case (op < 3 || op == 8) && p.theirs == nil:
	case op < 2:
		d := p.theirs[rand.IntN(2)]
		p.count(p.ep.Write(2, sge, d.Address, d.Token, 0))
	case op == 2:
		d := p.theirs[rand.IntN(2)]
		p.count(p.ep.Read(2, sge, d.Address, d.Token, 0))
	case op == 8:
		d, self := p.theirs[0], job.Rank()
		atomic.AddUint64(&k.count(self, rank).Posted, 1)
		p.count(p.ep.FetchAndAdd(2, nd.SGEOf(m, 0, 8), d.Address+killWords+uint64(8*self), d.Token, 1, 0))
	case op == 3:
		p.count(p.ep.Send(2, sge, nd.SendAndSolicitEvent))
	case op == 4:
		p.count(p.ep.Bind(3, m, p.window, m.Bytes()[:1+n], nd.AllowRead|nd.AllowWrite))
		p.count(p.ep.Invalidate(3, p.window, 0))
	default:
		p.count(p.ep.Send(2, sge, 0))
	}
}

func (k *killer) poll(timeout time.Duration) {
	bounded, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	var r [16]nd.Result
	n, _ := k.cq.Wait(bounded, r[:])
	for i := range n {
		k.take(&r[i])
	}
}

func (k *killer) take(r *nd.Result) {
	p := &k.peers[r.EndpointContext]
	if r.Status == nd.Success {
		k.succeeded++
	} else {
		p.failed = true
	}
	if r.RequestType == nd.RequestFetchAndAdd && r.Status == nd.Success {
		atomic.AddUint64(&k.count(job.Rank(), int(r.EndpointContext)).Done, 1)
	}
	if r.RequestType != nd.RequestReceive {
		p.requests--
		check(p.requests >= 0, r)
		return
	}
	slot := int(r.RequestContext) - 1
	if k.used[slot] == 2 {
		k.sharedReceives--
	} else {
		p.receives--
	}
	check(k.used[slot] != 0, r)
	k.used[slot] = 0
	if r.Status == nd.Success && r.BytesTransferred == killHello && p.theirs == nil {
		b := k.inbox.Bytes()[slot*killMessage:]
		p.theirs = make([]nd.WindowDescriptor, 2)
		ok(p.theirs[0].UnmarshalBinary(b[:killHello/2]))
		ok(p.theirs[1].UnmarshalBinary(b[killHello/2 : killHello]))
	}
}

// finish waits until all requests of a connection have completed, and releases what it has.
func (k *killer) finish(rank int) {
	p := &k.peers[rank]
	if p.ep == nil {
		return
	}
	deadline := time.Now().Add(10 * time.Second)
	if !p.failed { // else its end completes them
		ok(p.ep.Flush(ctx))
	}
	for p.requests+p.receives > 0 {
		check(time.Now().Before(deadline), *p)
		k.poll(time.Millisecond)
	}
	check(p.ep.Err() != nil, p)
	ok(p.ep.Close())
	ok(p.window.Close(ctx))
	p.ep = nil
	c := k.count(rank, job.Rank())
	done, sum := atomic.LoadUint64(&c.Done), atomic.LoadUint64(&k.words[rank])
	posted := atomic.LoadUint64(&c.Posted)
	check(done <= sum && sum <= posted, []uint64{done, sum, posted})
}
