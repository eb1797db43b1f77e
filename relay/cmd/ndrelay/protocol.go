package main

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"time"

	"github.com/softnd/softnd/endpoint"
	"github.com/softnd/softnd/internal/meet/relayclient"
	"github.com/softnd/softnd/relay/internal/handshake"
	"github.com/softnd/softnd/relay/internal/relay"
)

// Standard input and standard output carry lines, each with one JSON object:
//
//	in   config    what the relay has to know
//	out  listening the relay accepts control connections
//	in   peers     where the relays of all hosts listen
//	out  ready     all links are up
//
// A failure before ready ends with a line of type failure. After ready, standard input carries the collective calls of this host,
// and standard output the answers, in the form of package relayclient. The end of standard input means that the rank that started
// the relay has left or died.

// config is the first line.
type config struct {
	Job       string `json:"job"`       // names the job; the same at all hosts
	Secret    []byte `json:"secret"`    // of the job, 32 bytes in base64
	Host      int    `json:"host"`      // number of this host
	Hosts     int    `json:"hosts"`     // in the job
	Provider  string `json:"provider"`  // of libfabric; tcp if it is empty
	Address   string `json:"address"`   // of this host, for control connections and libfabric
	Keepalive string `json:"keepalive"` // such as 5s, which is the default
	Launcher  bool   `json:"launcher"`  // descriptor 4 is a connection with a launcher that speaks PMI
	Pack      uint64 `json:"pack"`      // bytes of the longest pack of an Exchange
}

type listening struct {
	Control string `json:"control"` // address and port of control connections
}

// peers is the second line.
type peers struct {
	Relays []string `json:"relays"` // Control of each host, by number
}

type ready struct {
	Ready bool `json:"ready"`
}

type failure struct {
	Error string `json:"error"`
}

// envReceiveTimeout is the variable that limits how long a Send of a rank waits for a Receive. The relay is the sender for
// ranks of other hosts.
const envReceiveTimeout = "SOFTND_RECEIVE_TIMEOUT"

// maxLine is the length of the longest line, which has the addresses of all relays.
const maxLine = 64 << 10

// input is what arrives at standard input. Each channel is closed at the end.
type input struct {
	lines chan []byte           // the first two
	calls chan relayclient.Call // after the lines
	err   error                 // why calls is closed before the end of standard input
}

// readInput reads standard input. limit returns the limit of a call in bytes, and wake lets the writer of a call go on.
func readInput(r io.Reader, limit func() uint64, wake func()) *input {
	i := &input{lines: make(chan []byte), calls: make(chan relayclient.Call)}
	go func() {
		defer close(i.calls)
		in := bufio.NewReaderSize(r, maxLine)
		if !i.readLines(in) {
			return
		}
		for {
			c, err := relayclient.ReadCall(in, limit(), wake)
			if err != nil {
				if !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
					i.err = fmt.Errorf("standard input: %w", err)
				}
				return
			}
			i.calls <- c
		}
	}()
	return i
}

func (i *input) readLines(in *bufio.Reader) bool {
	defer close(i.lines)
	for range 2 {
		line, err := in.ReadSlice('\n')
		if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
			return false
		}
		i.lines <- bytes.Clone(line)
	}
	return true
}

// decode decodes a line, which may contain what to has and nothing else.
func decode(line []byte, to any) error {
	d := json.NewDecoder(bytes.NewReader(line))
	d.DisallowUnknownFields()
	if err := d.Decode(to); err != nil {
		return fmt.Errorf("a line of standard input that is not that of this version: %w", err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errors.New("a line of standard input with more than one object")
	}
	return nil
}

// relay checks the configuration, and returns that of the relay, without the arena.
func (c *config) relay() (relay.Config, error) {
	out := relay.Config{Provider: c.Provider, Node: c.Address, Pack: c.Pack}
	fail := func(format string, args ...any) (relay.Config, error) {
		return out, fmt.Errorf("configuration: "+format, args...)
	}
	if c.Job == "" {
		return fail("no name of a job")
	}
	if n := len(out.Handshake.Secret); len(c.Secret) != n {
		return fail("a secret of %d bytes, want %d", len(c.Secret), n)
	}
	if c.Hosts < 2 || c.Hosts > relay.MaxHosts || c.Host < 0 || c.Host >= c.Hosts {
		return fail("host %d of %d hosts, want 2 to %d hosts, and a number from 0", c.Host, c.Hosts, relay.MaxHosts)
	}
	if _, err := netip.ParseAddr(c.Address); err != nil {
		return fail("address %q: want a numerical address of this host", c.Address)
	}
	if out.Provider == "" {
		out.Provider = "tcp"
	}
	if c.Keepalive != "" {
		var err error
		if out.Keepalive, err = time.ParseDuration(c.Keepalive); err != nil || out.Keepalive <= 0 {
			return fail("keepalive %q: want a duration such as 5s", c.Keepalive)
		}
	}
	if text := os.Getenv(envReceiveTimeout); text != "" {
		var err error
		if out.ReceiveTimeout, err = endpoint.ParseReceiveTimeout(text); err != nil {
			return out, fmt.Errorf("%s: %w", envReceiveTimeout, err)
		}
	}
	name := sha256.Sum256([]byte(c.Job))
	out.Handshake = handshake.Config{Secret: [32]byte(c.Secret), Job: [16]byte(name[:16])}
	return out, nil
}

// check checks that there is an address for each host.
func (p *peers) check(hosts int) error {
	if len(p.Relays) != hosts {
		return fmt.Errorf("addresses of %d relays for %d hosts", len(p.Relays), hosts)
	}
	for host, at := range p.Relays {
		if _, err := netip.ParseAddrPort(at); err != nil {
			return fmt.Errorf("the relay of host %d has the address %q: want a numerical address and a port", host, at)
		}
	}
	return nil
}
