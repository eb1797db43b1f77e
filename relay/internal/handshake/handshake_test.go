package handshake

import (
	"bytes"
	"errors"
	"io"
	"net"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"
)

// watchdog bounds every wait of the tests. No test measures a time.
const watchdog = 30 * time.Second

func config(host uint16, secret byte) *Config {
	return &Config{Secret: [32]byte{secret}, Job: [16]byte{7}, Host: host, Address: []byte{byte(host), 1, 2}}
}

type result struct {
	session *Session
	err     error
}

// shake runs both sides over one connection.
func shake(t *testing.T, active, passive *Config) (a, p result) {
	t.Helper()
	x, y := net.Pipe()
	defer x.Close()
	done := make(chan result, 1)
	go func() {
		s, err := Accept(y, passive, nil)
		if err != nil {
			y.Close()
		}
		done <- result{s, err}
	}()
	if a.session, a.err = Dial(x, active, 2); a.err != nil {
		x.Close()
	}
	select {
	case p = <-done:
	case <-time.After(watchdog):
		t.Fatal("Accept does not return")
	}
	return a, p
}

func TestBothSidesAgree(t *testing.T) {
	a, p := shake(t, config(1, 9), config(2, 9))
	if a.err != nil || p.err != nil {
		t.Fatal(a.err, p.err)
	}
	if want := (&Session{Host: 2, Address: []byte{2, 1, 2}, Outbound: p.session.Inbound, Inbound: p.session.Outbound}); !reflect.DeepEqual(a.session, want) {
		t.Errorf("active side: %+v, want %+v", a.session, want)
	}
	if p.session.Host != 1 || !bytes.Equal(p.session.Address, []byte{1, 1, 2}) || p.session.Inbound == p.session.Outbound {
		t.Errorf("passive side: %+v", p.session)
	}
	again, _ := shake(t, config(1, 9), config(2, 9))
	if again.session.Outbound == a.session.Outbound {
		t.Error("two handshakes have the same session number")
	}
}

func TestRefusals(t *testing.T) {
	job, host := config(2, 9), config(3, 9)
	job.Job[0]++
	for name, c := range map[string]struct {
		active, passive *Config
		a, p            error
	}{
		"secret": {config(1, 8), config(2, 9), ErrSecret, ErrSecret},
		"job":    {config(1, 9), job, ErrJob, ErrJob},
		"host":   {config(1, 9), host, ErrJob, ErrJob},
		"itself": {config(2, 9), config(2, 9), ErrJob, ErrJob},
	} {
		a, p := shake(t, c.active, c.passive)
		if a.session != nil || p.session != nil || !errors.Is(a.err, c.a) || !errors.Is(p.err, c.p) {
			t.Errorf("%s: %+v and %+v, want %v and %v", name, a, p, c.a, c.p)
		}
	}
}

// A stranger repeats what an honest relay has sent before.
func TestReplay(t *testing.T) {
	x, y := net.Pipe()
	var recorded bytes.Buffer
	go func() {
		_, _ = Accept(y, config(2, 9), nil)
	}()
	if _, err := Dial(recorder{x, &recorded}, config(1, 9), 2); err != nil {
		t.Fatal(err)
	}
	replay(t, recorded.Bytes(), ErrSecret)
}

// Each byte of what the active side sends matters.
func TestEachByteCounts(t *testing.T) {
	x, y := net.Pipe()
	done := make(chan error, 1)
	for at := range greetSize + addressSize {
		go func() {
			_, err := Accept(y, config(2, 9), nil)
			y.Close()
			done <- err
		}()
		session, err := Dial(&flipper{Conn: x, at: at}, config(1, 9), 2)
		x.Close()
		if accepted := <-done; accepted == nil || err == nil {
			t.Fatalf("byte %d changed: %v, %v, %+v", at, err, accepted, session)
		}
		x, y = net.Pipe()
	}
}

// flipper changes one byte on its way.
type flipper struct {
	net.Conn
	at, written int
}

func (f *flipper) Write(b []byte) (int, error) {
	b = bytes.Clone(b)
	if i := f.at - f.written; i >= 0 && i < len(b) {
		b[i] ^= 0x40
	}
	f.written += len(b)
	return f.Conn.Write(b)
}

type recorder struct {
	net.Conn
	to *bytes.Buffer
}

func (r recorder) Write(b []byte) (int, error) {
	r.to.Write(b)
	return r.Conn.Write(b)
}

// replay sends b to a relay, and wants it to refuse.
func replay(t *testing.T, b []byte, want error) {
	t.Helper()
	x, y := net.Pipe()
	defer x.Close()
	go io.Copy(io.Discard, x)
	go func() {
		_, _ = x.Write(b)
		x.Close()
	}()
	if s, err := Accept(y, config(2, 9), nil); !errors.Is(err, want) {
		t.Errorf("%+v, %v, want %v", s, err, want)
	}
}

