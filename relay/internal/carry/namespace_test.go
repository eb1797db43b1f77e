package carry

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/softnd/softnd/internal/proctest"
	"github.com/softnd/softnd/nd"
	"github.com/softnd/softnd/relay/internal/handshake"
)

func TestMain(m *testing.M) {
	proctest.Main()
	os.Exit(m.Run())
}

// Two hosts are two processes, each in a network namespace of its own that ends with the process. A veth pair joins them.
const (
	addressA, addressB = "10.77.0.1", "10.77.0.2"
	controlPort        = "5000"
)

var hostRole = proctest.Role("host", playHost)

// hostCommand is a request to a process that plays a host.
type hostCommand struct {
	Do     string // start, connect, ping, write, refused, stall, quit
	Number int    // of the host, or how often
	Size   int
	Far    nd.WindowDescriptor
}

// hostReply is the answer.
type hostReply struct {
	Error  string
	Far    nd.WindowDescriptor
	Micros float64 // that the command took for each repetition
	Status nd.Status
}

// playHost is one host: a relay, and a rank. Rank 2 answers each message.
func playHost(self *proctest.Self) error {
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
				reply.Far = nd.DescriptorOf(h.rank.memory)
				w.a = h.rank
			}
		case "connect":
			if err = h.join(net.JoinHostPort(addressB, controlPort)); err == nil {
				err = w.dial(h.relay.Address(), nd.EndpointConfig{})
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

func startHost(number int) (*host, error) {
	logf := func(format string, args ...any) { fmt.Fprintf(os.Stderr, format+"\n", args...) }
	h, err := openHost(context.Background(), uint16(number), []string{addressA, addressB}[number-1], settings{}, logf)
	if err != nil || number == 1 {
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
		c, err := n.adapter.CreateConnector(n.ctx)
		if err == nil {
			err = l.GetConnectionRequest(n.ctx, c)
		}
		var ep nd.Endpoint
		if err == nil {
			ep, err = n.adapter.CreateEndpoint(n.ctx, nd.EndpointConfig{Receive: n.queue, Initiator: n.queue})
		}
		for i := 0; err == nil && i < 16; i++ {
			err = ep.Receive(uint64(i), n.sge(memorySize/2+i*64, 64))
		}
		if err == nil {
			err = c.Accept(n.ctx, ep, nd.ConnectParams{InboundReadLimit: 8, OutboundReadLimit: 8, PrivateData: []byte("from b")})
		}
		for err == nil {
			var r nd.Result
			if r, err = nd.WaitOne(n.ctx, n.queue, ep); err != nil || r.RequestType != nd.RequestReceive {
				continue
			}
			at := memorySize/2 + int(r.RequestContext)*64
			if err = ep.Send(1, n.sge(at, int(r.BytesTransferred)), 0); err == nil {
				err = ep.Receive(r.RequestContext, n.sge(at, 64))
			}
		}
	}()
	return nil
}

// run runs a command on a connection, as its active side.
func (w *wire) run(c hostCommand) (micros float64, status nd.Status, err error) {
	n := w.a
	start := time.Now()
	for i := range c.Number {
		switch c.Do {
		case "ping":
			err = w.ping(i, c.Size)
		case "write":
			to := c.Far
			if err = w.x.Write(uint64(i), n.sge(0, c.Size), to.Address, to.Token, 0); err == nil && (i%4 == 3 || i == c.Number-1) {
				for range i%4 + 1 {
					_, err = nd.WaitOne(n.ctx, n.queue, w.x)
				}
			}
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
	needNamespaces(t)
	start := func() hostProcess {
		cmd := proctest.Command(hostRole)
		cmd.SysProcAttr.Cloneflags = syscall.CLONE_NEWNET
		return hostProcess{proctest.Start(t, cmd), t}
	}
	a, b = start(), start()
	ip(t, "link", "add", "veth-a", "netns", strconv.Itoa(a.PID()), "type", "veth", "peer", "name", "veth-b", "netns", strconv.Itoa(b.PID()))
	for _, x := range []struct {
		p             hostProcess
		link, address string
	}{{a, "veth-a", addressA}, {b, "veth-b", addressB}} {
		x.p.ip("addr", "add", x.address+"/24", "dev", x.link)
		x.p.ip("link", "set", x.link, "up")
		x.p.ip("link", "set", "lo", "up")
	}
	return a, b
}

// needNamespaces skips a test on a machine where it cannot have two network namespaces and a veth pair.
func needNamespaces(t testing.TB) {
	t.Helper()
	for _, program := range []string{"ip", "nsenter"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("%s is not installed", program)
		}
	}
	try := exec.Command("ip", "link", "add", "veth-a", "type", "veth", "peer", "name", "veth-b")
	try.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
	if out, err := try.CombinedOutput(); err != nil {
		t.Skipf("no veth pair in a network namespace of its own, which needs root with CAP_SYS_ADMIN and CAP_NET_ADMIN: %v: %s", err, out)
	}
}

func ip(t testing.TB, args ...string) {
	t.Helper()
	if out, err := exec.Command("ip", args...).CombinedOutput(); err != nil {
		t.Fatalf("ip %s: %v: %s", strings.Join(args, " "), err, out)
	}
}

// ip runs ip in the namespace of a host.
func (p hostProcess) ip(args ...string) {
	p.t.Helper()
	if out, err := p.inside("ip", args...).CombinedOutput(); err != nil {
		p.t.Fatalf("ip %s: %v: %s", strings.Join(args, " "), err, out)
	}
}

func (p hostProcess) inside(name string, args ...string) *exec.Cmd {
	return exec.Command("nsenter", append([]string{"-t", strconv.Itoa(p.PID()), "-n", name}, args...)...)
}

// Two hosts exchange messages and access each other's memory over a link of their own.
func TestTwoNamespaces(t *testing.T) {
	a, b := newNamespaces(t)
	far := b.do(hostCommand{Do: "start", Number: 2}).Far
	a.do(hostCommand{Do: "start", Number: 1})
	a.do(hostCommand{Do: "connect"})
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

// TestMeasure prints how long messages and Writes take between two hosts, and fi_pingpong over the same link.
// It asserts nothing.
func TestMeasure(t *testing.T) {
	if os.Getenv("SOFTND_MEASURE") == "" {
		t.Skip("SOFTND_MEASURE=1 measures, on an idle machine")
	}
	a, b := newNamespaces(t)
	far := b.do(hostCommand{Do: "start", Number: 2}).Far
	a.do(hostCommand{Do: "start", Number: 1})
	a.do(hostCommand{Do: "connect"})
	for range 3 {
		a.do(hostCommand{Do: "ping", Number: 200, Size: 8})
		t.Logf("Send of 8 bytes: half a round trip takes %.1f µs", a.do(hostCommand{Do: "ping", Number: 2000, Size: 8}).Micros/2)
		for _, kind := range []string{"rdm", "msg"} {
			server := b.inside("fi_pingpong", "-p", "tcp", "-e", kind, "-S", "8", "-I", "2000")
			if err := server.Start(); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second) // it says nothing when it listens
			out, err := a.inside("fi_pingpong", "-p", "tcp", "-e", kind, "-S", "8", "-I", "2000", addressB).CombinedOutput()
			if err != nil {
				_ = server.Process.Kill()
			}
			t.Logf("fi_pingpong -p tcp -e %s: %v\n%s", kind, err, out)
			_ = server.Wait()
		}
		micros := a.do(hostCommand{Do: "write", Number: 300, Size: 1 << 20, Far: far}).Micros
		t.Logf("Write of 1 MiB: %.0f MB/s", float64(1<<20)/micros)
	}
	for _, p := range []hostProcess{a, b} {
		p.Say(`{"Do":"quit"}`)
		p.Wait()
	}
}
