package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/softnd/softnd/endpoint"
	"github.com/softnd/softnd/internal/meet/relayclient"
	"github.com/softnd/softnd/internal/testkit/proctest"
	"github.com/softnd/softnd/nd"
	"github.com/softnd/softnd/relay/internal/nstest"
	"github.com/softnd/softnd/shm"
)

// Two hosts in two network namespaces connect through their relays. When the ranks have left, the relays end.
func TestTwoNamespaces(t *testing.T) {
	nstest.Need(t)
	a, b := startLeader(t, 0, nstest.A, syscall.CLONE_NEWNET), startLeader(t, 1, nstest.B, syscall.CLONE_NEWNET)
	nstest.Join(t, a.PID(), b.PID())
	atA, atB := a.listen(), b.listen()
	for _, l := range []*leader{a, b} {
		l.link(atA, atB)
	}
	a.linked(t)
	b.linked(t)
	if a.address.As4()[1] != 77 || b.address.As4()[1] != 78 {
		t.Errorf("addresses %v and %v", a.address, b.address)
	}
	for _, d := range [][2]*leader{{a, b}, {b, a}} {
		d[0].Say("connect %v", d[1].address)
		d[0].Expect("connected")
	}
	for _, l := range []*leader{a, b} {
		l.Say("leave")
		l.Wait() // it has waited for its relay
		if text := l.Err.String(); text != "" {
			t.Errorf("a job without a failure says %q", text)
		}
	}
}

// newHosts starts two hosts whose relays are linked.
func newHosts(t *testing.T) (a, b *host) {
	t.Helper()
	a, b = newHost(t, 0), newHost(t, 1)
	for _, h := range []*host{a, b} {
		h.relay.Say("%s", peersLine(a.control, b.control))
	}
	for _, h := range []*host{a, b} {
		h.relay.Expect(`{"ready":true}`)
	}
	return a, b
}

// dial connects two ranks, and exchanges messages.
func (h *host) dial(t *testing.T, to *host) *connection {
	t.Helper()
	x, err := h.rank.dial(to.rank.address)
	if err != nil {
		t.Fatal(err)
	}
	return x
}

// end ends a host: its rank leaves, and the input of the relay ends.
func (h *host) end(t *testing.T) {
	t.Helper()
	if err := h.rank.leave(); err != nil {
		t.Error(err)
	}
	h.relay.Wait()
	wantNoMember(t, "no member is left in the arena", h.arena)
}

// orderly and late are how many hosts have ended with all members gone, and with a record that others had to find.
var orderly, late atomic.Int32

// wantNoMember waits until no process is a member of an arena. A child that is about to start may have a copy of a member's lock. On a
// busy machine, the end of a relay may take too long to be orderly: then it leaves its record to those who find that it has died. Most
// ends are orderly.
func wantNoMember(t *testing.T, what string, arena *shm.Arena) {
	t.Helper()
	for began := time.Now(); time.Since(began) < 5*time.Second; time.Sleep(time.Millisecond) {
		if arena.LiveMemberCount() == 0 {
			orderly.Add(1)
			return
		}
	}
	if n := late.Add(1); n > 5+orderly.Load() {
		t.Errorf("%d relays have left their records to others, and only %d have left the arena", n, orderly.Load())
	}
	m, err := arena.Join(shm.NoRank)
	if err != nil {
		t.Fatal(err)
	}
	proctest.Eventually(t, what, func() bool {
		m.CheckLiveness(func(shm.MemberID) {})
		return arena.LiveMemberCount() == 1
	})
	if err := m.Leave(); err != nil {
		t.Error(err)
	}
}

func wantEnd(t *testing.T, x *connection) {
	t.Helper()
	proctest.Receive(t, "the end of the connection", x.ep.Done())
	if err := x.ep.Err(); nd.StatusOf(err) != nd.ConnectionAborted {
		t.Errorf("the connection ends with %v", err)
	}
}

// A relay lives as long as a rank of its host does, or its input is open. No signal for the whole job ends it before.
func TestRelayOutlivesSignals(t *testing.T) {
	a, b := newHosts(t)
	ended := make(chan error, 1)
	for _, s := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGPIPE} {
		a.relay.Signal(s)
	}
	go func() { ended <- a.relay.End() }() // its input ends
	select {
	case err := <-ended:
		t.Fatalf("the relay has ended while a rank lives: %v", err)
	case <-time.After(5 * rankCheck):
	}
	a.dial(t, b)
	b.dial(t, a)
	a.end(t)
	if err := proctest.Receive(t, "the end of the relay", ended); err != nil {
		t.Error(err)
	}
	b.end(t)
	for _, h := range []*host{a, b} {
		if text := h.relay.Err.String(); text != "" {
			t.Errorf("a job without a failure says %q", text)
		}
	}
}