func TestGarbage(t *testing.T) {
	replay(t, bytes.Repeat([]byte("GET / HTTP/1.1\r\n"), 100), ErrNoRelay)
	replay(t, magic[:], io.ErrUnexpectedEOF)
	replay(t, nil, io.EOF)
}

func TestOtherVersion(t *testing.T) {
	x, y := net.Pipe()
	go func() {
		_, _ = Accept(y, config(2, 9), nil)
		y.Close()
	}()
	_, err := Dial(&flipper{Conn: x, at: 9}, config(1, 9), 2) // the passive side answers, but has seen another version
	if !errors.Is(err, ErrSecret) {
		t.Errorf("%v, want %v", err, ErrSecret)
	}
	replay(t, append(append(bytes.Clone(magic[:]), Version+1, 0), make([]byte, greetSize)...), ErrVersion)
}

// Strangers that say nothing, garbage or half a handshake, 1,000 of them, do not keep a relay from joining.
func TestStrangers(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var lines []string
	joined := make(chan *Session, 10)
	welcome := func(c net.Conn, s *Session) {
		joined <- s
		_, _ = c.Write([]byte{1})
		c.Close()
	}
	s := Listen(l, config(2, 9), welcome, func(format string, args ...any) {
		mu.Lock()
		defer mu.Unlock()
		lines = append(lines, format)
	})
	greet := append(bytes.Clone(magic[:]), 1, 0, 1, 0, 2, 0, 0, 0)
	greet = append(append(greet, 7), make([]byte, greetSize-17)...)
	var strangers []net.Conn
	attempts := 0 // of the relay, in which strangers took its place
	join := func() {
		for {
			conn, err := net.Dial("tcp", l.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			if _, err = Dial(conn, config(1, 9), 2); err == nil {
				if _, err := io.ReadFull(conn, make([]byte, 1)); err != nil {
					t.Fatalf("the handshake has succeeded at the active side only: %v", err)
				}
			}
			conn.Close()
			if err == nil {
				break
			}
			if attempts++; attempts > 1000 {
				t.Fatal(err)
			}
		}
		select {
		case s := <-joined:
			if s.Host != 1 {
				t.Errorf("%+v", s)
			}
		case <-time.After(watchdog):
			t.Fatal("the relay does not join")
		}
	}
	for i := range 1000 {
		conn, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		strangers = append(strangers, conn)
		_, _ = conn.Write([][]byte{nil, []byte("garbage"), greet[:20], greet, append(bytes.Clone(greet), make([]byte, addressSize)...)}[i%5])
		if i%250 == 0 {
			join()
		}
	}
	join()
	s.mu.Lock()
	if n := len(s.pending); n > maxPending {
		t.Errorf("%d handshakes are pending, at most %d may be", n, maxPending)
	}
	s.mu.Unlock()
	for _, conn := range strangers {
		conn.Close()
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if n := s.Refused(); n != int64(1000+attempts) {
		t.Errorf("%d connections were refused, want 1000 and %d of the relay", n, attempts)
	}
	mu.Lock()
	defer mu.Unlock()
	if len(lines) != 1 || !strings.Contains(lines[0], "only counted") {
		t.Errorf("%d lines in the log: %q", len(lines), lines)
	}
}

// Strangers end the handshakes of their own address, and none of a relay at another host.
func TestStrangersOfAnotherAddress(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	joined := make(chan *Session, 1)
	s := Listen(l, config(2, 9), func(c net.Conn, s *Session) {
		joined <- s
		c.Close()
	}, t.Logf)
	defer s.Close()
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}}
	conn, err := dialer.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	for range 3 * maxPending {
		stranger, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer stranger.Close()
	}
	for s.Refused() < 2*maxPending-1 {
		if time.Sleep(time.Millisecond); t.Context().Err() != nil {
			t.Fatal("the strangers are not ended")
		}
	}
	if _, err := Dial(conn, config(1, 9), 2); err != nil {
		t.Fatal(err)
	}
	select {
	case <-joined:
	case <-time.After(watchdog):
		t.Fatal("the relay does not join")
	}
}

// A relay is not displaced between its proof and the last message.
func TestProvedRelayStays(t *testing.T) {
	x, y := net.Pipe()
	defer x.Close()
	done := make(chan error, 1)
	go func() {
		_, err := Accept(y, config(2, 9), func() bool { return false })
		y.Close()
		done <- err
	}()
	if s, err := Dial(x, config(1, 9), 2); !errors.Is(err, io.EOF) {
		t.Errorf("the active side of a displaced handshake: %+v, %v", s, err)
	}
	if err := <-done; !errors.Is(err, errDisplaced) {
		t.Error(err)
	}
}

// A relay that is closed in the middle of a handshake ends it.
func TestCloseEndsHandshakes(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := Listen(l, config(2, 9), func(c net.Conn, _ *Session) { c.Close() }, t.Logf)
	conn, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	closed := make(chan error)
	go func() { closed <- s.Close() }()
	select {
	case err := <-closed:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(watchdog):
		t.Fatal("Close does not return")
	}
}
