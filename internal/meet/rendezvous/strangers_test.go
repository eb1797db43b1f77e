package rendezvous

import (
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/softnd/softnd/internal/testkit/proctest"
)

// Strangers connect, and send nothing, half a greeting, or garbage. They are refused, and cost the job nothing.
func TestStrangers(t *testing.T) {
	before := handshakeLimit
	handshakeLimit = 10 * proctest.Timeout // only later connections end silent ones
	t.Cleanup(func() { handshakeLimit = before })
	ctx := proctest.Context(t)
	j := newJob(t, 3)
	j.join(t, 0, 1)
	half := greeting()[:20]
	garbage := []byte(strings.Repeat("GET / HTTP/1.1\r\n", 20))
	refused := false
	for i := range 1000 {
		conn, err := net.Dial("tcp4", j.config.Root.String())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		_, _ = conn.Write([][]byte{nil, half, garbage}[i%3])
		if i%3 == 2 && !refused {
			_ = conn.SetReadDeadline(time.Now().Add(proctest.Timeout))
			if n, err := io.Copy(io.Discard, conn); n != 0 || errors.Is(err, os.ErrDeadlineExceeded) {
				t.Fatalf("garbage got %d bytes as an answer: %v", n, err)
			}
			refused = true
		}
	}
	j.join(t, 2)
	j.each(t, func(_ int, c *Client) error { return c.Barrier(ctx) })
	r := j.clients[0].root
	r.mu.Lock()
	pending := len(r.strangers)
	r.mu.Unlock()
	if pending > maxStrangers {
		t.Errorf("%d handshakes at a time", pending)
	}
	if text := j.log.String(); text == "" || strings.Contains(text, "\n") {
		t.Errorf("rank 0 has printed %q, want one line", text)
	}
}

// Ranks join while a stranger connects again and again, and keeps its connections open.
func TestJoinDuringFlood(t *testing.T) {
	ctx := proctest.Context(t)
	j := newJob(t, 3)
	j.join(t, 0)
	stop := make(chan struct{})
	var flood sync.WaitGroup
	for range 2 {
		flood.Go(func() {
			var open [4 * maxStrangers]net.Conn
			for i := 0; ; i++ {
				select {
				case <-stop:
					for _, conn := range open {
						if conn != nil {
							conn.Close()
						}
					}
					return
				default:
				}
				if old := open[i%len(open)]; old != nil {
					old.Close()
				}
				open[i%len(open)], _ = net.Dial("tcp4", j.config.Root.String())
			}
		})
	}
	proctest.Eventually(t, "strangers have all places", func() bool {
		r := j.clients[0].root
		r.mu.Lock()
		defer r.mu.Unlock()
		return len(r.strangers) == maxStrangers
	})
	j.join(t, 1, 2)
	close(stop)
	flood.Wait()
	j.each(t, func(_ int, c *Client) error { return c.Barrier(ctx) })
}

// A rank whose first connection ends before its welcome, as after a time limit, tries again.
func TestRankTriesAgain(t *testing.T) {
	ctx := proctest.Context(t)
	j := newJob(t, 2)
	j.join(t, 0)
	conn, err := dial(ctx, j.config.Root, 0)
	if err != nil {
		t.Fatal(err)
	}
	c, err := greet(conn, testSecret)
	if err == nil {
		err = c.send(message{Kind: hello, Rank: 1, Size: 2})
	}
	if err != nil {
		t.Fatal(err)
	}
	r := j.clients[0].root
	has := func() bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		return r.ranks[1] != nil
	}
	proctest.Eventually(t, "rank 1 is known", has)
	conn.Close()
	proctest.Eventually(t, "the number of rank 1 is free", func() bool { return !has() })
	j.join(t, 1)
	j.each(t, func(_ int, c *Client) error { return c.Barrier(ctx) })
	if len(j.ended[0]) != 0 {
		t.Error("rank 0 got", <-j.ended[0])
	}
}

// A rank is no stranger once it is registered: further connections do not displace it.
func TestRankIsNoStranger(t *testing.T) {
	r := rootOf(Config{Size: 2})
	conn, _ := newPair(t)
	r.admit(conn)
	if why := r.register(&peer{channel: &channel{conn: conn}, rank: 1}, message{Kind: hello, Rank: 1, Size: 2}); why != "" {
		t.Fatal(why)
	}
	if len(r.strangers) != 0 {
		t.Error("a rank is among the strangers")
	}
}