// All ranks of a host are killed: its relay ends, and connections to them end.
func TestKilledRanks(t *testing.T) {
	a, b := newHost(t, 0), startLeader(t, 1, "127.0.0.1", 0)
	atB := b.listen()
	a.relay.Say("%s", peersLine(a.control, atB))
	b.link(a.control, atB)
	b.linked(t)
	a.relay.Expect(`{"ready":true}`)
	x, err := a.rank.dial(b.address)
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	b.Kill()
	if !b.relay.Ended(proctest.Timeout) {
		t.Error("the relay outlives its ranks")
	}
	t.Logf("the relay has ended %v after its ranks", time.Since(began))
	wantEnd(t, x)
	if _, err := a.rank.dial(b.address); nd.StatusOf(err) != nd.HostUnreachable {
		t.Errorf("a Connect to a host that has ended: %v", err)
	}
	a.end(t)
}

// The rank that has started the relay is killed. The relay goes on for the other rank.
func TestKilledLeader(t *testing.T) {
	arena, err := shm.Create(shm.Config{Ranks: 2, Size: arenaSize})
	if err != nil {
		t.Fatal(err)
	}
	defer arena.Close()
	a := &host{arena: arena}
	if a.rank, err = newRank(proctest.Context(t), arena, 1); err != nil {
		t.Fatal(err)
	}
	leader := proctest.StartWith(t, arena.File(), roleRank)
	leader.Expect("joined")
	cmd := relayCommand(arena)
	a.relay = proctest.Start(t, cmd)
	a.relay.Say("%s", configLine(0, "127.0.0.1", nil))
	a.control = control(t, a.relay)
	b := newHost(t, 1)
	for _, h := range []*host{a, b} {
		h.relay.Say("%s", peersLine(a.control, b.control))
	}
	for _, h := range []*host{a, b} {
		h.relay.Expect(`{"ready":true}`)
	}
	ended := make(chan error, 1)
	go func() { ended <- a.relay.End() }()
	leader.Kill()
	a.dial(t, b)
	select {
	case err := <-ended:
		t.Fatalf("the relay has ended while a rank lives: %v", err)
	default:
	}
	a.end(t)
	b.end(t)
}

// When a rank dies, the relay has the launcher end the job. A rank that leaves has not died. If the leader has left in good order, the
// relay says so to the launcher when all ranks have left.
func TestDeathEndsTheJob(t *testing.T) {
	const aborted = "cmd=abort exitcode=1\n"
	for _, tc := range []struct {
		name, want string
		end        func(*lonelyHost)
	}{
		{"killed", aborted, func(h *lonelyHost) { h.link(); h.rank.Kill(); h.hear(aborted) }},
		{"killed, and the input has ended", aborted, func(h *lonelyHost) { h.link(); h.rank.Kill() }},
		{"killed before the links", aborted, func(h *lonelyHost) { h.rank.Kill(); h.hear(aborted) }},
		{"killed before the links, and the input has ended", aborted, func(h *lonelyHost) { h.rank.Kill() }},
		{"left", "", func(h *lonelyHost) { h.link(); h.rank.Say("leave"); h.rank.Wait() }},
		{"left in good order", "cmd=finalize\n", func(h *lonelyHost) {
			h.link()
			h.relay.Say("%s", finalize)
			h.rank.Say("leave")
			h.rank.Wait()
		}},
		{"killed after its leader has left in good order", aborted, func(h *lonelyHost) {
			h.link()
			h.relay.Say("%s", finalize)
			h.rank.Kill()
			h.hear(aborted)
		}},
		{"left before the links", "", func(h *lonelyHost) { h.rank.Say("leave"); h.rank.Wait() }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			h := newLonelyHost(t)
			tc.end(h)
			_ = h.relay.End() // before the links it fails
			h.connection.Close()
			rest, err := io.ReadAll(h.launcher)
			if got := h.heard + string(rest); err != nil || got != tc.want {
				t.Errorf("the launcher has got %q, %v, want %q", got, err, tc.want)
			}
			if says := strings.Contains(h.relay.Err.String(), "local rank 0 has died"); says != (tc.want == aborted) {
				t.Errorf("the relay says %q", h.relay.Err)
			}
		})
	}
}

// finalize is the message of a leader that leaves in good order.
var finalize = append([]byte{byte(relayclient.Finalize)}, make([]byte, 23)...)

