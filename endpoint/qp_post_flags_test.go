package endpoint

import (
	"context"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"runtime"
	"slices"
	"testing"

	"github.com/softnd/softnd/internal/testkit/proctest"
	"github.com/softnd/softnd/nd"
)

// inert holds the flags that change nothing by their own definition.
var inert = map[string]string{
	"RDMAReadSink":  "only adapters that want to be told need it, and it must not harm elsewhere",
	"DoNotSecureVM": "it has a meaning on Windows only, and is accepted and ignored",
}

// effects describe the outcome with a flag and without it. The flag is passed as its
// number, 0 for none.
var effects = map[string]func(t *testing.T, flag uint32) string{
	"SilentSuccess": func(t *testing.T, flag uint32) string {
		p := newPair(t, setup{})
		p.a.must(order{Do: doWrite, Context: 1, Parts: mine(0, 8), Far: p.b.memory, Flags: nd.OpFlags(flag)})
		p.a.must(order{Do: doWrite, Context: 2, Parts: mine(0, 8), Far: p.b.memory})
		return fmt.Sprint("first result: ", p.a.results(initiatorQueue, 1)[0].RequestContext)
	},
	"ReadFence": readFenceEffect,
	"SendAndSolicitEvent": func(t *testing.T, flag uint32) string {
		p := newPair(t, setup{})
		return "solicited: " + notified(t, p, nd.NotifySolicited, func() {
			p.b.must(order{Do: doReceive})
			p.a.must(order{Do: doSend, Flags: nd.OpFlags(flag)})
		})
	},
	"AllowRead":   func(t *testing.T, flag uint32) string { return bindFlagEffect(t, nd.OpFlags(flag), doRead) },
	"AllowAtomic": func(t *testing.T, flag uint32) string { return bindFlagEffect(t, nd.OpFlags(flag), doSwap) },
	"AllowWrite":  func(t *testing.T, flag uint32) string { return bindFlagEffect(t, nd.OpFlags(flag), doWrite) },
	"Inline": func(t *testing.T, flag uint32) string {
		p := newPair(t, setup{Both: sideOptions{InlineSize: 8}})
		parts := []part{{Len: 8, Token: 1}} // no such token
		p.a.must(order{Do: doWrite, Parts: parts, Far: p.b.memory, Flags: nd.OpFlags(flag)})
		return p.a.results(initiatorQueue, 1)[0].Status.String()
	},
	"ReadLocalInvalidate": func(t *testing.T, flag uint32) string {
		p := newPair(t, setup{})
		r := p.a.fastRegion(8)
		p.a.register(r, 0, 8)
		sink := []part{{Region: r, Len: 8}}
		p.a.must(order{Do: doRead, Context: 1, Parts: sink, Far: p.b.memory, Flags: nd.OpFlags(flag)})
		p.a.must(order{Do: doRead, Context: 2, Parts: sink, Far: p.b.memory})
		return "then it is " + p.a.results(initiatorQueue, 2)[1].Status.String()
	},
	"Defer": func(t *testing.T, flag uint32) string {
		p := newPair(t, setup{})
		p.a.must(order{Do: doWrite, Context: 1, Parts: mine(0, 8), Far: p.b.memory, Flags: nd.OpFlags(flag)})
		n := len(p.a.must(order{Do: doPoll, Queue: initiatorQueue, N: 4}).Results)
		p.a.must(order{Do: doWrite, Context: 2, Parts: mine(0, 8), Far: p.b.memory})
		p.a.results(initiatorQueue, 2-n)
		return fmt.Sprint("results before the next post: ", n)
	},
	"ThisEndpointOnly": func(t *testing.T, flag uint32) string {
		p := newPair(t, setup{})
		other := p.addEndpoints(p.b.listen(0))
		far := p.a.must(order{Do: doBind, Window: p.a.newWindow(), Len: 8, Flags: nd.AllowWrite | nd.OpFlags(flag)}).Far
		p.a.results(initiatorQueue, 1)
		p.b.must(order{Do: doWrite, Endpoint: other, Parts: mine(0, 8), Far: far})
		return "over another connection: " + p.b.results(initiatorQueue, 1)[0].Status.String()
	},

	"AllowLocalWrite": func(t *testing.T, flag uint32) string {
		p := newPair(t, setup{})
		r := p.b.must(order{Do: doRegion, Len: 100, Rights: nd.RegionFlags(flag)}).N
		p.b.must(order{Do: doReceive, Parts: []part{{Region: r, Len: 100}}})
		p.a.must(order{Do: doSend, Parts: mine(0, 8)})
		return p.b.results(receiveQueue, 1)[0].Status.String()
	},
	"AllowRemoteRead": func(t *testing.T, flag uint32) string { return regionEffect(t, nd.RegionFlags(flag), doRead) },
	"AllowRemoteWrite": func(t *testing.T, flag uint32) string {
		return regionEffect(t, nd.RegionFlags(flag)|nd.AllowLocalWrite, doWrite)
	},

	"AllowRemoteAtomic": func(t *testing.T, flag uint32) string {
		return regionEffect(t, nd.RegionFlags(flag)|nd.AllowLocalWrite, doSwap)
	},

	"HugePages": func(t *testing.T, flag uint32) string {
		return placementEffect(t, nd.RegionFlags(flag)|nd.RequirePlacement)
	},
	"Prefault": func(t *testing.T, flag uint32) string {
		return placementEffect(t, nd.RegionFlags(flag)|nd.RequirePlacement)
	},
	"RequirePlacement": func(t *testing.T, flag uint32) string { return placementEffect(t, nd.RegionFlags(flag)|noNode) },

	"NotifyErrors":    func(t *testing.T, kind uint32) string { return notifyEffect(t, nd.NotifyType(kind)) },
	"NotifyAny":       func(t *testing.T, kind uint32) string { return notifyEffect(t, nd.NotifyType(kind)) },
	"NotifySolicited": func(t *testing.T, kind uint32) string { return notifyEffect(t, nd.NotifyType(kind)) },
}

