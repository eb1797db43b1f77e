//go:build failpoints

package kill

import (
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/softnd/softnd/endpoint"
	"github.com/softnd/softnd/internal/testkit/failpoint"
	"github.com/softnd/softnd/internal/testkit/proctest"
	"github.com/softnd/softnd/nd"
	"github.com/softnd/softnd/shm"
)

// A process dies in the middle of an atomic. The number is what it was before the atomic or after it, and has every
// change that was complete.

// changeStep is the difference between two values of the number. No two of its bytes are equal, so a mixture of two values is none.
const changeStep = 0x0123_4567_89ab_cdef

// changer is a member that changes a number of another one, or has it.
type changer struct {
	member    *shm.Member
	provider  *endpoint.Provider
	adapter   nd.Adapter
	address   netip.Addr
	cq        nd.CompletionQueue
	memory    nd.MemoryRegion
	ep        nd.Endpoint
	connector nd.Connector
}

// newChanger joins an arena. Private memory is changed by its owner only.
func newChanger(ctx context.Context, arena *shm.Arena, executor string, private bool) (c *changer, err error) {
	e, err := endpoint.ParseExecutor(executor)
	if err != nil {
		return nil, err
	}
	m, err := arena.Join(shm.NoRank)
	if err != nil {
		return nil, err
	}
	c = &changer{member: m}
	if c.provider, err = endpoint.New(m, endpoint.Options{Executor: e}); err != nil {
		return nil, err
	}
	list, err := c.provider.QueryAddressList()
	if err != nil {
		return nil, err
	}
	c.address = list[0]
	if c.adapter, err = nd.OpenAddress(ctx, c.provider, c.address); err != nil {
		return nil, err
	}
	const rights = nd.AllowLocalWrite | nd.AllowRemoteAtomic
	if private {
		c.memory, err = c.adapter.Register(ctx, make([]byte, 4096), rights)
	} else {
		c.memory, err = c.adapter.Allocate(ctx, 4096, rights)
	}
	if err != nil {
		return nil, err
	}
	c.cq, err = c.adapter.CreateCompletionQueue(ctx, 64)
	return c, err
}

// newLink makes the objects of the next connection.
func (c *changer) newLink(ctx context.Context) (err error) {
	if c.ep, err = c.adapter.CreateEndpoint(ctx, nd.EndpointConfig{ReceiveCQ: c.cq, InitiatorCQ: c.cq, InitiatorDepth: changesAtOnce, ReceiveDepth: 1}); err == nil {
		c.connector, err = c.adapter.CreateConnector(ctx)
	}
	return err
}

const changesAtOnce = 6

var changeLimits = nd.ConnectParams{InboundReadLimit: changesAtOnce, OutboundReadLimit: changesAtOnce}

// change posts the atomic after which the number is to.
func (c *changer) change(t nd.RequestType, i uint64, far nd.WindowDescriptor, from, to uint64) error {
	old := nd.SGEOf(c.memory, int(i%changesAtOnce*8), 8)
	switch t {
	case nd.RequestFetchAndAdd:
		return c.ep.FetchAndAdd(i, old, far.Address, far.Token, to-from, 0)
	case nd.RequestCompareAndSwap:
		return c.ep.CompareAndSwap(i, old, far.Address, far.Token, from, to, 0)
	}
	return c.ep.Swap(i, old, far.Address, far.Token, to, 0)
}

// changeTask is what a victim does. It counts in a place of the arena.
type changeTask struct {
	executor  string
	listener  netip.AddrPort
	far       nd.WindowDescriptor
	kind      nd.RequestType
	first     uint64
	atOnce    int
	counts    shm.Offset
	failpoint string // in the form of SOFTND_FAILPOINT, or ""
}

func (k changeTask) args() []string {
	return []string{k.executor, k.listener.String(), fmt.Sprint(k.far.Address, " ", uint32(k.far.Token), " ", uint32(k.kind), " ", k.first, " ", k.atOnce, " ", uint64(k.counts)), k.failpoint}
}

func parseChange(args []string) (k changeTask, err error) {
	k.executor, k.failpoint = args[0], args[3]
	if k.listener, err = netip.ParseAddrPort(args[1]); err != nil {
		return k, err
	}
	_, err = fmt.Sscan(args[2], &k.far.Address, (*uint32)(&k.far.Token), (*uint32)(&k.kind), &k.first, &k.atOnce, (*uint64)(&k.counts))
	return k, err
}

// countsOf returns how many atomics a victim has posted, and how many of them were complete.
func countsOf(arena *shm.Arena, at shm.Offset) (posted, done *atomic.Uint64, err error) {
	words, err := shm.Slice[atomic.Uint64](arena, at, 2)
	if err != nil {
		return nil, nil, err
	}
	return &words[0], &words[1], nil
}

var roleChanger = proctest.Role("changer", runChanger)

// runChanger changes the number of the test until something kills it.
func runChanger(s *proctest.Self) error {
	k, err := parseChange(s.Args)
	if err != nil {
		return err
	}
	arena, err := shm.Attach(s.Ctx, s.File(0))
	if err != nil {
		return err
	}
	c, err := newChanger(s.Ctx, arena, k.executor, false)
	if err != nil {
		return err
	}
	posted, done, err := countsOf(arena, k.counts)
	if err != nil {
		return err
	}
	if err := c.newLink(s.Ctx); err != nil {
		return err
	}
	if err := c.connector.Connect(s.Ctx, c.ep, k.listener, changeLimits); err != nil {
		return err
	}
	if err := c.connector.CompleteConnect(s.Ctx); err != nil {
		return err
	}
	s.Say("works")
	if err := failpoint.ArmFrom(k.failpoint); err != nil {
		return err
	}
	for value := k.first; ; {
		for ; posted.Load()-done.Load() < uint64(k.atOnce); value += changeStep {
			posted.Add(1)
			if err := c.change(k.kind, posted.Load(), k.far, value, value+changeStep); err != nil {
				return err
			}
		}
		r, err := nd.WaitOne(s.Ctx, c.cq, c.ep)
		if err != nil {
			return err
		}
		old := binary.NativeEndian.Uint64(c.memory.Bytes()[r.RequestContext%changesAtOnce*8:])
		if want := k.first + done.Load()*changeStep; old != want {
			return fmt.Errorf("%v %d found %#x, want %#x", r.RequestType, r.RequestContext, old, want)
		}
		done.Add(1)
	}
}

