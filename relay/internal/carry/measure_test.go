package carry

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/softnd/softnd/endpoint"
	"github.com/softnd/softnd/internal/proctest"
	"github.com/softnd/softnd/nd"
	"github.com/softnd/softnd/relay/internal/handshake"
	"github.com/softnd/softnd/shm"
)

// aloneRole is a relay as it is in use: a process that shares nothing with the ranks but the arena.
var aloneRole = proctest.Role("relay alone", func(self *proctest.Self) error {
	arena, err := shm.Attach(self.Ctx, self.File(0))
	if err != nil {
		return err
	}
	number, err := strconv.Atoi(self.Args[0])
	if err != nil {
		return err
	}
	r, err := openRelay(arena, []string{addressA, addressB}[number], settings{}, logf)
	if err != nil {
		return err
	}
	done := make(chan error, 1)
	go func() { done <- r.Run() }()
	if number == 1 {
		l, err := net.Listen("tcp", net.JoinHostPort(addressB, controlPort))
		if err != nil {
			return err
		}
		handshake.Listen(l, r.HandshakeConfig(), r.Link, logf)
	} else if err := joinRelay(r, net.JoinHostPort(addressB, controlPort), 1); err != nil {
		return err
	}
	self.Say("ready")
	_, _ = self.Hear() // until the rank ends
	r.cancel()
	<-done
	return r.Close()
})

// startAlone starts a host whose relay is a process of its own.
func startAlone(number int) (*host, error) {
	h := &host{ctx: context.Background()}
	var err error
	if h.arena, err = shm.Create(shm.Config{Size: 256 << 20, Host: number}); err != nil {
		return nil, err
	}
	if h.rank, err = openRank(h.ctx, h.arena, endpoint.Options{}, false); err != nil {
		return nil, err
	}
	cmd := proctest.Command(aloneRole, strconv.Itoa(number))
	cmd.ExtraFiles, cmd.Stderr = []*os.File{h.arena.File()}, os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	if _, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		return nil, fmt.Errorf("the relay has not started: %w", errors.Join(err, cmd.Wait()))
	}
	h.close = func() error {
		in.Close()
		return errors.Join(cmd.Wait(), h.rank.leave(), h.arena.Close())
	}
	if number == 1 {
		return h, h.rank.serve()
	}
	return h, nil
}

// stream writes with all connections at the same time.
func (w *wire) stream(c hostCommand) (micros float64, err error) {
	const depth = 4 // of each connection
	all := append([]nd.Endpoint{w.x}, w.more...)[:c.Over]
	start, n := time.Now(), w.a
	posted, completed := 0, 0
	post := func(i int) error {
		posted++
		return all[i].Write(uint64(i), n.sge(0, c.Size), c.Far.Address, c.Far.Token, 0)
	}
	for i := range depth * len(all) {
		if posted < c.Number {
			err = errors.Join(err, post(i%len(all)))
		}
	}
	var results [32]nd.Result
	for completed < c.Number && err == nil {
		var k int
		k, err = n.queue.Wait(n.ctx, results[:])
		for _, r := range results[:k] {
			completed++
			if r.Status != nd.Success {
				return 0, fmt.Errorf("%+v: %w", r, all[r.RequestContext].Err())
			}
			if posted < c.Number {
				err = errors.Join(err, post(int(r.RequestContext)))
			}
		}
	}
	return float64(time.Since(start).Microseconds()) / float64(c.Number), err
}

// sink receives the plain TCP streams of stream, and answers when one has ended.
func sink() error {
	l, err := net.Listen("tcp", net.JoinHostPort(addressB, "5001"))
	if err != nil {
		return err
	}
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			buffer := make([]byte, 1<<20)
			for err == nil {
				_, err = conn.Read(buffer)
			}
			_, _ = conn.Write(buffer[:1])
			conn.Close()
		}
	}()
	return nil
}

// stream sends bytes over a TCP connection, as a program without softnd does.
func stream(c hostCommand) (micros float64, err error) {
	conn, err := net.Dial("tcp", net.JoinHostPort(addressB, "5001"))
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	buffer := make([]byte, c.Size)
	start := time.Now()
	for range c.Number {
		if _, err := conn.Write(buffer); err != nil {
			return 0, err
		}
	}
	if err := conn.(*net.TCPConn).CloseWrite(); err != nil {
		return 0, err
	}
	if _, err := io.ReadFull(conn, buffer[:1]); err != nil {
		return 0, err
	}
	return float64(time.Since(start).Microseconds()) / float64(c.Number), nil
}

