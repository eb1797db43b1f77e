package endpoint

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/softnd/softnd/internal/testkit/proctest"
	"github.com/softnd/softnd/internal/testkit/scale"
	"github.com/softnd/softnd/nd"
)

// The oracle makes random calls at both ends of a connection, and predicts from a sequential
// model what each result must be and what memory must hold. See oracleSide for the model.

const oracleOps = "SOFTND_ORACLE" // operations with each pair of executors, instead of some seconds

// oracle tries one connection after the other between two sides.
type oracle struct {
	*rand.Rand
	t       testing.TB
	seed    uint64 // of the connection
	sides   [2]*oracleSide
	addr    netip.AddrPort
	ops     int
	history []string // the latest calls and results
	release func()   // lets the endpoint go on that is paused, if one is
}

func TestOracle(t *testing.T) {
	t.Parallel()
	for _, executors := range [][2]Executor{{Auto, Auto}, {Target, Target}, {Auto, Target}} {
		s := setup{Executors: executors, Unwired: true, Both: sideOptions{Options: Options{ReceiveTimeout: proctest.Timeout}}}
		t.Run(s.String(), func(t *testing.T) {
			o := newOracle(t, newPair(t, s))
			if os.Getenv(scale.EnvSeed) != "" { // of one connection
				o.try(scale.Seed(t))
				return
			}
			connections := 0
			for goesOn := o.withinBudget(); goesOn(); connections++ {
				o.try(rand.Uint64())
			}
			t.Logf("%d operations on %d connections", o.ops, connections)
		})
	}
}

// withinBudget returns a function that reports whether to try another connection.
func (o *oracle) withinBudget() func() bool {
	if n := scale.Number(o.t, oracleOps, 0); n != 0 {
		return func() bool { return o.ops < n }
	}
	end := time.Now().Add(time.Duration(scale.Of(1, 4)) * time.Second)
	return func() bool { return time.Now().Before(end) }
}

func newOracle(t testing.TB, p *pair) *oracle {
	o := &oracle{t: t, addr: p.b.must(order{Do: doListen}).Addr}
	for i, x := range []*side{p.a, p.b} {
		o.sides[i] = newOracleSide(o, x)
	}
	o.sides[0].far, o.sides[1].far = o.sides[1], o.sides[0]
	return o
}

// try makes a connection and a number of calls, and ends it in one of several ways.
func (o *oracle) try(seed uint64) {
	o.seed, o.history = seed, nil
	o.Rand = rand.New(rand.NewPCG(seed, 0))
	for _, p := range o.sides {
		p.begin()
	}
	o.connect()
	for range 50 + o.IntN(400) {
		o.step()
	}
	switch o.IntN(4) {
	case 0:
		o.flush()
	case 1:
		o.disconnect()
	default:
		o.violate()
	}
	for _, p := range o.sides {
		p.end()
	}
}

func (o *oracle) connect() {
	a, b := o.sides[0], o.sides[1]
	params := nd.ConnectParams{InboundReadLimit: 1 + o.IntN(16), OutboundReadLimit: 1 + o.IntN(16)}
	ctx := proctest.Context(o.t)
	accepted := soon(func() error {
		if err := b.side.listener.GetConnectionRequest(ctx, b.connector); err != nil {
			return err
		}
		return b.connector.Accept(ctx, b.ep, params)
	})
	o.must(a.connector.Connect(ctx, a.ep, o.addr, params))
	o.must(a.connector.CompleteConnect(ctx))
	o.must(<-accepted)
}

// step makes one call, or some that belong together.
func (o *oracle) step() {
	p := o.sides[o.IntN(2)]
	switch n := o.IntN(100); {
	case n < 42:
		p.request()
	case n < 60:
		p.receive()
	case n < 80:
		p.poll()
	case n < 90:
		p.burst()
	case n < 94:
		p.batch()
	default:
		o.drain()
	}
}

// drain waits until everything posted is done, and compares the memory with the model.
func (o *oracle) drain() {
	for _, p := range o.sides {
		p.marker()
	}
	o.finish()
	o.compare()
}

// finish waits for all results that are owed.
func (o *oracle) finish() {
	for end := time.Now().Add(proctest.Timeout); ; {
		owed := 0
		o.unblock()
		for _, p := range o.sides {
			owed += len(p.want[initiatorQueue]) + p.decidedReceives()
		}
		switch {
		case owed == 0:
			return
		case time.Now().After(end):
			o.failf("%d results never come; the next are %v, %v", owed, o.sides[0].want, o.sides[1].want)
		}
	}
}

// unblock lets requests run that wait for something.
func (o *oracle) unblock() {
	for _, p := range o.sides {
		p.submit()
	}
	for _, p := range o.sides {
		if p.far.blocked() != nil {
			p.receive()
		}
		p.pollAll()
	}
}

// compare checks all bytes that may have changed, and the bytes around them.
func (o *oracle) compare() {
	for _, p := range o.sides {
		for _, a := range p.areas {
			if at, ok := a.differs(); ok {
				o.failf("%s: byte %d of its %s memory is %#x, want %#x", p.name, at, a.name, a.mem[at], a.model[at])
			}
		}
		p.side.showRaceDetector()
	}
}

// must ends the test if a call failed that had to succeed.
func (o *oracle) must(err error) {
	if err != nil {
		o.t.Helper()
		o.failf("%v", err)
	}
}

func (o *oracle) failf(format string, args ...any) {
	o.t.Helper()
	o.goOn()
	o.t.Fatalf("%s\na: %v\nb: %v\n%s=%d tries the connection again; its latest calls:\n%s", fmt.Sprintf(format, args...),
		o.sides[0].ep.Err(), o.sides[1].ep.Err(), scale.EnvSeed, o.seed, strings.Join(o.history, "\n"))
}

// pause keeps a side from serving the other one, whose requests wait in its ring, until goOn.
func (o *oracle) pause(p *oracleSide) {
	ep := p.ep.(*queuePair)
	ep.mu.Lock()
	o.release = ep.mu.Unlock
}

func (o *oracle) goOn() {
	if o.release != nil {
		o.release()
		o.release = nil
	}
}

// note adds to the history.
func (o *oracle) note(format string, args ...any) {
	const kept = 60
	if len(o.history) == kept {
		o.history = append(o.history[:0], o.history[kept/2:]...)
	}
	o.history = append(o.history, fmt.Sprintf(format, args...))
}

// one is true once in n times.
func (o *oracle) one(n int) bool { return o.IntN(n) == 0 }