// changeWays are the ways in which atomics run, and where the process that posts them dies then; in the others it is the
// owner of the number that changes it.
var changeWays = []struct {
	executor string
	private  bool
	points   []failpoint.Point
}{
	{"auto", false, []failpoint.Point{failpoint.HazardPublished, failpoint.EntryChecked, failpoint.ChunkCopied, failpoint.HazardCleared}},
	{"target", false, []failpoint.Point{failpoint.SlotFilled, failpoint.SlotPublished}},
	{"auto", true, []failpoint.Point{failpoint.SlotFilled, failpoint.SlotPublished}},
}

// TestKillInAtomic kills once in each case; SOFTND_KILLS is how often. A case is a kind of atomic, a way, and a point, or a random time.
func TestKillInAtomic(t *testing.T) {
	repeats, seed := kills(t)
	for _, way := range changeWays {
		t.Run(fmt.Sprintf("%s, private %t", way.executor, way.private), func(t *testing.T) {
			t.Parallel()
			arena, err := shm.Create(shm.Config{Size: 128 << 20})
			if err != nil {
				t.Fatal(err)
			}
			defer arena.Close()
			owner, err := newChanger(t.Context(), arena, way.executor, way.private)
			if err != nil {
				t.Fatal(err)
			}
			defer owner.provider.Close()
			o := &changed{changer: owner, arena: arena, Rand: rand.New(rand.NewPCG(seed, 1))}
			o.listen(t)
			for range repeats {
				for kind := nd.RequestFetchAndAdd; kind <= nd.RequestSwap; kind++ {
					o.kill(t, way.executor, kind, "")
					for _, p := range way.points {
						o.kill(t, way.executor, kind, p.Name()+":"+strconv.Itoa(1+o.IntN(8))+":kill")
					}
				}
			}
			t.Logf("%d deaths, %d atomics, of which %d were not complete and have changed the number", o.deaths, o.atomics, o.ahead)
			if o.deaths > 100 && o.ahead == 0 {
				t.Error("no process has died between the change and the result")
			}
		})
	}
}

// changed is the owner of the number, whose peers die one after the other.
type changed struct {
	*changer
	*rand.Rand
	arena                  *shm.Arena
	listener               nd.Listener
	at                     netip.AddrPort
	word                   *uint64
	counts                 shm.Offset
	deaths, atomics, ahead uint64
}

func (o *changed) listen(t *testing.T) {
	t.Helper()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	var err error
	o.listener, err = o.adapter.CreateListener(t.Context())
	must(err)
	must(o.listener.Bind(netip.AddrPortFrom(o.address, 0)))
	must(o.listener.Listen(0))
	o.at, err = o.listener.LocalAddress()
	must(err)
	o.counts, err = o.member.Alloc(4096)
	must(err)
	words, err := nd.View[uint64](o.memory.Bytes())
	must(err)
	o.word = &words[8]
}

// kill lets a process change the number, die, and compares.
func (o *changed) kill(t *testing.T, executor string, kind nd.RequestType, point string) {
	t.Helper()
	posted, done, err := countsOf(o.arena, o.counts)
	if err != nil {
		t.Fatal(err)
	}
	posted.Store(0)
	done.Store(0)
	far := nd.DescriptorOf(o.memory)
	far.Address += 64
	k := changeTask{executor, o.at, far, kind, o.Uint64(), 1 + o.IntN(changesAtOnce), o.counts, point}
	atomic.StoreUint64(o.word, k.first)
	cmd := proctest.Command(roleChanger, k.args()...)
	cmd.ExtraFiles = []*os.File{o.arena.File()}
	p := proctest.Start(t, cmd)
	ctx := proctest.Context(t)
	if err := o.newLink(ctx); err != nil {
		t.Fatal(err)
	}
	if err := o.listener.GetConnectionRequest(ctx, o.connector); err != nil {
		t.Fatalf("%v\n%s", err, p.Err)
	}
	if err := o.connector.Accept(ctx, o.ep, changeLimits); err != nil {
		t.Fatalf("%v\n%s", err, p.Err)
	}
	p.Expect("works")
	if point == "" {
		time.Sleep(time.Duration(o.IntN(2_000_000)))
		p.Kill()
	}
	p.WaitKilled()
	if err := o.ep.Flush(ctx); err != nil { // afterwards no atomic runs that was posted
		t.Fatal(err)
	}
	value := atomic.LoadUint64(o.word)
	n := done.Load()
	for n < posted.Load() && value != k.first+n*changeStep {
		n++
	}
	if value != k.first+n*changeStep {
		t.Errorf("%v, %s: the number is %#x after %d atomics of %#x, of which %d were complete, want the sum of so many", kind, point, value, posted.Load(), uint64(changeStep), done.Load())
	}
	o.deaths++
	o.atomics += posted.Load()
	o.ahead += n - done.Load()
	for _, c := range []interface{ Close() error }{o.ep, o.connector} {
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if got := atomic.LoadUint64(o.word); got != value {
		t.Errorf("%v, %s: the number is %#x after the end, and was %#x", kind, point, got, value)
	}
}
