package main

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/softnd/softnd/endpoint"
	"github.com/softnd/softnd/internal/testkit/proctest"
	"github.com/softnd/softnd/nd"
	"github.com/softnd/softnd/shm"
)

// envRelay makes the test binary the program itself.
const envRelay = "NDRELAY_TEST_MAIN"

func TestMain(m *testing.M) {
	if os.Getenv(envRelay) != "" {
		main()
		os.Exit(0)
	}
	proctest.Main()
	os.Exit(m.Run())
}

// relayCommand returns the command that runs the relay of an arena.
func relayCommand(arena *shm.Arena) *exec.Cmd {
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), envRelay+"=1", envReceiveTimeout+"=1m")
	cmd.ExtraFiles = []*os.File{arena.File()}
	return cmd
}

var secret = base64.StdEncoding.EncodeToString(make([]byte, 32))

// configLine returns the first line for a relay of a job of two hosts. change may change it.
func configLine(host int, address string, change map[string]any) string {
	config := map[string]any{"job": "abc", "secret": secret, "host": host, "hosts": 2, "address": address, "keepalive": "30s"}
	for key, value := range change {
		config[key] = value
	}
	b, err := json.Marshal(config)
	if err != nil {
		panic(err)
	}
	return string(b)
}

func peersLine(relays ...string) string {
	b, err := json.Marshal(peers{relays})
	if err != nil {
		panic(err)
	}
	return string(b)
}

const (
	echoPort    = 7
	messageSize = 8
)

// rank is a rank of a host. It answers each message of the connections that it accepts with the same bytes.
type rank struct {
	ctx     context.Context
	member  *shm.Member
	adapter nd.Adapter
	leave   func() error
	address netip.Addr
}

func newRank(ctx context.Context, arena *shm.Arena, number int) (n *rank, err error) {
	n = &rank{ctx: ctx}
	if n.member, err = arena.Join(number); err != nil {
		return nil, err
	}
	if arena.Ranks() > 0 {
		if _, err = n.member.JoinGroup(); err != nil {
			return nil, err
		}
	}
	provider, err := endpoint.New(n.member, endpoint.Options{ReceiveTimeout: endpoint.NoLimit})
	if err != nil {
		return nil, err
	}
	n.leave = func() error { return errors.Join(provider.Close(), n.member.Leave()) }
	n.address = endpoint.Address(arena.Host(), n.member.ID())
	id, err := provider.ResolveAddress(n.address)
	if err != nil {
		return nil, err
	}
	if n.adapter, err = provider.OpenAdapter(ctx, id); err != nil {
		return nil, err
	}
	l, err := n.adapter.CreateListener(ctx)
	if err == nil {
		err = errors.Join(l.Bind(netip.AddrPortFrom(n.address, echoPort)), l.Listen(0))
	}
	if err != nil {
		return nil, err
	}
	go n.serve(l)
	return n, nil
}

// serve accepts connections until the rank leaves.
func (n *rank) serve(l nd.Listener) {
	for {
		c, err := n.adapter.CreateConnector(n.ctx)
		if err == nil {
			err = l.GetConnectionRequest(n.ctx, c)
		}
		if err != nil {
			return
		}
		go n.echo(c)
	}
}

func (n *rank) echo(c nd.Connector) {
	x, err := n.open()
	if err == nil {
		err = x.ep.Receive(1, x.sge(0))
	}
	if err == nil {
		err = c.Accept(n.ctx, x.ep, nd.ConnectParams{})
	}
	for err == nil {
		if err = x.next(nd.RequestReceive); err == nil {
			err = x.ep.Send(2, x.sge(0), 0)
		}
		if err == nil {
			err = x.next(nd.RequestSend)
		}
		if err == nil {
			err = x.ep.Receive(1, x.sge(0))
		}
	}
}

// connection is an endpoint with its queue and memory.
type connection struct {
	*rank
	ep     nd.Endpoint
	queue  nd.CompletionQueue
	memory nd.MemoryRegion
}

func (n *rank) open() (x *connection, err error) {
	x = &connection{rank: n}
	if x.queue, err = n.adapter.CreateCompletionQueue(n.ctx, 16); err != nil {
		return nil, err
	}
	if x.memory, err = n.adapter.Allocate(n.ctx, 2*messageSize, nd.AllowLocalWrite); err != nil {
		return nil, err
	}
	x.ep, err = n.adapter.CreateEndpoint(n.ctx, nd.EndpointConfig{ReceiveCQ: x.queue, InitiatorCQ: x.queue})
	return x, err
}

func (x *connection) sge(part int) nd.SGL {
	return nd.One(nd.SGEOf(x.memory, part*messageSize, messageSize))
}

// next takes the next result, which must be of a type and a success.
func (x *connection) next(want nd.RequestType) error {
	r, err := nd.WaitOne(x.ctx, x.queue, x.ep)
	if err == nil && r.RequestType != want {
		err = fmt.Errorf("a result of type %v, want %v", r.RequestType, want)
	}
	return err
}