// readFenceEffect: a Read waits for the peer. Does an Invalidate that follows take effect before?
func readFenceEffect(t *testing.T, flag uint32) string {
	p := newPair(t, setup{Executors: [2]Executor{Target, Target}})
	other := p.addEndpoints(p.b.listen(0))
	w := p.a.newWindow()
	far := p.a.must(order{Do: doBind, Window: w, Len: 8, Flags: nd.AllowWrite}).Far
	p.a.results(initiatorQueue, 1)
	// The peer serves nothing on the first connection while its lock is held.
	serving := p.b.endpointAt(0).(*queuePair)
	serving.mu.Lock()
	p.a.must(order{Do: doRead, Context: 1, Parts: mine(0, 8), Far: p.b.memory})
	p.a.must(order{Do: doInvalidate, Context: 2, Window: w, Flags: nd.OpFlags(flag)})
	p.b.must(order{Do: doWrite, Endpoint: other, Parts: mine(0, 8), Far: far})
	status := p.b.results(initiatorQueue, 1)[0].Status
	serving.mu.Unlock()
	p.a.results(initiatorQueue, 2)
	return "a Write through the window: " + status.String()
}

// bindFlagEffect uses a window that was bound with flags only.
func bindFlagEffect(t *testing.T, flags nd.OpFlags, do verb) string {
	p := newPair(t, setup{})
	far := p.b.must(order{Do: doBind, Window: p.b.newWindow(), Len: 8, Flags: flags}).Far
	p.b.results(initiatorQueue, 1)
	p.a.must(order{Do: do, Parts: mine(0, 8), Far: far})
	return p.a.results(initiatorQueue, 1)[0].Status.String()
}

// regionEffect uses a region's own remote token.
func regionEffect(t *testing.T, flags nd.RegionFlags, do verb) string {
	p := newPair(t, setup{})
	far := p.b.must(order{Do: doRegion, Len: 8, Rights: flags}).Far
	p.a.must(order{Do: do, Parts: mine(0, 8), Far: far})
	return p.a.results(initiatorQueue, 1)[0].Status.String()
}

// placementEffect allocates memory.
func placementEffect(t *testing.T, flags nd.RegionFlags) string {
	s := newUnconnected(t)
	mr, err := s.adapter.Allocate(s.ctx, 8, flags)
	if err != nil {
		return nd.StatusOf(err).String()
	}
	return "placement " + mr.Placement().String()
}

