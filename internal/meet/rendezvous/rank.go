package rendezvous

// TWIN c/src/meet/root_rank.c.

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Member is a rank's membership in the meeting. Put, Get and Barrier are for one goroutine at a time.
type Member struct {
	config  Config
	root    *root // of rank 0
	name    string
	local   netip.Addr
	channel *channel
	out     sync.Mutex    // held for a write
	answers chan message  // to requests
	closed  chan struct{} // when the connection has ended
	done    sync.WaitGroup

	mu     sync.Mutex
	left   bool  // or aborted: the end of the connection is expected
	ending error // why the connection has ended
}

// Pauses between attempts to connect.
const (
	minPause = 10 * time.Millisecond
	maxPause = 500 * time.Millisecond
)

// Join meets the other ranks. In rank 0 it starts the service. The other ranks connect to it, and try again until rank 0
// listens or ctx ends.
//
// Errors: [ErrSecret]. Join also fails if rank 0 cannot listen, or refuses this rank.
func Join(ctx context.Context, c Config) (*Member, error) {
	m := &Member{config: c, answers: make(chan message, 4), closed: make(chan struct{})}
	if c.Rank == 0 {
		var err error
		if m.root, err = newRoot(c); err != nil {
			return nil, fmt.Errorf("listen at %v: %w", c.Root, err)
		}
	}
	if err := m.connect(ctx); err != nil {
		if m.root != nil {
			err = errors.Join(err, m.root.close())
		}
		return nil, fmt.Errorf("connect to rank 0 at %v: %w", c.Root, err)
	}
	m.done.Go(m.listen)
	return m, nil
}

// connect connects to rank 0, and tries again if it does not listen yet.
func (m *Member) connect(ctx context.Context) error {
	for pause := minPause; ; pause = min(2*pause, maxPause) {
		again, err := m.try(ctx)
		if err == nil || !again {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w (last try: %w): check that rank 0 runs, that no earlier job has this address, and that a firewall lets it be reached", ctx.Err(), err)
		case <-time.After(pause):
		}
	}
}

