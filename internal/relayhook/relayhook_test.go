package relayhook_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/softnd/softnd/endpoint"
	"github.com/softnd/softnd/internal/relayhook"
	"github.com/softnd/softnd/internal/testkit/proctest"
	"github.com/softnd/softnd/nd"
	"github.com/softnd/softnd/shm"
)

// node is a member with an adapter, a queue and an endpoint.
type node struct {
	t        *testing.T
	ctx      context.Context
	provider *endpoint.Provider
	adapter  nd.Adapter
	queue    nd.CompletionQueue
	ep       nd.Endpoint
	address  netip.Addr
	leave    func()
}

// must returns v, or panics: the error fails the test.
func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func newNode(t *testing.T, arena *shm.Arena, o endpoint.Options) *node {
	t.Helper()
	n := &node{t: t, ctx: proctest.Context(t)}
	member := must(arena.Join(shm.NoRank))
	return n.open(member, o)
}

func (n *node) open(member *shm.Member, o endpoint.Options) *node {
	t := n.t
	t.Helper()
	if o.ReceiveTimeout == 0 { // the default is short for a busy machine
		o.ReceiveTimeout = proctest.Timeout
	}
	var err error
	if n.provider, err = endpoint.New(member, o); err != nil {
		t.Fatal(err)
	}
	n.leave = sync.OnceFunc(func() {
		if err := errors.Join(n.provider.Close(), member.Leave()); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(n.leave)
	n.address = endpoint.Address(member.Arena().Host(), member.ID())
	n.adapter = must(n.provider.OpenAdapter(n.ctx, must(n.provider.ResolveAddress(n.address))))
	n.queue = must(n.adapter.CreateCompletionQueue(n.ctx, 256))
	n.renew()
	return n
}

// renew replaces the endpoint.
func (n *node) renew() {
	if n.ep != nil {
		n.ep.Close()
	}
	n.ep = must(n.adapter.CreateEndpoint(n.ctx, nd.EndpointConfig{ReceiveCQ: n.queue, InitiatorCQ: n.queue, InitiatorDepth: 128}))
}

// far is the memory of another host that a rank reads and writes, and the messages that it has received.
type far struct {
	base     uint64
	token    nd.Token
	memory   []byte
	messages [][]byte
	part     []byte
}

// rig is a rank that is connected to a relay.
type rig struct {
	t     *testing.T
	rank  *node
	relay *node
	hook  relayhook.Endpoint
	far   far
}

func newRig(t *testing.T, executor endpoint.Executor) *rig {
	t.Helper()
	arena := newArena(t, 0)
	r := &rig{t: t, relay: newNode(t, arena, endpoint.Options{Forward: true}), rank: newNode(t, arena, endpoint.Options{Executor: executor}),
		far: far{base: 0x7fff_0000_1000, token: 0x80_123, memory: make([]byte, 1<<20)}}
	r.hook = r.relay.ep.(relayhook.Endpoint)
	l := r.relay.listen(7)
	_, done := r.rank.dial(netip.AddrPort{}, netip.AddrPortFrom(r.relay.address, 7))
	r.relay.accept(l)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	return r
}

// region returns memory of the rank, filled with a pattern.
func (r *rig) region(size int, private bool) nd.MemoryRegion {
	r.t.Helper()
	const rights = nd.AllowLocalWrite | nd.AllowRemoteRead | nd.AllowRemoteWrite
	var mr nd.MemoryRegion
	var err error
	if private {
		mr, err = r.rank.adapter.Register(r.rank.ctx, make([]byte, size), rights)
	} else {
		mr, err = r.rank.adapter.Allocate(r.rank.ctx, size, rights)
	}
	if err != nil {
		r.t.Fatal(err)
	}
	for i := range mr.Bytes() {
		mr.Bytes()[i] = byte(i * 7)
	}
	return mr
}

// next takes the next entry.
func (r *rig) next() *relayhook.Request {
	r.t.Helper()
	q := new(relayhook.Request)
	proctest.Eventually(r.t, "a ring entry", func() bool { return r.hook.HasNext() && r.hook.Next(q) })
	return q
}

// execute executes an entry as the other host would, without completing it.
func (r *rig) execute(q *relayhook.Request) nd.Status {
	f := &r.far
	if q.Kind != relayhook.Send && (q.Token != f.token || q.Address < f.base || q.Address-f.base+q.Length > uint64(len(f.memory))) {
		r.t.Fatalf("the entry names token %v and %d bytes at %#x", q.Token, q.Length, q.Address)
	}
	to := f.memory
	switch q.Kind {
	case relayhook.Read:
		return r.hook.Store(q, 0, f.memory[q.Address-f.base:][:q.Length])
	case relayhook.Write:
		to = f.memory[q.Address-f.base:][:q.Length]
	case relayhook.Send:
		to = make([]byte, q.Length)
	}
	for at := uint64(0); at < q.Length; at += 5000 { // in parts
		if s := r.hook.Fetch(q, at, to[at:min(at+5000, q.Length)]); s != nd.Success {
			return s
		}
	}
	if q.Kind == relayhook.Send {
		if f.part = append(f.part, to...); q.Last {
			f.messages, f.part = append(f.messages, f.part), nil
		}
	}
	return nd.Success
}

// carry executes and completes entries until the rank has a result.
func (r *rig) carry() nd.Result {
	r.t.Helper()
	var q relayhook.Request
	var results [1]nd.Result
	proctest.Eventually(r.t, "a result", func() bool {
		for r.hook.HasNext() && r.hook.Next(&q) {
			if s := r.execute(&q); s != nd.Success {
				r.t.Fatalf("entry %d: %v", q.Number, s)
			}
			r.hook.Complete(q.Number + 1)
		}
		return r.rank.queue.Poll(results[:]) == 1
	})
	return results[0]
}

func (r *rig) isIdle() bool {
	var results [1]nd.Result
	return r.rank.queue.Poll(results[:]) == 0
}

func forEach(t *testing.T, test func(t *testing.T, r *rig, private bool)) {
	for _, executor := range []endpoint.Executor{endpoint.Auto, endpoint.Target} {
		for _, private := range []bool{false, true} {
			t.Run(fmt.Sprintf("executor %d, private %t", executor, private), func(t *testing.T) { test(t, newRig(t, executor), private) })
		}
	}
}

// Requests of all kinds and sizes reach the relay unchanged, with a token that the rank's arena does not have.
func TestRequests(t *testing.T) {
	forEach(t, func(t *testing.T, r *rig, private bool) {
		mr := r.region(600<<10, private)
		for i, n := range []int{1, 8, 40, 41, 48, 49, 4096, 65536, 65537, 500 << 10} {
			parts := nd.List(nd.SGEOf(mr, 3, n/3), nd.SGEOf(mr, 3+n/3, n-n/3))
			want := bytes.Clone(mr.Bytes()[3 : 3+n])
			to := r.far.base + 11
			check := func(kind nd.RequestType, err error) {
				t.Helper()
				if err != nil {
					t.Fatal(err)
				}
				if have := r.carry(); have.Status != nd.Success || have.RequestContext != uint64(i) || have.RequestType != kind || have.BytesTransferred != uint32(n) {
					t.Fatalf("%d bytes: %+v", n, have)
				}
			}
			check(nd.RequestSend, r.rank.ep.Send(uint64(i), parts, 0))
			if !bytes.Equal(r.far.messages[len(r.far.messages)-1], want) {
				t.Fatalf("a message of %d bytes arrives damaged", n)
			}
			check(nd.RequestWrite, r.rank.ep.Write(uint64(i), parts, to, r.far.token, 0))
			if !bytes.Equal(r.far.memory[11:11+n], want) {
				t.Fatalf("a Write of %d bytes arrives damaged", n)
			}
			clear(mr.Bytes()[3 : 3+n])
			check(nd.RequestRead, r.rank.ep.Read(uint64(i), parts, to, r.far.token, 0))
			if !bytes.Equal(mr.Bytes()[3:3+n], want) {
				t.Fatalf("a Read of %d bytes arrives damaged", n)
			}
		}
	})
}

// Small requests of one entry, which take the fast paths otherwise.
func TestFastPathsAreNotTaken(t *testing.T) {
	forEach(t, func(t *testing.T, r *rig, private bool) {
		mr := r.region(4096, private)
		one := nd.One(nd.SGEOf(mr, 0, 8))
		for name, post := range map[string]func() error{
			"send":  func() error { return r.rank.ep.Send(1, one, 0) },
			"write": func() error { return r.rank.ep.Write(1, one, r.far.base, r.far.token, 0) },
			"read":  func() error { return r.rank.ep.Read(1, one, r.far.base, r.far.token, 0) },
		} {
			if err := post(); err != nil {
				t.Fatal(err)
			}
			q := r.next()
			if s := r.execute(q); s != nd.Success || !r.isIdle() {
				t.Fatalf("%s: %v, or the request is complete although the relay has not completed it", name, s)
			}
			r.hook.Complete(q.Number + 1)
			if have := r.carry(); have.Status != nd.Success {
				t.Fatalf("%s: %+v", name, have)
			}
		}
	})
}

// The flags and the token of a Send travel.
func TestSendFlags(t *testing.T) {
	r := newRig(t, endpoint.Auto)
	mr := r.region(4096, false)
	if err := r.rank.ep.SendAndInvalidate(1, nd.One(nd.SGEOf(mr, 0, 8)), 0x99, nd.SendAndSolicitEvent); err != nil {
		t.Fatal(err)
	}
	if q := r.next(); !q.Invalidate || !q.Solicited || q.Token != 0x99 || !q.First || !q.Last || q.Total != 8 {
		t.Errorf("%+v", q)
	}
}

// The request that fails has its status, those before it succeed, and those after it are canceled.
func TestFail(t *testing.T) {
	for _, status := range []nd.Status{nd.AccessViolation, nd.RemoteError, nd.IOTimeout, nd.NotSupported} {
		t.Run(status.String(), func(t *testing.T) {
			r := newRig(t, endpoint.Auto)
			mr := r.region(4096, false)
			for i := range 3 {
				if err := r.rank.ep.Write(uint64(i), nd.One(nd.SGEOf(mr, 0, 100)), r.far.base, r.far.token, 0); err != nil {
					t.Fatal(err)
				}
			}
			r.next()
			second := r.next()
			r.next()
			r.hook.Fail(second.Number, status, "refused by the other host")
			var have []nd.Status
			var results [3]nd.Result
			proctest.Eventually(t, "three results", func() bool {
				for _, x := range results[:r.rank.queue.Poll(results[:])] {
					have = append(have, x.Status)
				}
				return len(have) == 3
			})
			if want := []nd.Status{nd.Success, status, nd.Canceled}; !slices.Equal(have, want) {
				t.Errorf("%v, want %v", have, want)
			}
			if err := r.rank.ep.Err(); nd.StatusOf(err) != status || !strings.Contains(err.Error(), "refused by the other host") {
				t.Errorf("the endpoint's error is %v", err)
			}
		})
	}
}

func TestAbort(t *testing.T) {
	r := newRig(t, endpoint.Auto)
	mr := r.region(4096, false)
	if err := r.rank.ep.Send(1, nd.One(nd.SGEOf(mr, 0, 8)), 0); err != nil {
		t.Fatal(err)
	}
	q := r.next()
	r.hook.Abort("the link has failed")
	r.hook.Complete(q.Number + 1) // too late
	if s := r.hook.Fetch(q, 0, make([]byte, 1)); s != nd.Success {
		t.Errorf("data of an entry that was taken before: %v", s)
	}
	if have := r.carry(); have.Status != nd.Canceled {
		t.Errorf("%+v", have)
	}
	if err := r.rank.ep.Err(); nd.StatusOf(err) != nd.ConnectionAborted || !strings.Contains(err.Error(), "the link has failed") {
		t.Errorf("the endpoint's error is %v", err)
	}
}

// The relay reads and writes the rank's memory through the guard only.
func TestGuard(t *testing.T) {
	r := newRig(t, endpoint.Auto)
	mr := r.region(4096, false)
	if err := r.rank.ep.Send(1, nd.One(nd.SGEOf(mr, 0, 1000)), 0); err != nil {
		t.Fatal(err)
	}
	q := r.next()
	for _, c := range []struct {
		at   uint64
		n    int
		want nd.Status
	}{{0, 1000, nd.Success}, {999, 1, nd.Success}, {1000, 0, nd.Success}, {999, 2, nd.AccessViolation}, {1001, 0, nd.AccessViolation}, {1<<64 - 1, 1, nd.AccessViolation}} {
		if have := r.hook.Fetch(q, c.at, make([]byte, c.n)); have != c.want {
			t.Errorf("%d bytes from %d on: %v, want %v", c.n, c.at, have, c.want)
		}
	}
	if err := mr.Deregister(r.rank.ctx); err != nil {
		t.Fatal(err)
	}
	if have := r.hook.Fetch(q, 0, make([]byte, 1)); have != nd.AccessViolation {
		t.Errorf("from memory that was deregistered: %v", have)
	}
	if have := r.hook.Store(q, 0, make([]byte, 1)); have != nd.AccessViolation {
		t.Errorf("to memory that was deregistered: %v", have)
	}
}

// The other direction is that of any endpoint.
func TestRequestsOfTheRelay(t *testing.T) {
	r := newRig(t, endpoint.Auto)
	mr := r.region(4096, false)
	own := must(r.relay.adapter.Allocate(r.relay.ctx, 4096, nd.AllowLocalWrite))
	if err := r.rank.ep.Receive(5, nd.One(nd.SGEOf(mr, 0, 100))); err != nil {
		t.Fatal(err)
	}
	copy(own.Bytes(), "message")
	if err := r.relay.ep.Send(6, nd.One(nd.SGEOf(own, 0, 7)), 0); err != nil {
		t.Fatal(err)
	}
	if have := must(nd.WaitOne(r.relay.ctx, r.relay.queue, r.relay.ep)); have.RequestContext != 6 {
		t.Errorf("%+v", have)
	}
	if have := must(nd.WaitOne(r.rank.ctx, r.rank.queue, r.rank.ep)); have.RequestContext != 5 || string(mr.Bytes()[:7]) != "message" {
		t.Errorf("%+v, %q", have, mr.Bytes()[:7])
	}
	if err := r.relay.ep.Receive(1, nd.One(nd.SGEOf(own, 0, 7))); nd.StatusOf(err) != nd.InvalidDeviceRequest {
		t.Errorf("a Receive of a relay: %v", err)
	}
}
