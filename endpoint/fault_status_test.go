package endpoint

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"net/netip"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/softnd/softnd/endpoint/internal/cm"
	"github.com/softnd/softnd/faults"
	"github.com/softnd/softnd/nd"
	"github.com/softnd/softnd/shm"
)

// documentedStatuses reads the comments of the methods of an interface of package nd: the statuses that follow a
// word such as "Results:".
func documentedStatuses(t *testing.T, file, interfaceName, word string) map[string][]nd.Status {
	t.Helper()
	f, err := parser.ParseFile(token.NewFileSet(), "../nd/"+file, nil, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	named := statusConstants(t)
	link := regexp.MustCompile(`\[([A-Za-z0-9]+)\]`)
	all := make(map[string][]nd.Status)
	ast.Inspect(f, func(n ast.Node) bool {
		spec, ok := n.(*ast.TypeSpec)
		if !ok || spec.Name.Name != interfaceName {
			return true
		}
		for _, m := range spec.Type.(*ast.InterfaceType).Methods.List {
			if len(m.Names) == 0 {
				continue // an interface that is embedded
			}
			_, text, _ := strings.Cut(m.Doc.Text(), word)
			text, _, _ = strings.Cut(text, "Source:")
			name := m.Names[0].Name
			for _, other := range []string{"Send", "Read", "Invalidate"} { // "those of Send"
				if strings.Contains(text, "those of "+other) || strings.Contains(text, "Those of "+other) {
					all[name] = append(all[name], all[other]...)
				}
			}
			for _, match := range link.FindAllStringSubmatch(text, -1) {
				if s, ok := named[match[1]]; ok && !slices.Contains(all[name], s) {
					all[name] = append(all[name], s)
				}
			}
		}
		return false
	})
	return all
}

// postOf posts a request of side a, for each operation.
var postOf = map[string]func(p *pair){
	"send": func(p *pair) {
		p.b.must(order{Do: doReceive, Parts: mine(0, 8)})
		p.a.must(order{Do: doSend, Parts: mine(0, 8)})
	},
	"send-and-invalidate": func(p *pair) {
		p.b.must(order{Do: doReceive, Parts: mine(0, 8)})
		p.a.must(order{Do: doSendRevoking, Parts: mine(0, 8), Far: p.b.memory})
	},
	"receive": func(p *pair) {
		p.a.must(order{Do: doReceive, Parts: mine(0, 8)})
		p.b.must(order{Do: doSend, Parts: mine(0, 8)})
	},
	"read":  func(p *pair) { p.a.must(order{Do: doRead, Parts: mine(0, 8), Far: p.b.memory}) },
	"write": func(p *pair) { p.a.must(order{Do: doWrite, Parts: mine(0, 8), Far: p.b.memory}) },
	"atomic": func(p *pair) {
		_, far := p.atomicRegion(p.b, false)
		p.a.must(order{Do: doFetchAndAdd, Parts: mine(0, 8), Far: far})
	},
	"bind": func(p *pair) {
		p.a.must(order{Do: doBind, Window: p.a.must(order{Do: doWindow}).N, Len: 8, Flags: nd.AllowRead})
	},
	"invalidate":        func(p *pair) { p.a.must(order{Do: doInvalidate, Window: p.a.must(order{Do: doWindow}).N}) },
	"invalidate-region": func(p *pair) { p.a.must(order{Do: doInvalidateRegion, Region: p.a.fastRegion(4096)}) },
	"fast-register": func(p *pair) {
		p.a.must(order{Do: doFastRegister, Region: p.a.fastRegion(4096), Len: 4096, Far: nd.WindowDescriptor{Address: 1 << 20}})
	},
}

// TestFaultProducesEveryResultStatus: each failure that the comments of nd.Endpoint list for the result of a
// request, of each request, and no other.
func TestFaultProducesEveryResultStatus(t *testing.T) {
	t.Parallel()
	documented := documentedStatuses(t, "endpoint.go", "Endpoint", "Results:")
	every := []nd.Status{nd.Canceled, nd.InvalidDeviceRequest, nd.InternalError}
	produced, plansOfC := 0, string(must(os.ReadFile("../c/tests/faults.plans")))
	for method, operation := range map[string]string{
		"Send": "send", "SendAndInvalidate": "send-and-invalidate", "Receive": "receive", "Read": "read", "Write": "write", "FetchAndAdd": "atomic",
		"Bind": "bind", "Invalidate": "invalidate", "InvalidateRegion": "invalidate-region", "FastRegister": "fast-register",
	} {
		allowed := slices.Concat(documented[method], every)
		if operation == "send" || operation == "send-and-invalidate" {
			allowed = append(allowed, nd.DataError) // the comment of the constant says so
		}
		for name, status := range statusConstants(t) {
			rule := on(operation, faults.Rule{Nth: 1, Action: "fail", Status: status})
			_, err := faults.New(1, rule)
			if want := slices.Contains(allowed, status); want != (err == nil) {
				t.Errorf("a rule that %s fails with %s: %v, documented: %v", operation, name, err, want)
			}
			if err != nil {
				continue
			}
			produced++
			for _, phase := range []string{"execute", "complete"} {
				rule.Phase = phase
				if inC := fmt.Sprintf("status: %s}", name); (operation != "receive" || phase == "execute") && !slices.ContainsFunc(strings.Split(plansOfC, "{"), func(s string) bool {
					return strings.HasPrefix(s, "operation: "+operation+", phase: "+phase+",") && strings.Contains(s, inC)
				}) {
					t.Errorf("c/tests/faults.plans has no rule by which %s fails with %s in the phase %s", operation, name, phase)
				}
				if phase == "complete" && slices.Contains([]string{"receive", "invalidate", "invalidate-region", "send-and-invalidate"}, operation) {
					continue // those requests of the test fail by themselves, or a receive
				}
				t.Run(operation+"/"+name+"/"+phase, func(t *testing.T) {
					p := newFaultyPair(t, setup{}, []faults.Rule{rule}, nil)
					postOf[operation](p)
					q := initiatorQueue
					if operation == "receive" {
						q = receiveQueue
					}
					if got := p.a.results(q, 1)[0]; got.Status != status {
						t.Errorf("the result is %v, want %s", got, name)
					}
					p.ended(status)
					p.a.allFired()
				})
			}
		}
	}
	if produced < 10*len(every)+24 {
		t.Errorf("only %d pairs of request and status", produced)
	}
}

// TestFaultProducesEveryCallStatus: each error that the comments list for Connect, CompleteConnect, Accept, Disconnect,
// CompletionQueue.Notify and Register. The original model completes these calls asynchronously, and also GetConnectionRequest,
// NotifyDisconnect, Deregister and SharedReceiveQueue.Notify, about which a plan has no operation. docs/faults.md has the same list.
func TestFaultProducesEveryCallStatus(t *testing.T) {
	connects := documentedStatuses(t, "connect.go", "Connector", "Errors")
	// In the comment of Connect the words differ: "After the following errors".
	connects["Connect"] = documentedStatuses(t, "connect.go", "Connector", "following errors")["Connect"]
	connects["Accept"] = documentedStatuses(t, "connect.go", "Connector", "following errors")["Accept"]
	notifies := documentedStatuses(t, "completion.go", "CompletionQueue", "Errors")
	registers := documentedStatuses(t, "memory.go", "MemoryRegion", "Errors")
	for _, c := range []struct {
		operation string
		statuses  []nd.Status
	}{
		{"connect", connects["Connect"]},
		{"complete-connect", connects["CompleteConnect"]},
		{"accept", connects["Accept"]},
		{"disconnect", connects["Disconnect"]},
		{"notify", notifies["Notify"]},
		{"register", registers["Register"]},
	} {
		if len(c.statuses) < 3 {
			t.Fatalf("%s: only %v documented", c.operation, c.statuses)
		}
		for _, status := range c.statuses {
			t.Run(c.operation+"/"+status.String(), func(t *testing.T) {
				rule := on(c.operation, faults.Rule{Nth: 1, Action: "fail", Status: status})
				if c.operation == "register" {
					rule.Nth = 2 // newSide makes the first one
				}
				passive := c.operation == "accept"
				rules := [2][]faults.Rule{{rule}, nil}
				if passive {
					rules = [2][]faults.Rule{nil, {rule}}
				}
				p := newFaultyPair(t, setup{Unwired: true}, rules[0], rules[1])
				got, ended := p.callWithFault(c.operation)
				ends := status == nd.ConnectionAborted || status == nd.ConnectionRefused || status == nd.IOTimeout
				if c.operation != "connect" && c.operation != "notify" && c.operation != "register" && ended != ends {
					t.Errorf("the connection has ended: %v", ended)
				}
				if got.Status != status || !strings.Contains(got.Text, "fault rule 1") {
					t.Errorf("%s returns %v: %s", c.operation, got.Status, got.Text)
				}
			})
		}
	}
}

// callWithFault connects the endpoints of p and makes further calls, up to the one that a rule is about. It
// returns the reply to that, and whether it has ended the connection.
func (p *pair) callWithFault(operation string) (r reply, ended bool) {
	addr := p.b.must(order{Do: doListen}).Addr
	switch operation {
	case "notify":
		return replyOf(p.a.queues[0].Notify(p.a.ctx, nd.NotifyAny)), false
	case "register":
		_, err := p.a.adapter.Register(p.a.ctx, []byte{1}, 0)
		return replyOf(err), false
	}
	connect := order{Do: doConnect, Addr: addr}
	if operation == "connect" {
		return p.a.do(connect), false
	}
	accepted, connected := p.b.start(order{Do: doAccept}), p.a.start(connect)
	if operation == "accept" {
		r = <-accepted
		c := p.b.connectorAt(0).(*connector)
		c.mu.Lock()
		ended = c.phase == cm.PhaseEnded
		c.mu.Unlock()
		p.b.must(order{Do: doCloseLink}) // refuses the request, unless the call has done it
		if s := (<-connected).Status; s != nd.ConnectionRefused {
			p.a.t.Errorf("connect: %v", s)
		}
		return r, ended
	}
	<-connected
	endpoint := p.a.endpointAt(0)
	if operation == "complete-connect" {
		r = p.a.do(order{Do: doComplete})
		ended = isClosed(endpoint.Done())
		p.a.must(order{Do: doCloseEndpoint})
		<-accepted
		return r, ended
	}
	p.a.must(order{Do: doComplete})
	<-accepted
	r = p.a.do(order{Do: doDisconnect})
	return r, isClosed(endpoint.Done())
}

// replyOf returns the reply to a call that is to fail.
func replyOf(err error) reply {
	if err == nil {
		return reply{Status: nd.Success}
	}
	return reply{Status: nd.StatusOf(err), Text: err.Error()}
}

func TestFaultRefusesConnection(t *testing.T) {
	for operation, active := range map[string]bool{"connect": true, "connection-request": false} {
		t.Run(operation, func(t *testing.T) {
			rule := []faults.Rule{on(operation, faults.Rule{Nth: 1, Action: "refuse"})}
			rules := [2][]faults.Rule{nil, rule}
			if active {
				rules = [2][]faults.Rule{rule, nil}
			}
			p := newFaultyPair(t, setup{Unwired: true}, rules[0], rules[1])
			addr := p.b.must(order{Do: doListen}).Addr
			c := p.a.connectorAt(0)
			if err := c.Bind(netip.AddrPortFrom(Address(0, p.a.id), 0)); err != nil {
				t.Fatal(err)
			}
			p.a.refuse(nd.ConnectionRefused, order{Do: doConnect, Addr: addr})
			if at, err := c.LocalAddress(); !errors.Is(err, nd.ConnectionInvalid) {
				t.Errorf("after the refusal the connector is bound to %v (%v)", at, err)
			}
			p.connect(addr) // the second attempt succeeds, with the same connector
			p.a.must(order{Do: doWrite, Parts: mine(0, 8), Far: p.b.memory})
			p.a.expect(initiatorQueue, success(nd.RequestWrite, 0, 8))
		})
	}
}

func TestFaultExhaustsMemory(t *testing.T) {
	rules := []faults.Rule{}
	for _, operation := range []string{"allocate", "register", "create-window", "create-completion-queue", "create-endpoint"} {
		nth := map[string]int{"register": 2, "create-completion-queue": 3, "create-endpoint": 2, "allocate": 2}[operation] // newSide makes some
		rules = append(rules, on(operation, faults.Rule{Nth: max(nth, 1), Action: "exhaust", Name: "no memory for " + operation}))
	}
	p := newFaultyPair(t, setup{Unwired: true}, rules, nil)
	s := p.a
	calls := map[string]func() error{
		"allocate": func() error { _, err := s.adapter.Allocate(s.ctx, 1<<20, 0); return err },
		"register": func() error { _, err := s.adapter.Register(s.ctx, []byte{1}, 0); return err },
		"create-window": func() error {
			w, err := s.adapter.CreateMemoryWindow(s.ctx)
			if err == nil {
				w.Close(s.ctx)
			}
			return err
		},
		"create-completion-queue": func() error { _, err := s.adapter.CreateCompletionQueue(s.ctx, 1); return err },
		"create-endpoint":         func() error { return s.addEndpoint(s.ctx, new(reply)) },
	}
	before := s.member.InUse()
	for operation, call := range calls {
		err := call()
		limit, isNoMemory := errors.AsType[*shm.NoMemoryError](err)
		if !errors.Is(err, nd.NoMemory) || !isNoMemory || !strings.Contains(err.Error(), "no memory for "+operation) {
			t.Errorf("%s: %v", operation, err)
		} else if operation == "allocate" && limit.Requested != 1<<20 {
			t.Errorf("%s: asked %d", operation, limit.Requested)
		}
		if operation == "create-window" {
			if err := call(); err != nil {
				t.Errorf("the second %s: %v", operation, err)
			}
		}
	}
	if after := s.member.InUse(); after != before {
		t.Errorf("%d bytes are not freed", after-before)
	}
	p.a.allFired()
}

// TestFaultCallsMatch: a rule sees the rank's peer, endpoint and window, and the size.
func TestFaultDescribesOperations(t *testing.T) {
	fail := faults.Rule{Phase: "post", Action: "fail", Status: nd.InsufficientResources}
	rule := func(operation string, change func(*faults.Rule)) faults.Rule {
		r := on(operation, fail)
		change(&r)
		return r
	}
	p := newFaultyPair(t, setup{Both: sideOptions{SGE: 4}}, []faults.Rule{
		rule("write", func(r *faults.Rule) { r.MinSize, r.MaxSize = 100, 200 }),
		rule("write", func(r *faults.Rule) { r.Endpoint = 2 }),
		rule("bind", func(r *faults.Rule) { r.Window = 2 }),
		rule("read", func(r *faults.Rule) { r.Window = 2 }),
		rule("send", func(r *faults.Rule) { r.Peers = []int{3} }),
	}, nil)
	write := order{Do: doWrite, Far: p.b.memory}
	for n, refused := range map[int]bool{0: false, 99: false, 100: true, 200: true, 201: false} {
		write.Parts = mine(0, n)
		if r := p.a.do(write); (r.Status == nd.InsufficientResources) != refused {
			t.Errorf("a Write of %d bytes: %v", n, r.Status)
		}
	}
	write.Parts = mine(0, 8)
	if write.Endpoint = p.addEndpoints(p.b.listen(0)); p.a.do(write).Status != nd.InsufficientResources {
		t.Error("a Write on endpoint 2 does not match")
	}
	bind := order{Do: doBind, Len: 8, Flags: nd.AllowRead}
	first, second := p.a.must(order{Do: doWindow}).N, p.a.must(order{Do: doWindow}).N
	bind.Window = first
	p.a.must(bind)
	bind.Window = second
	p.a.refuse(nd.InsufficientResources, bind)
	other := p.b.must(order{Do: doRegion, Len: 64, Rights: nd.AllowRemoteRead | nd.AllowLocalWrite}).Far
	read := order{Do: doRead, Parts: mine(0, 8), Far: p.b.memory}
	p.a.must(read)
	read.Far = other
	p.a.refuse(nd.InsufficientResources, read)
	read.Far = p.b.memory
	p.a.must(read)
	p.b.must(order{Do: doReceive})
	p.a.must(order{Do: doSend}) // the peer is no rank
	if matched, fired := p.a.plan.Counts(4); matched+fired != 0 {
		t.Errorf("a rule about rank 3 matched %d operations", matched)
	}
	p.a.results(initiatorQueue, 7)
}

// TestFaultNumbersEndpointsOfCalls: a rule can name the endpoint that a call creates or connects.
func TestFaultNumbersEndpointsOfCalls(t *testing.T) {
	fail := faults.Rule{Action: "fail", Status: nd.InsufficientResources, Endpoint: 2}
	p := newFaultyPair(t, setup{Unwired: true}, nil, []faults.Rule{on("create-endpoint", fail)})
	s := p.b // it has endpoint 1
	if err := s.addEndpoint(s.ctx, new(reply)); !errors.Is(err, nd.InsufficientResources) {
		t.Errorf("endpoint 2 is created: %v", err)
	}
	if matched, fired := s.plan.Counts(0); matched != 1 || fired != 1 {
		t.Errorf("the rule about endpoint 2 matched %d calls, and acted at %d", matched, fired)
	}
	if err := s.addEndpoint(s.ctx, new(reply)); err != nil {
		t.Errorf("the next endpoint has the number of the failed one: %v", err)
	}
	p = newFaultyPair(t, setup{Unwired: true}, nil, []faults.Rule{on("accept", faults.Rule{Action: "fail", Status: nd.InsufficientResources, Endpoint: 1}), on("accept", faults.Rule{Action: "kill", Endpoint: 2})})
	if r, _ := p.callWithFault("accept"); r.Status != nd.InsufficientResources {
		t.Errorf("accept with endpoint 1: %v", r.Status)
	}
}
