package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/softnd/softnd/internal/meet/pmi"
	"github.com/softnd/softnd/internal/meet/relayclient"
	"github.com/softnd/softnd/relay/internal/handshake"
	"github.com/softnd/softnd/relay/internal/relay"
	"github.com/softnd/softnd/shm"
)

const (
	linkLimit     = 30 * time.Second       // for all links, when all relays listen
	rankCheck     = 100 * time.Millisecond // interval between checks for remaining ranks
	endLimit      = 500 * time.Millisecond // for an orderly end
	finalizeLimit = time.Second            // for the launcher's answer
)

var errInputEnded = errors.New("standard input has ended: the rank that started this relay has left or died")

// daemon is the life of a relay.
type daemon struct {
	input   *input
	out     io.Writer
	answers chan relayclient.Answer
	isReady bool // the other side of out expects answers in place of lines
	log     io.Writer
	config  config

	arena   *shm.Arena
	relay   *relay.Relay
	ended   chan error // result of Run
	changes chan change

	launcher  *os.File         // that ends the job when a rank of this host has died; nil = nothing to do
	checks    <-chan time.Time // for deaths, while launcher may end the job
	finalizes bool             // tell the launcher that the rank which has started this relay ends well, when no rank of this host is left

	mu     sync.Mutex
	linked map[uint16]bool  // hosts that have a link, or had one
	failed map[uint16]error // of the last attempt to make a link to a host
}

// change is the begin of a link, or its end if err is not nil.
type change struct {
	host uint16
	err  error
}

func newDaemon(in io.Reader, out, log io.Writer) *daemon {
	d := &daemon{out: out, log: log, linked: make(map[uint16]bool), failed: make(map[uint16]error), answers: make(chan relayclient.Answer, maxAnswers)}
	d.input = readInput(in, func() uint64 { return d.config.Pack }, d.wakeLeader)
	return d
}

// run is the whole life of the relay. file is the arena, and launcher the descriptor of a connection with the launcher.
func (d *daemon) run(file *os.File, launcher int) error {
	if err := d.receive(&d.config); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	control, err := d.open(ctx, file)
	if err != nil {
		return err
	}
	if d.config.Launcher {
		d.launcher = os.NewFile(uintptr(launcher), "launcher")
		checks := time.NewTicker(rankCheck)
		defer checks.Stop()
		d.checks = checks.C
	}
	d.ended = make(chan error, 1)
	go func() { d.ended <- d.relay.Run() }()
	err = d.link(ctx, control)
	if err == nil {
		if err = d.wait(); err == nil {
			d.finalize()
		}
	}
	if errors.Is(err, errInputEnded) {
		d.awaitDeath()
	}
	cancel()
	return errors.Join(err, d.close())
}

// receive decodes the next line.
func (d *daemon) receive(to any) error {
	for {
		select {
		case line, ok := <-d.input.lines:
			if !ok {
				return errInputEnded
			}
			return decode(line, to)
		case <-d.checks:
			d.reportDeath()
		}
	}
}

// send sends a line.
func (d *daemon) send(line any) error {
	b, err := json.Marshal(line)
	if err != nil {
		return err
	}
	_, err = d.out.Write(append(b, '\n'))
	return err
}

// fail reports why the relay ends: to the rank that waits for it, or else to the user.
func (d *daemon) fail(err error) {
	isTold := !d.isReady && d.send(failure{err.Error()}) == nil
	if !isTold && !errors.Is(err, errInputEnded) { // if that rank has died, its launcher says so
		d.logf("%v", err)
	}
}

func (d *daemon) logf(format string, args ...any) {
	fmt.Fprintf(d.log, "softnd: relay of host %d: %s\n", d.config.Host, fmt.Sprintf(format, args...))
}

// open makes the relay that of the arena, and listens for control connections.
func (d *daemon) open(ctx context.Context, file *os.File) (net.Listener, error) {
	config, err := d.config.relay()
	if err != nil {
		return nil, err
	}
	if err := useProcessors(os.Getenv(envProcessors)); err != nil {
		return nil, err
	}
	if d.arena, err = shm.Attach(ctx, file); err != nil {
		return nil, fmt.Errorf("descriptor 3: %w", err)
	}
	file.Close()
	if host := d.arena.Host(); host != d.config.Host {
		return nil, fmt.Errorf("configuration: host %d, but the arena is that of host %d", d.config.Host, host)
	}
	d.changes = make(chan change, 2*d.config.Hosts) // one link for each host, and its end
	config.Arena, config.Logf = d.arena, d.logf
	config.Answer = d.answer
	config.Linked = func(host uint16, err error) { d.changes <- change{host, err} }
	control, err := net.Listen("tcp", net.JoinHostPort(d.config.Address, "0"))
	if err != nil {
		return nil, err
	}
	if d.relay, err = relay.New(ctx, config); err != nil {
		control.Close()
		return nil, err
	}
	return control, nil
}

