package handshake

import (
	"bytes"
	"encoding/binary"
	"io"
	"net"
	"testing"
)

// greeting returns the first message of host 1 to host 2.
func greeting() []byte {
	b := append(bytes.Clone(magic[:]), Version, 0, 1, 0, 2, 0, 0, 0)
	return append(append(b, 7), make([]byte, greetSize-17)...)
}

// against lets one side of a handshake meet another process, which sends b and reads all answers.
func against(b []byte, side func(net.Conn) (*Session, error)) (*Session, error) {
	ours, theirs := net.Pipe()
	go io.Copy(io.Discard, theirs)
	go func() {
		_, _ = theirs.Write(b)
		theirs.Close()
	}()
	defer ours.Close()
	return side(ours)
}

// FuzzAccept plays a process without the secret that connects to a relay.
func FuzzAccept(f *testing.F) {
	f.Add([]byte{})
	f.Add(greeting()[:20])
	f.Add(append(greeting(), make([]byte, addressSize)...))
	f.Fuzz(func(t *testing.T, b []byte) {
		if s, err := against(b, func(c net.Conn) (*Session, error) { return Accept(c, config(2, 9), nil) }); err == nil || s != nil {
			t.Errorf("a stranger is accepted: %+v", s)
		}
	})
}

// FuzzDial plays a process without the secret to which a relay connects.
func FuzzDial(f *testing.F) {
	f.Add([]byte{})
	f.Add(append(append(bytes.Clone(magic[:]), Version, 0), make([]byte, answerSize-10+addressSize)...))
	f.Fuzz(func(t *testing.T, b []byte) {
		if s, err := against(b, func(c net.Conn) (*Session, error) { return Dial(c, config(1, 9), 2) }); err == nil || s != nil {
			t.Errorf("a stranger is taken for a relay: %+v", s)
		}
	})
}

// FuzzRelay plays a faulty relay that knows the secret. Its greeting and its address are any bytes, with correct proofs.
func FuzzRelay(f *testing.F) {
	address := func(n uint16) []byte {
		return append(binary.LittleEndian.AppendUint16(nil, n), make([]byte, MaxAddress)...)
	}
	for _, n := range []uint16{0, 1, MaxAddress, MaxAddress + 1, 1<<16 - 1} {
		f.Add(greeting(), address(n))
	}
	f.Fuzz(func(t *testing.T, greet, address []byte) {
		greet, address = fit(greet, greetSize), fit(address, addressSize-macSize)
		ours, theirs := net.Pipe()
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			defer theirs.Close()
			c := config(1, 9)
			p := &transcript{secret: &c.Secret}
			if p.send(theirs, greet, "") != nil {
				return
			}
			if _, err := p.receive(theirs, answerSize); err != nil {
				return
			}
			if p.send(theirs, address, "active") == nil {
				_, _ = p.receive(theirs, addressSize)
			}
		}()
		s, err := Accept(ours, config(2, 9), nil)
		ours.Close()
		<-ended
		if n := int(binary.LittleEndian.Uint16(address)); err == nil && (s.Host == 2 || len(s.Address) != n || n == 0 || n > MaxAddress || !bytes.Equal(s.Address, address[2:2+n])) {
			t.Errorf("%+v", s)
		}
	})
}

// fit returns n bytes that begin as b does.
func fit(b []byte, n int) []byte {
	out := make([]byte, n)
	copy(out, b)
	return out
}
