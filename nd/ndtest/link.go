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
	Run     string          `json:",omitempty"` // scenario to run the away half of
	Terms   terms           `json:",omitzero"`
	Say     json.RawMessage `json:",omitempty"` // from one half to the other
	Abandon bool            `json:",omitempty"` // the half here is to give up
	End     *verdict        `json:",omitempty"` // the away half has ended
}

// verdict is how one half ended.
type verdict struct {
	Failures []string
	Notes    []string
	Skipped  string // why the scenario does not apply to this provider
	Derived  bool   // it failed only because the other half did
	Stuck    bool   // it did not end, and was given up
}

// wire writes and reads frames.
type wire struct {
	conn io.ReadWriteCloser
	mu   sync.Mutex // of enc
	enc  *json.Encoder
	dec  *json.Decoder
}

func newWire(conn io.ReadWriteCloser) *wire {
	return &wire{conn: conn, enc: json.NewEncoder(conn), dec: json.NewDecoder(bufio.NewReader(conn))}
}

func (w *wire) write(f frame) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.enc.Encode(f)
}

// errAbandoned ends a half whose other half has failed.
var errAbandoned = errors.New("the other half of the scenario has failed")

// Serve plays the other process of a run: it runs the halves that [Run] asks for until the
// stream ends, with the providers that cfg.Open opens. cfg needs nothing else.
func Serve(conn io.ReadWriteCloser, cfg Config) error {
	w := newWire(conn)
	house := &house{open: cfg.Open}
	defer house.close()
	var half *link
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
			l.send = func(m json.RawMessage) error { return w.write(frame{Say: m}) }
			half = l
			ctx, stop := context.WithCancelCause(context.Background())
			cancel = stop
			running.Go(func() {
				defer stop(nil)
				v := supervise(ctx, house, sc, sc.away, l, f.Terms)
				_ = w.write(frame{End: &v}) // a stream that is broken ends the loop
			})
		case f.Say != nil && half != nil:
			half.in <- f.Say
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