// dial connects to a rank, and exchanges messages with it.
func (n *rank) dial(to netip.Addr) (*connection, error) {
	x, err := n.open()
	if err != nil {
		return nil, err
	}
	c, err := n.adapter.CreateConnector(n.ctx)
	if err == nil {
		err = c.Connect(n.ctx, x.ep, netip.AddrPortFrom(to, echoPort), nd.ConnectParams{})
	}
	if err == nil {
		err = c.CompleteConnect(n.ctx)
	}
	for i := 0; err == nil && i < 10; i++ {
		err = x.ping(byte(i))
	}
	return x, err
}

func (x *connection) ping(b byte) error {
	mine := x.memory.Bytes()
	for i := range messageSize {
		mine[i] = b + byte(i)
	}
	if err := errors.Join(x.ep.Receive(1, x.sge(1)), x.ep.Send(2, x.sge(0), 0)); err != nil {
		return err
	}
	for range 2 { // in any order
		if _, err := nd.WaitOne(x.ctx, x.queue, x.ep); err != nil {
			return err
		}
	}
	if string(mine[:messageSize]) != string(mine[messageSize:]) {
		return fmt.Errorf("the answer %x is not the message %x", mine[messageSize:], mine[:messageSize])
	}
	return nil
}

const arenaSize = 256 << 20

var roleLeader = proctest.Role("leader", runLeader)

// runLeader is the only rank of a host, which starts the relay. The arguments are the number of the host and its address.
// After a first line, it says where the relay listens. It hears the line with all relays, and says the number of the
// relay's process and its own address. "connect ADDRESS" connects. "end" waits for the end of the connection, and says its
// status. "leave" ends.
func runLeader(self *proctest.Self) error {
	var host int
	if _, err := fmt.Sscan(self.Args[0], &host); err != nil {
		return err
	}
	if _, err := self.Hear(); err != nil {
		return err
	}
	arena, err := shm.Create(shm.Config{Ranks: 1, Host: host, Size: arenaSize})
	if err != nil {
		return err
	}
	n, err := newRank(self.Ctx, arena, 0)
	if err != nil {
		return err
	}
	cmd := relayCommand(arena)
	for i, v := range cmd.Env {
		if strings.HasPrefix(v, proctest.RoleEnv+"=") {
			cmd.Env[i] = "_="
		}
	}
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	answers := json.NewDecoder(out)
	var l listening
	fmt.Fprintln(in, configLine(host, self.Args[1], nil))
	if err := answers.Decode(&l); err != nil {
		return err
	}
	self.Say("%s", l.Control)
	line, err := self.Hear()
	if err != nil {
		return err
	}
	fmt.Fprintln(in, line)
	var r ready
	if err := answers.Decode(&r); err != nil || !r.Ready {
		return fmt.Errorf("the relay is not ready: %w", err)
	}
	self.Say("%d", cmd.Process.Pid)
	self.Say("%v", n.address)
	var x *connection
	for {
		line, err := self.Hear()
		if err != nil {
			return err
		}
		verb, argument, _ := strings.Cut(line, " ")
		switch verb {
		case "connect":
			if x, err = n.dial(netip.MustParseAddr(argument)); err != nil {
				return err
			}
			self.Say("connected")
		case "end":
			<-x.ep.Done()
			self.Say("%v", nd.StatusOf(x.ep.Err()))
		case "leave":
			return errors.Join(n.leave(), in.Close(), cmd.Wait(), arena.Close())
		}
	}
}

// leader is a host in a process of its own.
type leader struct {
	*proctest.Process
	relay   proctest.Watched
	pid     int // of the relay
	address netip.Addr
}

// startLeader starts a host. Its network namespace is a new one if flags say so.
func startLeader(t *testing.T, host int, address string, flags uintptr) *leader {
	t.Helper()
	cmd := proctest.Command(roleLeader, fmt.Sprint(host), address)
	cmd.SysProcAttr.Cloneflags = flags
	return &leader{Process: proctest.Start(t, cmd)}
}

// listen makes the host start its relay.
func (l *leader) listen() (control string) {
	l.Say("listen")
	return l.Hear()
}

// link tells a leader where all relays listen.
func (l *leader) link(relays ...string) { l.Say("%s", peersLine(relays...)) }

// linked waits until its relay is ready.
func (l *leader) linked(t *testing.T) {
	t.Helper()
	if _, err := fmt.Sscan(l.Hear(), &l.pid); err != nil {
		t.Fatal(err)
	}
	l.relay = proctest.Watch(t, l.pid)
	l.address = netip.MustParseAddr(l.Hear())
}

// host is a host of which the test is the only rank.
type host struct {
	arena   *shm.Arena
	rank    *rank
	relay   *proctest.Process
	control string
}

// newHost starts a host, whose relay then listens.
func newHost(t *testing.T, number int) *host {
	t.Helper()
	return newHostWith(t, number, nil)
}

// newHostWith is newHost with a change for configLine.
func newHostWith(t *testing.T, number int, change map[string]any) *host {
	t.Helper()
	h := &host{}
	var err error
	if h.arena, err = shm.Create(shm.Config{Ranks: 1, Host: number, Size: arenaSize}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { h.arena.Close() })
	if h.rank, err = newRank(proctest.Context(t), h.arena, 0); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = h.rank.leave() })
	cmd := relayCommand(h.arena)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	h.relay = proctest.Start(t, cmd)
	h.relay.Say("%s", configLine(number, "127.0.0.1", change))
	h.control = control(t, h.relay)
	return h
}