// lonelyHost is a host with one rank, in a process of its own.
type lonelyHost struct {
	*host
	t                    *testing.T
	rank                 *proctest.Process
	launcher, connection *os.File // both ends
	heard                string   // by the launcher
}

func newLonelyHost(t *testing.T) *lonelyHost {
	t.Helper()
	arena, err := shm.Create(shm.Config{Ranks: 1, Size: arenaSize})
	if err != nil {
		t.Fatal(err)
	}
	h := &lonelyHost{host: &host{arena: arena}, t: t}
	if h.launcher, h.connection, err = os.Pipe(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		h.launcher.Close()
		h.connection.Close()
		arena.Close()
	})
	h.rank = proctest.StartWith(t, arena.File(), roleRank)
	h.rank.Expect("joined")
	cmd := relayCommand(arena)
	cmd.ExtraFiles = append(cmd.ExtraFiles, h.connection)
	h.relay = proctest.Start(t, cmd)
	h.relay.Say("%s", configLine(0, "127.0.0.1", map[string]any{"launcher": true}))
	h.control = control(t, h.relay)
	return h
}

// link links the relay with that of another host.
func (h *lonelyHost) link() {
	h.t.Helper()
	other := newHost(h.t, 1)
	for _, x := range []*host{h.host, other} {
		x.relay.Say("%s", peersLine(h.control, other.control))
	}
	for _, x := range []*host{h.host, other} {
		x.relay.Expect(`{"ready":true}`)
	}
	h.t.Cleanup(func() { other.end(h.t) })
}

// hear waits until the launcher gets a line, while the input of the relay is open.
func (h *lonelyHost) hear(line string) {
	h.t.Helper()
	_ = h.launcher.SetReadDeadline(time.Now().Add(proctest.Timeout)) // a pipe has deadlines
	b := make([]byte, len(line))
	if n, err := io.ReadFull(h.launcher, b); err != nil {
		h.t.Errorf("the launcher has got %q: %v", b[:n], err)
	}
	h.heard = string(b)
}

var roleRank = proctest.Role("rank", func(self *proctest.Self) error {
	arena, err := shm.Attach(self.Ctx, self.File(0))
	if err != nil {
		return err
	}
	n, err := newRank(self.Ctx, arena, 0)
	if err != nil {
		return err
	}
	self.Say("joined")
	if line, err := self.Hear(); err != nil || line != "leave" {
		return errors.Join(err, fmt.Errorf("unknown line %q", line))
	}
	return n.leave()
})

// A relay is killed: connections end on both sides, and after that neither host can connect to the other.
func TestKilledRelay(t *testing.T) {
	a, b := newHosts(t)
	x, y := a.dial(t, b), b.dial(t, a)
	b.relay.Kill()
	wantEnd(t, x)
	wantEnd(t, y)
	proctest.Eventually(t, "the death is known", func() bool { _, err := b.arena.Relay(); return err != nil })
	if _, err := b.rank.dial(a.rank.address); nd.StatusOf(err) != nd.HostUnreachable {
		t.Errorf("a Connect without a relay: %v", err)
	}
	if _, err := a.rank.dial(b.rank.address); nd.StatusOf(err) != nd.HostUnreachable {
		t.Errorf("a Connect to a host without a relay: %v", err)
	}
	a.end(t)
	if text := a.relay.Err.String(); !strings.HasPrefix(text, "softnd: relay of host 0: link to host 1: ") || strings.Count(text, "\n") != 1 {
		t.Errorf("the relay says %q, want one line about the link", text)
	}
}

// fails starts a relay and says lines to it. The relay has to answer with an error that contains want, and to leave the
// arena.
func fails(t *testing.T, arena *shm.Arena, want string, lines ...string) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	cmd := relayCommand(arena)
	cmd.Stdin = r
	p := proctest.Start(t, cmd)
	r.Close()
	go func() {
		_, _ = io.WriteString(w, strings.Join(append(lines, ""), "\n")) // it fails if the relay has ended
		if want == inputEnded {
			w.Close()
		}
	}()
	if len(lines) > 1 {
		control(t, p)
	}
	failed(t, p, want)
	if text := p.Err.String(); text != "" {
		t.Errorf("%s: it also says %q", want, text)
	}
	wantNoMember(t, want+": no member is left in the arena", arena)
}

// inputEnded is a part of the error of a relay whose input has ended too early.
const inputEnded = "standard input has ended"

