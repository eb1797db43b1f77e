package relay

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/softnd/softnd/internal/meet/relayclient"
	"github.com/softnd/softnd/internal/testkit/proctest"
	"github.com/softnd/softnd/relay/internal/handshake"
	"github.com/softnd/softnd/relay/internal/nstest"
	"github.com/softnd/softnd/shm"
)

var relayRole = proctest.Role("relay", runRelay)

// relayCommand is a request to a process that is the relay of a host.
type relayCommand struct {
	Do        string        // start, join, state, quit
	Node      string        // start: address of the host
	Host      uint16        // join: number of the other host
	Keepalive time.Duration // start
	Timeout   time.Duration // start: of a Send without a Receive
	To        string        // join: the control address of the other relay
}

// relayReply is the answer to every command.
type relayReply struct {
	relayState
	Control string // address of its listener
}

// runRelay is a relay. The arena is descriptor 3.
func runRelay(self *proctest.Self) error {
	arena, err := shm.Attach(self.Ctx, self.File(0))
	if err != nil {
		return err
	}
	var r *Relay
	var listener *handshake.Listener
	done := make(chan error, 1)
	for {
		line, err := self.Hear()
		if err != nil {
			return err
		}
		var c relayCommand
		if err := json.Unmarshal([]byte(line), &c); err != nil {
			return err
		}
		var reply relayReply
		logf := func(format string, args ...any) {
			fmt.Fprintf(os.Stderr, "host %d: "+format+"\n", append([]any{arena.Host()}, args...)...)
		}
		switch c.Do {
		case "start":
			r, err = New(context.Background(), Config{Arena: arena, Provider: relayclient.Provider(), Node: c.Node, Keepalive: c.Keepalive, ReceiveTimeout: c.Timeout,
				Handshake: handshake.Config{Secret: [32]byte{1}, Job: [16]byte{2}}, Logf: logf})
			var l net.Listener
			if err == nil {
				go func() { done <- r.Run() }()
				l, err = net.Listen("tcp", net.JoinHostPort(c.Node, "0"))
			}
			if err == nil {
				listener = handshake.Listen(l, r.HandshakeConfig(), r.Link, logf)
				reply.Control = l.Addr().String()
			}
		case "join":
			err = joinRelay(r, c.To, c.Host)
		case "state":
			reply.relayState = r.state()
		case "quit":
			err = listener.Close()
			r.cancel()
			<-done
			return errors.Join(err, r.Close(), arena.Close())
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

// relayProcess is a process with that role.
type relayProcess struct {
	*proctest.Process
	t       testing.TB
	host    int
	control string
}

// namespaceRole is a process that keeps a network namespace, also while the host has no relay.
var namespaceRole = proctest.Role("network namespace", func(self *proctest.Self) error {
	_, err := self.Hear()
	return err
})

// newNamespace starts a process in a network namespace of its own.
func newNamespace(t testing.TB) *proctest.Process {
	t.Helper()
	cmd := proctest.Command(namespaceRole)
	cmd.SysProcAttr.Cloneflags = syscall.CLONE_NEWNET
	return proctest.Start(t, cmd).NoLimit()
}

// startRelay starts the relay of a host, in the namespace of a process unless that is nil.
func startRelay(t testing.TB, arena *shm.Arena, namespace *proctest.Process) *relayProcess {
	t.Helper()
	cmd := proctest.Command(relayRole)
	if namespace != nil {
		env, attributes := cmd.Env, cmd.SysProcAttr
		cmd = nstest.Command(namespace.PID(), fmt.Sprintf("/proc/%d/exe", os.Getpid()))
		cmd.Env, cmd.SysProcAttr = env, attributes
	}
	cmd.ExtraFiles = []*os.File{arena.File()}
	return &relayProcess{Process: proctest.Start(t, cmd).NoLimit(), t: t, host: arena.Host()}
}

func (p *relayProcess) do(c relayCommand) (s relayReply) {
	p.t.Helper()
	if s = p.try(c); s.Error != "" {
		p.t.Fatalf("%s: %s\n%s", c.Do, s.Error, p.Err)
	}
	return s
}

// try returns the reply even if the command has failed.
func (p *relayProcess) try(c relayCommand) (s relayReply) {
	p.t.Helper()
	b, err := json.Marshal(c)
	if err != nil {
		p.t.Fatal(err)
	}
	p.Say("%s", b)
	if err := json.Unmarshal([]byte(p.Hear()), &s); err != nil {
		p.t.Fatal(err)
	}
	return s
}

func (p *relayProcess) begin(node string, keepalive, timeout time.Duration) {
	p.t.Helper()
	p.control = p.do(relayCommand{Do: "start", Node: node, Keepalive: keepalive, Timeout: timeout}).Control
}

// join links the relay to another one.
func (p *relayProcess) join(to *relayProcess) {
	p.t.Helper()
	p.do(joinCommand(to))
}

func joinCommand(to *relayProcess) relayCommand {
	return relayCommand{Do: "join", Host: uint16(to.host), To: to.control}
}

func (p *relayProcess) state() relayState { return p.do(relayCommand{Do: "state"}).relayState }

func (p *relayProcess) quit() {
	p.t.Helper()
	p.Say(`{"Do":"quit"}`)
	p.Wait()
}

// relays are the processes of two hosts, which are linked.
type relays struct {
	t                  testing.TB
	namespaces         [2]*proctest.Process // which keep those of the hosts; nil: both hosts are loopback
	keepalive, timeout time.Duration
	arenas             [2]*shm.Arena
	processes          [2]*relayProcess
}

func newRelays(t testing.TB, namespaces bool, keepalive, timeout time.Duration) *relays {
	g := &relays{t: t, keepalive: keepalive, timeout: timeout}
	for i := range g.arenas {
		var err error
		g.arenas[i], err = shm.Create(shm.Config{Size: 2 << 30, Host: i})
		must(t, err)
		t.Cleanup(func() { g.arenas[i].Close() })
	}
	if namespaces {
		for i := range g.namespaces {
			g.namespaces[i] = newNamespace(t)
		}
		nstest.Join(t, g.namespaces[0].PID(), g.namespaces[1].PID())
	}
	for i := range g.processes {
		g.start(i)
	}
	g.processes[0].join(g.processes[1])
	return g
}

// start starts the relay of a host.
func (g *relays) start(i int) {
	node := "127.0.0.1"
	if g.namespaces[i] != nil {
		node = []string{addressA, addressB}[i]
	}
	g.processes[i] = startRelay(g.t, g.arenas[i], g.namespaces[i])
	g.processes[i].begin(node, g.keepalive, g.timeout)
}

func (g *relays) quit() {
	for _, p := range g.processes {
		p.quit()
	}
	for _, p := range g.namespaces {
		if p != nil {
			p.Say("end")
			p.Wait()
		}
	}
}
