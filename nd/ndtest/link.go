package ndtest

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
)

// link is how the two halves of a scenario talk to each other, apart from the provider under
// test: what one tells, the other hears, in order.
type link struct {
	send func(json.RawMessage) error
	in   chan json.RawMessage
}

// inFlight is how many messages one half may be ahead of the other.
const inFlight = 1024

// newLinks returns the two ends of a link within this process.
func newLinks() (a, p *link) {
	a, p = &link{in: make(chan json.RawMessage, inFlight)}, &link{in: make(chan json.RawMessage, inFlight)}
	a.send = func(m json.RawMessage) error { p.in <- m; return nil }
	p.send = func(m json.RawMessage) error { a.in <- m; return nil }
	return a, p
}

// frame is what travels between the test and the other process.
type frame struct {
	Run      string          `json:",omitempty"` // scenario to run the away half of
	Settings settings        `json:",omitzero"`
	Message  json.RawMessage `json:",omitempty"` // from one half to the other
	Abandon  bool            `json:",omitempty"` // the half here is to give up
	Result   *sideResult     `json:",omitempty"` // the away half has ended
}

// sideResult is how one half ended.
type sideResult struct {
	Failures []string
	Notes    []string
	Skipped  string // why the scenario does not apply to this provider
	Derived  bool   // it failed only because the other half did
	Stuck    bool   // it did not end, and was given up
}

// frameStream writes and reads frames.
type frameStream struct {
	conn io.ReadWriteCloser
	mu   sync.Mutex // of enc
	enc  *json.Encoder
	dec  *json.Decoder
}

func newFrameStream(conn io.ReadWriteCloser) *frameStream {
	return &frameStream{conn: conn, enc: json.NewEncoder(conn), dec: json.NewDecoder(bufio.NewReader(conn))}
}

func (w *frameStream) write(f frame) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.enc.Encode(f)
}

// errAbandoned ends a half whose other half has failed.
var errAbandoned = errors.New("the other half of the scenario has failed")

// Serve plays the other process of a run: it runs the halves that [Run] asks for until the
// stream ends, with the providers that cfg.Open opens. cfg needs nothing else.
func Serve(conn io.ReadWriteCloser, cfg Config) error {
	w := newFrameStream(conn)
	opened := &providers{open: cfg.Open}
	defer opened.close()
	var toSide *link
	cancel := func(error) {}
	var running sync.WaitGroup
	defer running.Wait()
	defer func() { cancel(errAbandoned) }()
	for {
		var f frame
		if err := w.dec.Decode(&f); err != nil {
			if errors.Is(err, io.EOF) {
				return nil
			}
			return fmt.Errorf("ndtest: reading what the test says: %w", err)
		}
		switch {
		case f.Run != "":
			running.Wait()
			sc, ok := find(f.Run)
			if !ok {
				return fmt.Errorf("ndtest: no scenario %q; build both processes from the same source", f.Run)
			}
			l := &link{in: make(chan json.RawMessage, inFlight)}
			l.send = func(m json.RawMessage) error { return w.write(frame{Message: m}) }
			toSide = l
			ctx, stop := context.WithCancelCause(context.Background())
			cancel = stop
			running.Go(func() {
				defer stop(nil)
				v := supervise(ctx, opened, sc, sc.remote, l, f.Settings)
				_ = w.write(frame{Result: &v}) // a stream that is broken ends the loop
			})
		case f.Message != nil && toSide != nil:
			toSide.in <- f.Message
		case f.Abandon:
			cancel(errAbandoned)
		}
	}
}

func find(id string) (scenario, bool) {
	for _, sc := range append(all(), stressScenario) {
		if sc.id == id {
			return sc, true
		}
	}
	return scenario{}, false
}