// link makes a link to each other host: it connects to those with a smaller number, and the others connect to it.
func (d *daemon) link(ctx context.Context, control net.Listener) error {
	listener := handshake.Listen(control, d.relay.HandshakeConfig(), d.add, d.logf)
	defer listener.Close() // a link that has failed is not made again
	if err := d.send(listening{control.Addr().String()}); err != nil {
		return err
	}
	var p peers
	if err := d.receive(&p); err != nil {
		return err
	}
	if err := p.check(d.config.Hosts); err != nil {
		return err
	}
	failed := make(chan error, d.config.Host)
	for host := range d.config.Host {
		go func() { // it ends with ctx, or at most the limit of a handshake later
			if err := d.dial(ctx, p.Relays[host], uint16(host)); err != nil {
				failed <- err
			}
		}()
	}
	if err := d.waitForLinks(failed); err != nil {
		return explain(err, p.Relays)
	}
	d.isReady = true
	if err := d.send(ready{true}); err != nil {
		return err
	}
	go d.writeAnswers()
	return nil
}

// maxAnswers is more than the answers that the leader can miss, if it waits for each.
const maxAnswers = 16

// writeAnswers passes the answers of the relay to the leader, until the process ends.
func (d *daemon) writeAnswers() {
	for a := range d.answers {
		if err := relayclient.WriteAnswer(d.out, &a, d.wakeLeader); err != nil {
			return // the leader has left
		}
	}
}

// answer keeps an answer for writeAnswers. A leader that does not read loses answers.
func (d *daemon) answer(a relayclient.Answer) {
	select {
	case d.answers <- a:
	default:
	}
}

// wakeLeader wakes the rank that has started this relay: it has something to read, or can write again.
func (d *daemon) wakeLeader() {
	if id, ok := d.arena.MemberOf(0); ok {
		if p, err := d.arena.Peer(id); err == nil {
			p.Wake()
		}
	}
}

// Pauses between attempts to make a link.
const (
	minPause = 10 * time.Millisecond
	maxPause = 500 * time.Millisecond
)

// dial makes a link to a host. If a handshake fails for a cause that may not last, dial tries again until ctx ends: many
// strangers at the port of the other relay displace handshakes. Other failures are returned at once.
func (d *daemon) dial(ctx context.Context, to string, host uint16) error {
	for pause := minPause; ; pause = min(2*pause, maxPause) {
		conn, session, err := d.shake(ctx, to, host)
		if err == nil {
			d.add(conn, session)
			return nil
		}
		if !isTransient(err) {
			return err
		}
		d.mu.Lock()
		d.failed[host] = err
		d.mu.Unlock()
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(pause):
		}
	}
}

// shake connects to the relay of a host, and runs one handshake with it.
func (d *daemon) shake(ctx context.Context, to string, host uint16) (net.Conn, *handshake.Session, error) {
	dialer := net.Dialer{Timeout: handshake.Limit}
	conn, err := dialer.DialContext(ctx, "tcp", to)
	if err != nil {
		return nil, nil, fmt.Errorf("connect to the relay of host %d: %w", host, err)
	}
	session, err := handshake.Dial(conn, d.relay.HandshakeConfig(), host)
	if err != nil {
		conn.Close()
		return nil, nil, err
	}
	return conn, session, nil
}