// try tries to connect once. After an error, again says whether another attempt makes sense.
func (m *Member) try(ctx context.Context) (again bool, err error) {
	limited, cancel := context.WithTimeout(ctx, handshakeLimit)
	defer cancel()
	conn, err := dial(limited, m.config.Root, m.config.Keepalive)
	if err != nil {
		return !isOutOfFiles(err), err
	}
	stop := context.AfterFunc(limited, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	c, err := greet(conn, m.config.Secret)
	var answer message
	if err == nil {
		err = c.send(message{Kind: hello, Rank: m.config.Rank, Size: m.config.Size})
	}
	if err == nil {
		answer, err = c.receive()
	}
	if !stop() && err == nil {
		err = limited.Err()
	}
	switch {
	case err != nil:
		conn.Close()
		return isTransient(err), err
	case answer.Kind == end:
		conn.Close()
		return false, errors.New(answer.Text)
	case answer.Kind != welcome:
		conn.Close()
		return false, fmt.Errorf("it refuses rank %d: %s", m.config.Rank, answer.Text)
	}
	m.channel, m.name, m.local = c, answer.Text, ownAddress(conn).Addr()
	return false, nil
}

// isTransient reports whether another attempt may succeed: the other process has ended or has had too many connections.
func isTransient(err error) bool {
	for _, e := range []error{unix.ECONNRESET, unix.EPIPE, io.EOF, io.ErrUnexpectedEOF, os.ErrDeadlineExceeded, context.DeadlineExceeded} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// JobName returns the name of the job, which rank 0 has made up. No other job has the same.
func (m *Member) JobName() string { return m.name }

// LocalAddress returns the address of this host by which it reaches rank 0.
func (m *Member) LocalAddress() netip.Addr { return m.local }

// listen takes the messages of rank 0 until the connection ends.
func (m *Member) listen() {
	defer close(m.closed)
	for {
		got, err := m.channel.receive()
		switch {
		case err != nil:
			m.end(errors.New("the connection to rank 0 has ended"), &End{Rank: 0, Text: "rank 0 has died, or has ended without leaving the job"})
		case got.Kind == end:
			e := End{Rank: got.Rank, Code: got.Code, Text: got.Text}
			m.end(e, &e)
		default:
			select {
			case m.answers <- got:
				continue
			default: // more answers than requests
				m.end(errStranger, nil)
			}
		}
		return
	}
}

// end records why the connection ends. It calls Ended, unless e is nil or the end is expected.
func (m *Member) end(why error, e *End) {
	m.mu.Lock()
	expected := m.left
	m.ending = why
	m.mu.Unlock()
	m.channel.conn.Close()
	if e != nil && !expected && m.config.Ended != nil {
		go m.config.Ended(*e)
	}
}

// request sends a request.
func (m *Member) request(q message) error {
	m.out.Lock()
	defer m.out.Unlock()
	_ = m.channel.conn.SetWriteDeadline(time.Now().Add(writeLimit)) // fails only if the connection is closed
	return m.channel.send(q)
}

// ask sends a request and returns the answer.
func (m *Member) ask(ctx context.Context, q message) (message, error) {
	if err := m.request(q); err != nil {
		return message{}, m.failed(q.Kind, err)
	}
	return m.answer(ctx, q.Kind)
}

func (m *Member) answer(ctx context.Context, kind string) (message, error) {
	var a message
	select {
	case a = <-m.answers:
	case <-m.closed:
		select {
		case a = <-m.answers: // has come before the end
		default:
			return a, m.failed(kind, io.EOF)
		}
	case <-ctx.Done():
		return a, fmt.Errorf("%s: %w", kind, ctx.Err())
	}
	if a.Kind == refusal {
		return a, fmt.Errorf("%s: refused by rank 0: %s", kind, a.Text)
	}
	return a, nil
}

// failed returns the error of a request on a connection that has ended.
func (m *Member) failed(kind string, err error) error {
	select {
	case <-m.closed:
		m.mu.Lock()
		defer m.mu.Unlock()
		return fmt.Errorf("%s: %w", kind, m.ending)
	case <-time.After(writeLimit): // listen notices at once, or the connection has not ended
		return fmt.Errorf("%s: %w", kind, err)
	}
}

// Put sets the value of a key, once. All ranks can get it after the next Barrier.
func (m *Member) Put(ctx context.Context, key, value string) error {
	_, err := m.ask(ctx, message{Kind: put, Key: key, Value: value})
	return err
}

// Get returns the value of a key.
func (m *Member) Get(ctx context.Context, key string) (string, error) {
	a, err := m.ask(ctx, message{Kind: get, Key: key})
	return a.Value, err
}

// Barrier blocks until all ranks have called it. If ctx ends before, the error names the ranks that are missing, and no
// other request may follow.
func (m *Member) Barrier(ctx context.Context) error {
	_, err := m.ask(ctx, message{Kind: barrier})
	if ctx.Err() != nil && err != nil {
		now, cancel := context.WithTimeout(context.Background(), writeLimit)
		defer cancel()
		if a, askErr := m.ask(now, message{Kind: absent}); askErr == nil && a.Kind == absent && a.Text != "" {
			err = fmt.Errorf("%w; missing: %s", err, strings.TrimSpace(a.Text))
		}
	}
	return err
}

// leaving records that the end of the connection is expected. It returns false if the connection has ended already.
func (m *Member) leaving() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.left = true
	return m.ending == nil
}

// Leave tells rank 0 that this rank ends in good order, and closes the connection. In rank 0 it first waits until all
// others have left, so that a death or an Abort still ends the job. Then it ends the service.
//
// Errors: an [End] in rank 0 if another rank has ended the job. In other ranks, an error if the connection ends before rank 0 has
// answered, or rank 0 does not answer in two seconds; none if the job had ended before.
func (m *Member) Leave() error {
	ctx, cancel := context.Background(), func() {}
	if m.root == nil {
		ctx, cancel = context.WithTimeout(ctx, writeLimit)
	}
	defer cancel()
	var err error
	if m.leaving() {
		_, err = m.ask(ctx, message{Kind: leave})
	}
	if m.root != nil {
		err = m.root.wait()
		if end := (End{}); errors.As(err, &end) && end.Rank == m.config.Rank {
			select {} // the goroutine in Abort ends this process
		}
	}
	return errors.Join(err, m.close())
}

// HangUp closes the connection without a message. Rank 0 takes this rank for dead. In rank 0, HangUp ends the service.
func (m *Member) HangUp() error {
	m.leaving()
	if m.root != nil {
		m.root.end(nil, End{Rank: 0, Text: "rank 0 has ended without leaving the job"})
	}
	return m.close()
}

// close closes the connection, and in rank 0 ends the service.
func (m *Member) close() error {
	m.channel.conn.Close() // which ends listen
	m.done.Wait()
	if m.root != nil {
		return m.root.close()
	}
	return nil
}

// Abort tells all ranks that this rank aborts the job. It returns when rank 0 has received the request. Any goroutine may
// call it at any time. The caller exits then.
func (m *Member) Abort(code int, reason string) error {
	if !m.leaving() {
		return errors.New("abort: the connection to rank 0 has ended")
	}
	if err := m.request(message{Kind: abort, Code: code, Text: strings.ToValidUTF8(reason[:min(len(reason), maxReason)], "")}); err != nil {
		return err
	}
	select {
	case <-m.closed: // rank 0 closes the connection when it has told the others
		return nil
	case <-time.After(writeLimit):
		return errors.New("abort: no answer of rank 0")
	}
}