// notifyEffect names the events that end a Notify.
func notifyEffect(t *testing.T, kind nd.NotifyType) (ends string) {
	for _, event := range []struct {
		name string
		make func(*pair)
	}{
		{"message", func(p *pair) { p.b.must(order{Do: doReceive}); p.a.must(order{Do: doSend}) }},
		{"solicited", func(p *pair) {
			p.b.must(order{Do: doReceive})
			p.a.must(order{Do: doSend, Flags: nd.SendAndSolicitEvent})
		}},
		{"failure", func(p *pair) { p.b.must(order{Do: doReceive}); p.b.must(order{Do: doFlush}) }},
	} {
		p := newPair(t, setup{})
		ends += fmt.Sprintf(" %s: %s;", event.name, notified(t, p, kind, func() { event.make(p) }))
	}
	return ends
}

// notified reports whether something ends a Notify of b's receive queue.
func notified(t *testing.T, p *pair, kind nd.NotifyType, something func()) string {
	q := p.b.queues[receiveQueue]
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := soon(func() error { return q.Notify(ctx, kind) })
	something()
	proctest.Eventually(t, "the result is there", func() bool { return q.(*completionQueue).filled() })
	for waits := false; ; waits = q.(*completionQueue).waited() {
		select {
		case err := <-ended:
			if err != nil {
				t.Error(err)
			}
			return "ends"
		default:
		}
		if waits {
			cancel()
			<-ended
			return "waits"
		}
		runtime.Gosched()
	}
}

// waited reports whether a Notify waits that no result so far has released.
func (q *completionQueue) waited() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.events.Calls) > 0
}

// filled reports whether the queue has a result, without taking it.
func (q *completionQueue) filled() bool {
	q.progressAll()
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.ring.Head.Load() != q.ring.Tail.Load()
}

// TestEveryFlagHasEffect finds another outcome with each flag than without it. It fails for a flag that changes nothing.
func TestEveryFlagHasEffect(t *testing.T) {
	flags := flagConstants(t)
	for name, flag := range flags {
		effect, ok := effects[name]
		if why := inert[name]; ok == (why != "") {
			t.Errorf("%s: has an effect: %v; is inert: %q", name, ok, why)
		}
		if !ok {
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			others := []uint32{0}
			if flag.kind == "NotifyType" { // which are no flags: one of them is always given
				others = nil
				for _, other := range flags {
					if other.kind == flag.kind && other != flag {
						others = append(others, other.value)
					}
				}
			}
			with := effect(t, flag.value)
			for _, other := range others {
				if got := effect(t, other); got == with {
					t.Errorf("the same with %#x and with %#x: %s", flag.value, other, got)
				} else {
					t.Logf("with %#x: %s; with %#x: %s", flag.value, with, other, got)
				}
			}
		})
	}
	for _, name := range slices.Concat(slices.Collect(maps.Keys(effects)), slices.Collect(maps.Keys(inert))) {
		if _, ok := flags[name]; !ok {
			t.Errorf("%s is no flag of package nd", name)
		}
	}
	t.Logf("%d flags: %d matter, %d are defined not to", len(flags), len(effects), len(inert))
}

type flagConstant struct {
	kind  string
	value uint32
}

// flagConstants reads the flags of requests, registrations and notifications from the source: those
// that a program passes to the provider. A program does not pass AdapterFlags.
func flagConstants(t *testing.T) map[string]flagConstant {
	f, err := parser.ParseFile(token.NewFileSet(), "../nd/flags.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	all := make(map[string]flagConstant)
	ast.Inspect(f, func(n ast.Node) bool {
		v, ok := n.(*ast.ValueSpec)
		if !ok || len(v.Values) != 1 {
			return true
		}
		typ, ok := v.Type.(*ast.Ident)
		value, isNumber := v.Values[0].(*ast.BasicLit)
		if !ok || !isNumber || !v.Names[0].IsExported() || !slices.Contains([]string{"OpFlags", "RegionFlags", "NotifyType"}, typ.Name) {
			return true
		}
		var n32 uint32
		if _, err := fmt.Sscanf(value.Value, "%v", &n32); err != nil {
			t.Fatal(err)
		}
		all[v.Names[0].Name] = flagConstant{typ.Name, n32}
		return true
	})
	if len(all) < 17 {
		t.Fatalf("only %d flags found", len(all))
	}
	return all
}
