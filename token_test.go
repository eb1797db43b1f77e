package softnd_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/softnd/softnd"
	"github.com/softnd/softnd/nd"
	"github.com/softnd/softnd/softndtest"
)

// tokenOwner is rank 0 of a job, which grants access to its memory in every way. Rank 1 makes the requests.
type tokenOwner struct {
	jobs    []*softnd.Job
	memory  nd.MemoryRegion
	mapping nd.LogicalMapping
	tokens  map[string]nd.Token
	granted nd.Endpoint // on which window and fast region are bound
}

const tokenMemory = 8192

// newTokenOwner makes a job. Both ranks have an open connection while the tokens are valid.
func newTokenOwner(ctx context.Context, t *testing.T, options ...softnd.Option) *tokenOwner {
	t.Helper()
	o := &tokenOwner{jobs: softndtest.New(t, 2, options...), tokens: map[string]nd.Token{}}
	a := o.jobs[0].Adapter()
	const rights = nd.AllowLocalWrite | nd.AllowRemoteRead | nd.AllowRemoteWrite
	o.memory = softnd.Must(a.Allocate(ctx, tokenMemory, rights))
	o.mapping = softnd.Must(a.BuildLogicalAddressMapping(ctx, o.memory.Bytes()))
	window, fast := softnd.Must(a.CreateMemoryWindow(ctx)), softnd.Must(a.CreateMemoryRegion(ctx))
	softnd.Check(fast.InitializeFastRegister(ctx, tokenMemory/4096+1, true))
	results := softnd.Must(a.CreateCompletionQueue(ctx, 16))
	o.granted, _ = o.connect(ctx, t, results, softnd.Must(o.jobs[1].Adapter().CreateCompletionQueue(ctx, 16)))
	softnd.Check(o.granted.Bind(1, o.memory, window, o.memory.Bytes(), nd.AllowRead|nd.AllowWrite))
	softnd.Must(nd.WaitOne(ctx, results, o.granted))
	softnd.Check(o.granted.FastRegister(2, nd.FastRegistration{Region: fast, Pages: o.mapping.Pages(), Offset: o.mapping.Offset(), Length: tokenMemory, BaseAddress: o.memory.Address(), Rights: rights}, 0))
	softnd.Must(nd.WaitOne(ctx, results, o.granted))
	o.tokens["remote token"], o.tokens["local token"] = o.memory.RemoteToken(), o.memory.LocalToken()
	o.tokens["window"] = window.RemoteToken()
	o.tokens["fast region, remote"], o.tokens["fast region, local"] = fast.RemoteToken(), fast.LocalToken()
	o.tokens["privileged token"] = softnd.Must(a.PrivilegedToken())
	return o
}

// connect connects the ranks.
func (o *tokenOwner) connect(ctx context.Context, t *testing.T, at0, at1 nd.CompletionQueue) (ep0, ep1 nd.Endpoint) {
	t.Helper()
	ended := make(chan error, 1)
	go func() {
		var err error
		ep0, err = o.jobs[0].Connect(ctx, 1, nd.EndpointConfig{ReceiveCQ: at0, InitiatorCQ: at0})
		ended <- err
	}()
	ep1, err := o.jobs[1].Connect(ctx, 0, nd.EndpointConfig{ReceiveCQ: at1, InitiatorCQ: at1})
	if err := errors.Join(err, <-ended); err != nil {
		t.Fatal(err)
	}
	return ep0, ep1
}

// Tokens of one job, and random numbers, give no access in another job: not to the memory of a peer, nor as a local token
// to the own memory. The addresses are right.
func TestTokenOfAnotherJobIsRefused(t *testing.T) {
	for name, executor := range map[string]softnd.Executor{"auto": softnd.ExecutorAuto, "target": softnd.ExecutorTarget} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			here, there := newTokenOwner(ctx, t, softnd.WithExecutor(executor)), newTokenOwner(ctx, t, softnd.WithExecutor(executor))
			seed := rand.Uint64()
			t.Logf("seed %d", seed)
			random := rand.New(rand.NewPCG(seed, 0))
			foreign := there.tokens
			for i := range 20 {
				foreign[fmt.Sprintf("random token %d", i)] = nd.Token(random.Uint32() | 1)
			}
			for name, token := range here.tokens {
				foreign["tag of the "+name] = token ^ 1<<(20+random.IntN(12))
			}
			valid := map[nd.Token]bool{}
			for _, token := range here.tokens {
				valid[token] = true
			}
			for name, token := range foreign {
				if valid[token] && name != "privileged token" {
					continue // one in millions
				}
				here.mustRefuse(ctx, t, name, token)
			}
		})
	}
}

// mustRefuse uses a token in every way.
func (o *tokenOwner) mustRefuse(ctx context.Context, t *testing.T, name string, token nd.Token) {
	t.Helper()
	a := o.jobs[1].Adapter()
	own := softnd.Must(a.Allocate(ctx, tokenMemory, nd.AllowLocalWrite))
	defer own.Close(ctx)
	good := nd.One(nd.SGEOf(own, 0, 64))
	bad := nd.One(nd.SGE{Buffer: own.Bytes()[:64], Token: token})
	at, remote := o.memory.Address(), o.memory.RemoteToken()
	for what, post := range map[string]func(ep nd.Endpoint) error{
		"Write":                  func(ep nd.Endpoint) error { return ep.Write(1, good, at, token, 0) },
		"long Write":             func(ep nd.Endpoint) error { return ep.Write(1, nd.One(nd.SGEOf(own, 0, tokenMemory)), at, token, 0) },
		"Read":                   func(ep nd.Endpoint) error { return ep.Read(1, good, at, token, 0) },
		"SendAndInvalidate":      func(ep nd.Endpoint) error { return ep.SendAndInvalidate(1, good, token, 0) },
		"Write from local token": func(ep nd.Endpoint) error { return ep.Write(1, bad, at, remote, 0) },
		"Read into local token":  func(ep nd.Endpoint) error { return ep.Read(1, bad, at, remote, 0) },
		"Send from local token":  func(ep nd.Endpoint) error { return ep.Send(1, bad, 0) },
	} {
		clear(o.memory.Bytes())
		for i := range own.Bytes() {
			own.Bytes()[i] = 7
		}
		results, theirs := softnd.Must(a.CreateCompletionQueue(ctx, 16)), softnd.Must(o.jobs[0].Adapter().CreateCompletionQueue(ctx, 16))
		peer, ep := o.connect(ctx, t, theirs, results)
		softnd.Check(peer.Receive(2, nd.One(nd.SGEOf(o.memory, 0, 4096))))
		if err := post(ep); err != nil {
			t.Errorf("%s with %s: %v", what, name, err)
		}
		r, err := nd.WaitOne(ctx, results, ep)
		if r.Status != nd.AccessViolation && r.Status != nd.RemoteError {
			t.Errorf("%s with %s: %v, %v", what, name, r, err)
		}
		softnd.Check(errors.Join(ep.Close(), peer.Close(), results.Close(), theirs.Close()))
		for i, b := range own.Bytes() {
			if b != 7 {
				t.Fatalf("%s with %s: byte %d of the own memory has changed", what, name, i)
			}
		}
		for i, b := range o.memory.Bytes() {
			if b != 0 && what != "SendAndInvalidate" { // whose message may arrive
				t.Fatalf("%s with %s: byte %d of the peer's memory has changed", what, name, i)
			}
		}
	}
	if o.granted.Err() != nil {
		t.Fatalf("another connection has ended: %v", o.granted.Err())
	}
}
