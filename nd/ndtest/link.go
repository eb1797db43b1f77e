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

// link carries messages between the two sides of a scenario, in order and independently of the
// provider under test.
type link struct {
	send func(json.RawMessage) error
	in   chan json.RawMessage
}

// inFlight is how many messages a side may send before the other side reads one.
const inFlight = 1024

// newLinks returns the ends of a link between two sides in this process.
func newLinks() (a, p *link) {
	a, p = &link{in: make(chan json.RawMessage, inFlight)}, &link{in: make(chan json.RawMessage, inFlight)}
	a.send = func(m json.RawMessage) error { p.in <- m; return nil }
	p.send = func(m json.RawMessage) error { a.in <- m; return nil }
	return a, p
}

// frame is one unit on the stream between the process of Run and that of Serve. It has one purpose: one
// of Run, Message, Abandon and Result is set.
type frame struct {
	Run      string          `json:",omitempty"` // start the remote side of this scenario, with Settings
	Settings settings        `json:",omitzero"`
	Message  json.RawMessage `json:",omitempty"` // from one side to the other
	Abandon  bool            `json:",omitempty"` // cancel the side that runs here
	Result   *sideResult     `json:",omitempty"` // how the remote side ended
}

// sideResult is how one side ended.
type sideResult struct {
	Failures []string
	Notes    []string
	Skipped  string // why the scenario does not apply to this provider
	Derived  bool   // it failed only because the other side did
	Stuck    bool   // it did not return in time; its goroutine is left running
}

// frameStream reads and writes frames.
type frameStream struct {
	conn io.ReadWriteCloser
	mu   sync.Mutex // held for each use of enc
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

// errAbandoned cancels a side when the other side has failed.
var errAbandoned = errors.New("the other side of the scenario has failed")

// Serve runs one side of each scenario, in a process that [Config.Spawn] has started. conn is the other
// end of the stream that Spawn returns. Over conn, [Run] or [Stress] of the first process requests
// scenarios. Serve returns nil when conn ends. It uses only cfg.Open and cfg.OpenTimed; the other
// settings come from the first process. Both processes must be built from the same version of this package.
func Serve(conn io.ReadWriteCloser, cfg Config) error {
	w := newFrameStream(conn)
	opened := newProviders(cfg)
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
			return fmt.Errorf("ndtest: read a frame from the test process: %w", err)
		}
		switch {
		case f.Run != "":
			running.Wait()
			sc, ok := find(f.Run)
			if !ok {
				return fmt.Errorf("ndtest: unknown scenario %q: build both processes from the same version of package ndtest", f.Run)
			}
			if sc.timed && f.Settings.OpenTimed != (cfg.OpenTimed != nil) {
				return fmt.Errorf("ndtest: scenario %s needs Config.OpenTimed in both processes, or in neither", sc.id)
			}
			l := &link{in: make(chan json.RawMessage, inFlight)}
			l.send = func(m json.RawMessage) error { return w.write(frame{Message: m}) }
			toSide = l
			ctx, stop := context.WithCancelCause(context.Background())
			cancel = stop
			running.Go(func() {
				defer stop(nil)
				v := supervise(ctx, opened, sc, sc.remote, l, f.Settings)
				_ = w.write(frame{Result: &v}) // a broken stream also ends the loop
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