// TestMeasure prints how long messages and Writes take between two hosts, beside fi_pingpong and a TCP stream over the same
// link. Each relay is a process of its own. It asserts nothing.
func TestMeasure(t *testing.T) {
	if os.Getenv("SOFTND_MEASURE") == "" {
		t.Skip("SOFTND_MEASURE=1 measures, on an idle machine")
	}
	a, b := newNamespaces(t)
	a.NoLimit()
	b.NoLimit()
	passive := b.do(hostCommand{Do: "start", Number: 1, Alone: true})
	far := passive.Far
	a.do(hostCommand{Do: "start", Number: 0, Alone: true})
	a.do(hostCommand{Do: "connect", To: passive.Addr})
	b.do(hostCommand{Do: "sink"})
	const size, writes = 1 << 20, 2000
	bandwidth := func(do string, over int) float64 {
		a.do(hostCommand{Do: do, Number: writes / 10, Size: size, Far: far, Over: over})
		best := math.Inf(1)
		for range 6 {
			best = min(best, a.do(hostCommand{Do: do, Number: writes / 10, Size: size, Far: far, Over: over}).Micros)
		}
		return size / best
	}
	half, pingpong := 0., 0.
	var ratios []string
	const rounds = 3
	for range rounds {
		a.do(hostCommand{Do: "ping", Number: 200, Size: 8})
		half = math.Inf(1)
		for range 30 { // the best of short rounds, as other processes disturb
			half = min(half, a.do(hostCommand{Do: "ping", Number: 100, Size: 8}).Micros/2)
		}
		pingpong = math.Inf(1)
		for range 3 {
			pingpong = min(pingpong, pingpongOver(t, a, b))
		}
		one := bandwidth("write", 1)
		tcp := bandwidth("stream", 0)
		load, _ := os.ReadFile("/proc/loadavg")
		t.Logf("Send of 8 bytes %.1f µs, fi_pingpong %.1f µs; Write of 1 MiB %.0f MB/s, TCP %.0f MB/s; load %s", half, pingpong, one, tcp, load)
		ratios = append(ratios, fmt.Sprintf("%.2f / %.2f", half/pingpong, one/tcp))
	}
	a.do(hostCommand{Do: "more", Number: 63, To: passive.Addr})
	for range rounds {
		one, a64 := bandwidth("write", 1), bandwidth("write", 64)
		t.Logf("one connection: %.0f MB/s; 64: %.0f MB/s, %.2f of one", one, a64, a64/one)
	}
	t.Logf("of fi_pingpong / of TCP: %s", strings.Join(ratios, ", "))
	for _, p := range []hostProcess{a, b} {
		p.Say(`{"Do":"quit"}`)
		p.Wait()
	}
}

var pingpongLine = regexp.MustCompile(`(?m)^8 .*?([0-9.]+)\s+[0-9.]+\s*$`)

// pingpongOver returns the half round trip of 8 bytes that fi_pingpong measures, in microseconds.
func pingpongOver(t *testing.T, a, b hostProcess) float64 {
	t.Helper()
	args := []string{"-p", "tcp", "-e", "rdm", "-S", "8", "-I", "200"}
	server := b.inside("fi_pingpong", args...)
	if err := server.Start(); err != nil {
		t.Skipf("fi_pingpong: %v", err)
	}
	defer func() { _ = server.Wait() }()
	var out []byte
	var err error
	for range 50 { // the server says nothing when it listens
		time.Sleep(100 * time.Millisecond)
		if out, err = a.inside("fi_pingpong", append(args, addressB)...).CombinedOutput(); err == nil {
			break
		}
	}
	m := pingpongLine.FindSubmatch(out)
	if err != nil || m == nil {
		_ = server.Process.Kill()
		t.Fatalf("fi_pingpong: %v\n%s", err, out)
	}
	micros, err := strconv.ParseFloat(string(m[1]), 64)
	if err != nil {
		t.Fatal(err)
	}
	return micros
}