// isTransient reports whether another attempt may succeed. A refused connection is final: the relay has listened, and has ended.
func isTransient(err error) bool {
	for _, e := range []error{io.EOF, io.ErrUnexpectedEOF, unix.ECONNRESET, unix.EPIPE, unix.ETIMEDOUT, os.ErrDeadlineExceeded, context.DeadlineExceeded} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// add adds a link. A host has only one: nothing is sent over another.
func (d *daemon) add(conn net.Conn, session *handshake.Session) {
	d.mu.Lock()
	known := d.linked[session.Host] || int(session.Host) >= d.config.Hosts
	d.linked[session.Host] = true
	d.mu.Unlock()
	if known {
		d.logf("a second connection of host %d was closed", session.Host)
		conn.Close()
		return
	}
	d.relay.Link(conn, session)
}

// waitForLinks waits until all links are up.
func (d *daemon) waitForLinks(failed <-chan error) error {
	limit := time.NewTimer(linkLimit)
	defer limit.Stop()
	up := make(map[uint16]bool)
	for len(up) < d.config.Hosts-1 {
		select {
		case c := <-d.changes:
			if c.err != nil {
				return fmt.Errorf("link to host %d: %w", c.host, c.err)
			}
			up[c.host] = true
		case err := <-failed:
			return err
		case err := <-d.ended:
			d.ended <- err
			return err
		case <-d.input.calls:
			return errInputEnded
		case <-d.checks:
			d.reportDeath()
		case <-limit.C:
			return fmt.Errorf("no link to host %s within %v: check that its relay runs and that no firewall blocks the port", d.missing(up), linkLimit)
		}
	}
	return nil
}

// missing lists the other hosts that are not in up.
func (d *daemon) missing(up map[uint16]bool) string {
	var hosts []string
	for host := range d.config.Hosts {
		if host != d.config.Host && !up[uint16(host)] {
			text := fmt.Sprint(host)
			d.mu.Lock()
			if err := d.failed[uint16(host)]; err != nil {
				text += fmt.Sprintf(" (last try: %v)", err)
			}
			d.mu.Unlock()
			hosts = append(hosts, text)
		}
	}
	return strings.Join(hosts, ", ")
}

// wait waits until standard input has ended and no rank is left.
func (d *daemon) wait() error {
	calls, checks := d.input.calls, d.checks
	for {
		select {
		case c, ok := <-calls:
			switch {
			case !ok && d.input.err != nil:
				return d.input.err
			case !ok:
				calls = nil
				d.relay.EndCalls()
			case c.Kind == relayclient.Finalize:
				d.finalizes = true
			default:
				d.relay.Call(c)
			}
		case <-checks:
		case err := <-d.ended:
			d.ended <- err
			return err
		}
		isOver := calls == nil && !d.hasRanks()
		d.reportDeath() // after hasRanks: else the last rank could die between the two
		if isOver {
			return nil
		}
		if calls == nil && checks == nil {
			ticker := time.NewTicker(rankCheck)
			defer ticker.Stop()
			checks = ticker.C
		}
	}
}

// reportDeath has the launcher end the job if a rank of this host has died.
func (d *daemon) reportDeath() {
	if d.launcher == nil {
		return
	}
	for rank := range d.arena.Ranks() {
		if d.relay.HasDied(rank) {
			next := "the launcher ends the job"
			if err := pmi.Abort(d.launcher, 1); err != nil { // the launcher may have ended the job already
				next = fmt.Sprintf("the launcher cannot be told: %v", err)
			}
			d.logf("local rank %d has died, or has exited without leaving the job: %s", rank, next)
			_ = d.launcher.Close()
			d.launcher = nil
			return
		}
	}
}

// finalize tells the launcher that the rank that has started this relay ends well, if that rank has left it to the relay.
func (d *daemon) finalize() {
	if d.launcher == nil || !d.finalizes {
		return
	}
	done := make(chan struct{})
	go func() {
		_ = pmi.Finalize(d.launcher) // fails if the launcher has ended the job already
		close(done)
	}()
	select {
	case <-done:
	case <-time.After(finalizeLimit): // the descriptor may have no deadlines
	}
}

// awaitDeath is reportDeath when the rank that has started the relay has closed its input. If that rank has died, the other
// members of the arena notice that soon.
func (d *daemon) awaitDeath() {
	end := time.Now().Add(endLimit)
	for d.reportDeath(); d.launcher != nil && time.Now().Before(end); d.reportDeath() {
		time.Sleep(rankCheck / 10)
	}
}

// hasRanks reports whether a rank has joined and lives. In an arena without ranks, any other member counts.
func (d *daemon) hasRanks() bool {
	if d.arena.Ranks() == 0 {
		return d.arena.LiveMemberCount() > 1
	}
	for rank := range d.arena.Ranks() {
		if id, ok := d.arena.MemberOf(rank); ok {
			if p, err := d.arena.Peer(id); err == nil && !p.Gone() {
				return true
			}
		}
	}
	return false
}

// close ends the relay in an orderly way, unless that takes too long. The end of the process frees everything, too.
func (d *daemon) close() error {
	done := make(chan error, 1)
	go func() {
		<-d.ended // that ctx has ended
		done <- errors.Join(d.relay.Close(), d.arena.Close())
	}()
	select {
	case err := <-done:
		return err
	case <-time.After(endLimit):
		return nil
	}
}
