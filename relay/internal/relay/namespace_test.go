package relay

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/softnd/softnd/internal/testkit/proctest"
	"github.com/softnd/softnd/nd"
	"github.com/softnd/softnd/relay/internal/handshake"
	"github.com/softnd/softnd/relay/internal/nstest"
)

func TestMain(m *testing.M) {
	proctest.Main()
	os.Exit(m.Run())
}

// Two hosts are two processes, each in a network namespace of its own that ends with the process. A veth pair joins them.
const (
	addressA, addressB = nstest.A, nstest.B
	controlPort        = "5000"
)

var hostRole = proctest.Role("host", runHost)

// hostCommand is a request to a process that plays a host.
type hostCommand struct {
	Do     string // start, connect, ping, check, until failure, quit
	Number int    // of the host, or how often
	Size   int
	To     netip.Addr // the rank of the other host
	Far    nd.WindowDescriptor
}

// hostReply is the answer.
type hostReply struct {
	Error  string
	Addr   netip.Addr // of the rank
	Far    nd.WindowDescriptor
	Micros float64 // that the command took for each repetition
	Status nd.Status
}

// runHost is one host: a relay, and a rank. The rank of host 1 answers each message.
func runHost(self *proctest.Self) error {
	var h *host
	var w wire
	for {
		line, err := self.Hear()
		if err != nil {
			return err
		}
		var c hostCommand
		if err := json.Unmarshal([]byte(line), &c); err != nil {
			return err
		}
		var reply hostReply
		switch c.Do {
		case "start":
			if h, err = startHost(c.Number); err == nil {
				reply.Addr, reply.Far = h.rank.address, nd.DescriptorOf(h.rank.memory)
				w.a = h.rank
			}
		case "connect":
			if err = h.join(net.JoinHostPort(addressB, controlPort)); err == nil {
				err = w.dial(c.To, nd.EndpointConfig{})
			}
		case "quit":
			return h.close()
		default:
			reply.Micros, reply.Status, err = w.run(c)
		}
		if err != nil {
			reply.Error = err.Error()
		}
		b, err := json.Marshal(reply)
		if err != nil {
			return err
		}
		self.Say("%s", b)
	}
}

func logf(format string, args ...any) { fmt.Fprintf(os.Stderr, format+"\n", args...) }

func startHost(number int) (*host, error) {
	h, err := openHost(context.Background(), number, []string{addressA, addressB}[number], settings{}, logf)
	if err != nil || number == 0 {
		return h, err
	}
	l, err := net.Listen("tcp", net.JoinHostPort(addressB, controlPort))
	if err != nil {
		return nil, err
	}
	handshake.Listen(l, h.relay.HandshakeConfig(), h.relay.Link, logf)
	return h, h.rank.serve()
}

// serve accepts a connection, and answers its messages, each with the same bytes.
func (n *rank) serve() error {
	l, err := n.adapter.CreateListener(n.ctx)
	if err != nil {
		return err
	}
	if err := l.Bind(netip.AddrPortFrom(n.address, port)); err != nil {
		return err
	}
	if err := l.Listen(0); err != nil {
		return err
	}
	go func() {
		for isFirst := true; ; isFirst = false { // the first one only answers
			if err := n.accept(l, isFirst); err != nil {
				return
			}
		}
	}()
	return nil
}

// accept accepts a connection, and answers its messages if asked to.
func (n *rank) accept(l nd.Listener, answers bool) error {
	c, err := n.adapter.CreateConnector(n.ctx)
	if err != nil {
		return err
	}
	if err := l.GetConnectionRequest(n.ctx, c); err != nil {
		return err
	}
	ep, err := n.adapter.CreateEndpoint(n.ctx, nd.EndpointConfig{ReceiveCQ: n.queue, InitiatorCQ: n.queue})
	if err != nil {
		return err
	}
	for i := 0; err == nil && answers && i < 16; i++ {
		err = ep.Receive(uint64(i), n.sge(memorySize/2+i*64, 64))
	}
	if err == nil {
		err = c.Accept(n.ctx, ep, nd.ConnectParams{InboundReadLimit: 8, OutboundReadLimit: 8, PrivateData: []byte("from b")})
	}
	if err == nil && answers {
		go n.answer(ep)
	}
	return err
}

// answer answers the messages of a connection until it ends.
func (n *rank) answer(ep nd.Endpoint) {
	for {
		r, err := nd.WaitOne(n.ctx, n.queue, ep)
		if err != nil {
			return
		}
		if r.RequestType != nd.RequestReceive {
			continue
		}
		at := memorySize/2 + int(r.RequestContext)*64
		if errors.Join(ep.Send(1, n.sge(at, int(r.BytesTransferred)), 0), ep.Receive(r.RequestContext, n.sge(at, 64))) != nil {
			return
		}
	}
}

