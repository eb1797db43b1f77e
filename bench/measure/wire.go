package measure

import (
	"bufio"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"time"

	"github.com/softnd/softnd"
	"github.com/softnd/softnd/bench/internal/median"
)

// wire is a TCP connection between ranks 0 and 1, which run on two hosts. It measures what a program without softnd
// achieves between them, by blocking calls. Both ranks call its methods together, with the same values. The methods return
// the figure on rank 0, in nanoseconds.
type wire struct {
	active bool // rank 0
	out    io.Writer
	in     *bufio.Reader
	buffer []byte
}

// The first byte of each message of rank 0.
const (
	wireMore   = iota // another message follows
	wireAnswer        // rank 1 answers
	wireEnd           // of the measurement
)

const (
	wireLimit  = 10 * time.Second     // to connect
	wireTime   = 2 * time.Millisecond // of a run that counts, at least
	wireBuffer = 256 << 10
)

// invitation is what rank 1 tells rank 0.
type invitation struct{ Address, Token, Error string }

// connectWire connects the ranks of a job of one rank on each of two hosts.
func connectWire(ctx context.Context, job *softnd.Job) (_ *wire, err error) {
	hosts := job.Hosts()
	if len(hosts) != 2 || job.Size() != 2 {
		return nil, fmt.Errorf("measure: job over hosts: wrong number of ranks (asked 1 on each of 2 hosts, have %d on %d hosts): start it with -ppn 1 -n 2",
			job.Size(), len(hosts))
	}
	var own invitation
	var listener *net.TCPListener
	if job.Rank() == 1 {
		if listener, err = net.ListenTCP("tcp", net.TCPAddrFromAddrPort(netip.AddrPortFrom(hosts[1].Address, 0))); err != nil {
			own.Error = err.Error() // of which both ranks learn below
		} else {
			defer listener.Close()
			own.Address, own.Token = listener.Addr().String(), rand.Text()
		}
	}
	blob, err := json.Marshal(own)
	if err != nil {
		return nil, err
	}
	all, err := job.Exchange(ctx, blob)
	if err != nil {
		return nil, err
	}
	var theirs invitation
	if err = json.Unmarshal(all[1], &theirs); err == nil && theirs.Error != "" {
		err = errors.New(theirs.Error)
	}
	var conn *net.TCPConn
	switch {
	case err != nil:
	case job.Rank() == 1:
		conn, err = invite(listener, theirs.Token)
	default:
		conn, err = follow(ctx, theirs)
	}
	if err != nil {
		return nil, fmt.Errorf("measure: a TCP connection between the hosts, to compare with: %w: let the hosts reach each other's ports", err)
	}
	defer conn.Close()
	file, err := conn.File()
	if err != nil {
		return nil, err
	}
	file.Fd() // puts it into blocking mode
	return newWire(job.Rank() == 0, file), nil
}

// invite waits for the connection that shows the token. It closes those of strangers.
func invite(l *net.TCPListener, token string) (*net.TCPConn, error) {
	end := time.Now().Add(wireLimit)
	if err := l.SetDeadline(end); err != nil {
		return nil, err
	}
	for {
		conn, err := l.AcceptTCP()
		if err != nil {
			return nil, err
		}
		shown := make([]byte, len(token))
		err = conn.SetDeadline(end)
		if err == nil {
			_, err = io.ReadFull(conn, shown)
		}
		if err == nil && string(shown) == token {
			return conn, conn.SetDeadline(time.Time{})
		}
		conn.Close()
	}
}

// follow connects to rank 1.
func follow(ctx context.Context, i invitation) (*net.TCPConn, error) {
	conn, err := (&net.Dialer{Timeout: wireLimit}).DialContext(ctx, "tcp", i.Address)
	if err != nil {
		return nil, err
	}
	if _, err := io.WriteString(conn, i.Token); err != nil {
		conn.Close()
		return nil, err
	}
	return conn.(*net.TCPConn), nil
}

func newWire(active bool, conn *os.File) *wire {
	return &wire{active: active, out: conn, in: bufio.NewReaderSize(conn, wireBuffer)}
}

// trip measures a round trip: out bytes from rank 0, and an answer of back bytes.
func (x *wire) trip(out, back int) (float64, error) { return x.measure(out, back, true) }

// stream measures one of many messages of a size, one after the other, without answers.
func (x *wire) stream(size int) (float64, error) { return x.measure(size, 1, false) }

// measure measures messages of out bytes. Rank 1 answers with back bytes to the last message of a run, or to each.
func (x *wire) measure(out, back int, each bool) (float64, error) {
	if more := max(out, back) - len(x.buffer); more > 0 {
		x.buffer = append(x.buffer, make([]byte, more)...)
		pattern(x.buffer)
	}
	if !x.active {
		return 0, x.answer(out, back)
	}
	var figures []float64
	for n := 1; len(figures) < fewWindows; {
		start := time.Now()
		if err := x.run(n, out, back, each); err != nil {
			return 0, wireError(err)
		}
		took := time.Since(start)
		if took < wireTime {
			n *= 2
			continue
		}
		figures = append(figures, nsPerOp(took, n))
	}
	if err := x.send(wireEnd, out); err != nil {
		return 0, wireError(err)
	}
	return median.Of(figures), nil
}

// run sends n messages, and returns when rank 1 has got all.
func (x *wire) run(n, out, back int, each bool) error {
	for i := range n {
		if !each && i < n-1 {
			if err := x.send(wireMore, out); err != nil {
				return err
			}
			continue
		}
		if err := x.send(wireAnswer, out); err != nil {
			return err
		}
		if _, err := io.ReadFull(x.in, x.buffer[:back]); err != nil {
			return err
		}
	}
	return nil
}

func (x *wire) send(kind byte, size int) error {
	x.buffer[0] = kind
	_, err := x.out.Write(x.buffer[:size])
	return err
}

// answer is rank 1's part.
func (x *wire) answer(out, back int) error {
	for {
		if _, err := io.ReadFull(x.in, x.buffer[:out]); err != nil {
			return wireError(err)
		}
		switch x.buffer[0] {
		case wireEnd:
			return nil
		case wireAnswer:
			if _, err := x.out.Write(x.buffer[:back]); err != nil {
				return wireError(err)
			}
		}
	}
}

func wireError(err error) error {
	return fmt.Errorf("measure: TCP connection between the hosts: %w: check that the other rank runs", err)
}
