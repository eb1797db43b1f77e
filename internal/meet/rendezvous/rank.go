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

// Client is a rank's side of the meeting. Put, Get and Barrier are for one goroutine at a time.
type Client struct {
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
func Join(ctx context.Context, config Config) (*Client, error) {
	c := &Client{config: config, answers: make(chan message, 4), closed: make(chan struct{})}
	if config.Rank == 0 {
		var err error
		if c.root, err = newRoot(config); err != nil {
			return nil, fmt.Errorf("listen at %v: %w", config.Root, err)
		}
	}
	if err := c.connect(ctx); err != nil {
		if c.root != nil {
			err = errors.Join(err, c.root.close())
		}
		return nil, fmt.Errorf("connect to rank 0 at %v: %w", config.Root, err)
	}
	c.done.Go(c.listen)
	return c, nil
}

// connect connects to rank 0, and tries again if it does not listen yet.
func (c *Client) connect(ctx context.Context) error {
	for pause := minPause; ; pause = min(2*pause, maxPause) {
		again, err := c.try(ctx)
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
func (c *Client) try(ctx context.Context) (again bool, err error) {
	limited, cancel := context.WithTimeout(ctx, handshakeLimit)
	defer cancel()
	conn, err := dial(limited, c.config.Root, c.config.Keepalive)
	if err != nil {
		return !isOutOfFiles(err), err
	}
	stop := context.AfterFunc(limited, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	ch, err := greet(conn, c.config.Secret)
	var answer message
	if err == nil {
		err = ch.send(message{Kind: hello, Rank: c.config.Rank, Size: c.config.Size})
	}
	if err == nil {
		answer, err = ch.receive()
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
		return false, fmt.Errorf("it refuses rank %d: %s", c.config.Rank, answer.Text)
	}
	c.channel, c.name, c.local = ch, answer.Text, ownAddress(conn).Addr()
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
func (c *Client) JobName() string { return c.name }

// LocalAddress returns the address of this host by which it reaches rank 0.
func (c *Client) LocalAddress() netip.Addr { return c.local }

// listen takes the messages of rank 0 until the connection ends.
func (c *Client) listen() {
	defer close(c.closed)
	for {
		got, err := c.channel.receive()
		switch {
		case err != nil:
			c.end(errors.New("the connection to rank 0 has ended"), &End{Rank: 0, Text: "rank 0 has died, or has ended without leaving the job"})
		case got.Kind == end:
			e := End{Rank: got.Rank, Code: got.Code, Text: got.Text}
			c.end(e, &e)
		default:
			select {
			case c.answers <- got:
				continue
			default: // more answers than requests
				c.end(errStranger, nil)
			}
		}
		return
	}
}

// end records why the connection ends. It calls Ended, unless e is nil or the end is expected.
func (c *Client) end(why error, e *End) {
	c.mu.Lock()
	expected := c.left
	c.ending = why
	c.mu.Unlock()
	c.channel.conn.Close()
	if e != nil && !expected && c.config.Ended != nil {
		go c.config.Ended(*e)
	}
}

// request sends a request.
func (c *Client) request(q message) error {
	c.out.Lock()
	defer c.out.Unlock()
	_ = c.channel.conn.SetWriteDeadline(time.Now().Add(writeLimit)) // fails only if the connection is closed
	return c.channel.send(q)
}

// ask sends a request and returns the answer.
func (c *Client) ask(ctx context.Context, q message) (message, error) {
	if err := c.request(q); err != nil {
		return message{}, c.failed(q.Kind, err)
	}
	return c.answer(ctx, q.Kind)
}

func (c *Client) answer(ctx context.Context, kind string) (message, error) {
	var a message
	select {
	case a = <-c.answers:
	case <-c.closed:
		select {
		case a = <-c.answers: // has come before the end
		default:
			return a, c.failed(kind, io.EOF)
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
func (c *Client) failed(kind string, err error) error {
	select {
	case <-c.closed:
		c.mu.Lock()
		defer c.mu.Unlock()
		return fmt.Errorf("%s: %w", kind, c.ending)
	case <-time.After(writeLimit): // listen notices at once, or the connection has not ended
		return fmt.Errorf("%s: %w", kind, err)
	}
}

// Put sets the value of a key, once. All ranks can get it after the next Barrier.
func (c *Client) Put(ctx context.Context, key, value string) error {
	_, err := c.ask(ctx, message{Kind: put, Key: key, Value: value})
	return err
}

// Get returns the value of a key.
func (c *Client) Get(ctx context.Context, key string) (string, error) {
	a, err := c.ask(ctx, message{Kind: get, Key: key})
	return a.Value, err
}

// Barrier blocks until all ranks have called it. If ctx ends before, the error names the ranks that are missing, and no
// other request may follow.
func (c *Client) Barrier(ctx context.Context) error {
	_, err := c.ask(ctx, message{Kind: barrier})
	if ctx.Err() != nil && err != nil {
		now, cancel := context.WithTimeout(context.Background(), writeLimit)
		defer cancel()
		if a, askErr := c.ask(now, message{Kind: absent}); askErr == nil && a.Kind == absent && a.Text != "" {
			err = fmt.Errorf("%w; missing: %s", err, strings.TrimSpace(a.Text))
		}
	}
	return err
}

// leaving records that the end of the connection is expected. It returns false if the connection has ended already.
func (c *Client) leaving() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.left = true
	return c.ending == nil
}

// Leave tells rank 0 that this rank ends in good order, and closes the connection. In rank 0 it first waits until all
// others have left, so that a death or an Abort still ends the job. Then it ends the service.
//
// Errors: an [End] in rank 0 if another rank has ended the job. In other ranks, an error if the connection ends before rank 0 has
// answered, or rank 0 does not answer in two seconds; none if the job had ended before.
func (c *Client) Leave() error {
	ctx, cancel := context.Background(), func() {}
	if c.root == nil {
		ctx, cancel = context.WithTimeout(ctx, writeLimit)
	}
	defer cancel()
	var err error
	if c.leaving() {
		_, err = c.ask(ctx, message{Kind: leave})
	}
	if c.root != nil {
		err = c.root.wait()
		if end := (End{}); errors.As(err, &end) && end.Rank == c.config.Rank {
			select {} // the goroutine in Abort ends this process
		}
	}
	return errors.Join(err, c.close())
}

// HangUp closes the connection without a message. Rank 0 takes this rank for dead. In rank 0, HangUp ends the service.
func (c *Client) HangUp() error {
	c.leaving()
	if c.root != nil {
		c.root.end(nil, End{Rank: 0, Text: "rank 0 has ended without leaving the job"})
	}
	return c.close()
}

// close closes the connection, and in rank 0 ends the service.
func (c *Client) close() error {
	c.channel.conn.Close() // which ends listen
	c.done.Wait()
	if c.root != nil {
		return c.root.close()
	}
	return nil
}

// Abort tells all ranks that this rank aborts the job. It returns when rank 0 has received the request. Any goroutine may
// call it at any time. The caller exits then.
func (c *Client) Abort(code int, reason string) error {
	if !c.leaving() {
		return errors.New("abort: the connection to rank 0 has ended")
	}
	if err := c.request(message{Kind: abort, Code: code, Text: strings.ToValidUTF8(reason[:min(len(reason), maxReason)], "")}); err != nil {
		return err
	}
	select {
	case <-c.closed: // rank 0 closes the connection when it has told the others
		return nil
	case <-time.After(writeLimit):
		return errors.New("abort: no answer of rank 0")
	}
}