// run runs a command on a connection, as its active side.
func (w *wire) run(c hostCommand) (micros float64, status nd.Status, err error) {
	n := w.a
	start := time.Now()
	for i := range c.Number {
		switch c.Do {
		case "ping":
			err = w.ping(i, c.Size)
		case "check": // writes a pattern, and reads it
			mine := n.memory.Bytes()
			pattern(mine[:c.Size], i+1)
			if _, err = w.finish(w.x.Write(1, n.sge(0, c.Size), c.Far.Address, c.Far.Token, 0)); err == nil {
				_, err = w.finish(w.x.Read(2, n.sge(c.Size, c.Size), c.Far.Address, c.Far.Token, 0))
			}
			if err == nil && !bytes.Equal(mine[:c.Size], mine[c.Size:2*c.Size]) {
				err = fmt.Errorf("the bytes that were written are not those that were read")
			}
		case "until failure": // writes until a Write fails
			for err == nil && status == nd.Success {
				status, err = w.finish(w.x.Write(1, n.sge(0, c.Size), c.Far.Address, c.Far.Token, 0))
			}
			return 0, status, nil
		}
		if err != nil {
			return 0, 0, err
		}
	}
	return float64(time.Since(start).Microseconds()) / float64(c.Number), status, nil
}

// finish waits for the result of a request.
func (w *wire) finish(posted error) (nd.Status, error) {
	if posted != nil {
		return 0, posted
	}
	r, err := nd.WaitOne(w.a.ctx, w.a.queue, w.x)
	return r.Status, err
}

// ping sends a message, and waits for its answer.
func (w *wire) ping(i, size int) error {
	n := w.a
	b := n.memory.Bytes()
	for j := range size {
		b[j] = byte(i + j)
	}
	if err := w.x.Receive(2, n.sge(64, 64)); err != nil {
		return err
	}
	if err := w.x.Send(1, n.sge(0, size), 0); err != nil {
		return err
	}
	for range 2 { // in any order
		if _, err := nd.WaitOne(n.ctx, n.queue, w.x); err != nil {
			return err
		}
	}
	if !bytes.Equal(b[:size], b[64:64+size]) {
		return fmt.Errorf("the answer %x is not the message %x", b[64:64+size], b[:size])
	}
	return nil
}

// hostProcess is a process that plays a host.
type hostProcess struct {
	*proctest.Process
	t testing.TB
}

func (p hostProcess) do(c hostCommand) hostReply {
	p.t.Helper()
	p.ask(c)
	return p.answer(c.Do)
}

// ask sends a command, whose reply answer returns.
func (p hostProcess) ask(c hostCommand) {
	p.t.Helper()
	b, err := json.Marshal(c)
	if err != nil {
		p.t.Fatal(err)
	}
	p.Say("%s", b)
}

func (p hostProcess) answer(command string) (r hostReply) {
	p.t.Helper()
	if err := json.Unmarshal([]byte(p.Hear()), &r); err != nil {
		p.t.Fatal(err)
	}
	if r.Error != "" {
		p.t.Fatalf("%s: %s", command, r.Error)
	}
	return r
}

// newNamespaces starts two hosts that a veth pair joins. Everything ends with the processes.
func newNamespaces(t testing.TB) (a, b hostProcess) {
	t.Helper()
	nstest.Need(t)
	start := func() hostProcess {
		cmd := proctest.Command(hostRole)
		cmd.SysProcAttr.Cloneflags = syscall.CLONE_NEWNET
		return hostProcess{proctest.Start(t, cmd), t}
	}
	a, b = start(), start()
	nstest.Join(t, a.PID(), b.PID())
	return a, b
}

// ip runs ip in the namespace of a host.
func (p hostProcess) ip(args ...string) {
	p.t.Helper()
	if out, err := p.inside("ip", args...).CombinedOutput(); err != nil {
		p.t.Fatalf("ip %s: %v: %s", strings.Join(args, " "), err, out)
	}
}

func (p hostProcess) inside(name string, args ...string) *exec.Cmd {
	return nstest.Command(p.PID(), name, args...)
}

// start starts both hosts and connects their ranks. It returns the memory of b's.
func start(a, b hostProcess) nd.WindowDescriptor {
	a.t.Helper()
	a.do(hostCommand{Do: "start", Number: 0})
	r := b.do(hostCommand{Do: "start", Number: 1})
	a.do(hostCommand{Do: "connect", To: r.Addr})
	return r.Far
}

// Two hosts exchange messages and access each other's memory over a link of their own.
func TestTwoNamespaces(t *testing.T) {
	a, b := newNamespaces(t)
	far := start(a, b)
	a.do(hostCommand{Do: "ping", Number: 200, Size: 8})
	a.do(hostCommand{Do: "check", Number: 5, Size: 1 << 20, Far: far})
	t.Run("link down", func(t *testing.T) {
		a.ask(hostCommand{Do: "until failure", Number: 1, Size: 1 << 20, Far: far})
		time.Sleep(50 * time.Millisecond) // some Writes succeed before
		b.ip("link", "set", "veth-b", "down")
		if r := a.answer("until failure"); r.Status != nd.Canceled {
			t.Errorf("a Write on a link that is down: %v", r.Status)
		}
	})
	for _, p := range []hostProcess{a, b} {
		p.Say(`{"Do":"quit"}`)
		p.Wait()
	}
}