// failed expects the last line of a relay.
func failed(t *testing.T, p *proctest.Process, want string) {
	t.Helper()
	var text string
	if want != inputEnded {
		text = p.Hear()
	}
	err := p.End()
	if want == inputEnded {
		lines := strings.Split(strings.TrimSuffix(p.Out.String(), "\n"), "\n")
		text = lines[len(lines)-1]
	}
	if err == nil || p.Cmd.ProcessState.ExitCode() != 1 || !strings.HasPrefix(text, `{"error":"`) || !strings.Contains(text, want) {
		t.Errorf("%v, %q, want exit status 1 and %q\n%s", err, text, want, p.Err)
	}
}

// A relay without complete and correct input says why, and ends.
func TestBadInput(t *testing.T) {
	arena, err := shm.Create(shm.Config{Size: arenaSize})
	if err != nil {
		t.Fatal(err)
	}
	defer arena.Close()
	good := configLine(0, "127.0.0.1", nil)
	with := func(key string, value any) string { return configLine(0, "127.0.0.1", map[string]any{key: value}) }
	for _, c := range []struct {
		want  string
		lines []string
	}{
		{inputEnded, nil},
		{inputEnded, []string{good}},
		{"line of standard input", []string{""}},
		{"line of standard input", []string{"\x00\xff{}"}},
		{"line of standard input", []string{strings.Repeat("a", 2*maxLine)}},
		{"line of standard input", []string{strings.Repeat("[", maxLine/2)}},
		{"more than one object", []string{good + good}},
		{"unknown field", []string{with("more", 1)}},
		{"no name of a job", []string{with("job", "")}},
		{"a secret of 0 bytes", []string{with("secret", nil)}},
		{"a secret of 3 bytes", []string{with("secret", "AAAA")}},
		{"illegal base64", []string{with("secret", "?")}},
		{"host -1 of 2", []string{with("host", -1)}},
		{"host 2 of 2", []string{with("host", 2)}},
		{"host 0 of 1", []string{with("hosts", 1)}},
		{"host 0 of 18", []string{with("hosts", 18)}},
		{"the arena is that of host 0", []string{with("host", 1)}},
		{"address \\\"localhost\\\"", []string{with("address", "localhost")}},
		{"assign requested address", []string{with("address", "192.0.2.1")}},
		{"keepalive", []string{with("keepalive", "soon")}},
		{"keepalive", []string{with("keepalive", "-1s")}},
		{"nonesuch", []string{with("provider", "nonesuch")}},
		{"line of standard input", []string{good, "hello"}},
		{"addresses of 1 relays for 2 hosts", []string{good, peersLine("127.0.0.1:1")}},
		{"the relay of host 1 has the address", []string{good, peersLine("127.0.0.1:1", "somewhere:1")}},
		{inputEnded, []string{good, peersLine("127.0.0.1:1", "127.0.0.1:1")}}, // the other relay has to connect
	} {
		fails(t, arena, c.want, c.lines...)
	}
}

// A relay has the receive time-out of the ranks.
func TestReceiveTimeout(t *testing.T) {
	c := config{Job: "a", Secret: make([]byte, 32), Hosts: 2, Address: "127.0.0.1"}
	for text, want := range map[string]time.Duration{"": 0, "0": endpoint.AtOnce, "70ms": 70 * time.Millisecond, "unlimited": endpoint.NoLimit} {
		t.Setenv(envReceiveTimeout, text)
		if got, err := c.relay(); err != nil || got.ReceiveTimeout != want {
			t.Errorf("%q: %v, %v, want %v", text, got.ReceiveTimeout, err, want)
		}
	}
	t.Setenv(envReceiveTimeout, "soon")
	if _, err := c.relay(); err == nil || !strings.Contains(err.Error(), envReceiveTimeout) {
		t.Errorf("an invalid value: %v", err)
	}
}

// Without an arena there is no relay. Arguments show what the program is.
func TestStartedByHand(t *testing.T) {
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	for _, files := range [][]*os.File{nil, {null}} {
		cmd := exec.Command("/proc/self/exe")
		cmd.Env = append(os.Environ(), envRelay+"=1")
		cmd.ExtraFiles = files
		p := proctest.Start(t, cmd)
		p.Say("%s", configLine(0, "127.0.0.1", nil))
		failed(t, p, "descriptor 3")
	}
	cmd := exec.Command("/proc/self/exe", "--help")
	cmd.Env = append(os.Environ(), envRelay+"=1")
	if status, _, text := proctest.Run(t, cmd); status != 2 || text != usage {
		t.Errorf("status %d, %q", status, text)
	}
}
