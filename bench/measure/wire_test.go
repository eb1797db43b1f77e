package measure

import (
	"net"
	"testing"
)

// newWires returns both ends of a connection.
func newWires(t *testing.T) (active, passive *wire) {
	t.Helper()
	l, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	var ends [2]*wire
	dialed, err := follow(t.Context(), invitation{Address: l.Addr().String(), Token: "secret"})
	if err != nil {
		t.Fatal(err)
	}
	accepted, err := invite(l, "secret")
	if err != nil {
		t.Fatal(err)
	}
	for i, conn := range []*net.TCPConn{dialed, accepted} {
		file, err := conn.File()
		if err != nil {
			t.Fatal(err)
		}
		conn.Close()
		t.Cleanup(func() { file.Close() })
		ends[i] = newWire(i == 0, file)
	}
	return ends[0], ends[1]
}

// Both ends stay in step over measurements of all kinds.
func TestWire(t *testing.T) {
	active, passive := newWires(t)
	type measurement func(x *wire) (float64, error)
	all := []measurement{
		func(x *wire) (float64, error) { return x.trip(8, 8) },
		func(x *wire) (float64, error) { return x.trip(1, 300_000) },
		func(x *wire) (float64, error) { return x.stream(1) },
		func(x *wire) (float64, error) { return x.stream(1 << 20) },
		func(x *wire) (float64, error) { return x.trip(4096, 4096) },
	}
	answered := make(chan error, 1)
	go func() {
		var err error
		for _, m := range all {
			if err == nil {
				_, err = m(passive)
			}
		}
		answered <- err
	}()
	for i, m := range all {
		if ns, err := m(active); err != nil || !(ns > 0) {
			t.Errorf("measurement %d: %v ns, %v", i, ns, err)
		}
	}
	if err := <-answered; err != nil {
		t.Error(err)
	}
}

// The other end of a connection that ends gets an error.
func TestWireEnds(t *testing.T) {
	active, passive := newWires(t)
	done := make(chan error, 1)
	go func() {
		_, err := passive.trip(8, 8)
		done <- err
	}()
	active.out.(interface{ Close() error }).Close()
	if err := <-done; err == nil {
		t.Error("no error")
	}
}

// A stranger that knows the port is not taken for rank 0.
func TestWireRefusesStrangers(t *testing.T) {
	l, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for _, token := range []string{"stranger", "rank zer"} {
		conn, err := follow(t.Context(), invitation{Address: l.Addr().String(), Token: token})
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
	}
	conn, err := invite(l, "rank zer")
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
}
