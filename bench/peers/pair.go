package peers

import (
	"bytes"
	"context"
	"fmt"
	"net/netip"
	"os"
	"strconv"
	"time"

	"github.com/softnd/softnd/internal/linux"
)

// pair is a measurement by two processes of one program, a server and a client, which meet at a port. It makes one
// repeat.
type pair struct {
	server func(port string, iterations int) program
	client func(port string, iterations int) program
	parse  func(output string) (ns float64, err error)
}

// repeats returns a function that runs the pair with as many iterations as fill the duration of a repeat. Its first
// call determines how many these are.
func (s *session) repeats(p pair) func(context.Context) (sample, error) {
	n := s.o.iterations
	return func(ctx context.Context) (sample, error) {
		if n == 0 {
			const probe = 500
			ns, err := s.once(ctx, p, probe)
			if err != nil {
				return sample{}, err
			}
			n = min(max(int(float64(s.o.Duration)/ns), 20), 1e9)
		}
		ns, err := s.once(ctx, p, n)
		return sample{ns, n}, err
	}
}

// once runs the pair, the server on the first core, and returns the figure of the client.
func (s *session) once(ctx context.Context, p pair, iterations int) (float64, error) {
	ctx, cancel := s.limit(ctx)
	defer cancel()
	defer s.sweep()
	server, port, err := s.serve(ctx, p, iterations)
	if err != nil {
		return 0, err
	}
	defer server.end()
	ns, err := s.ask(ctx, p, port, iterations)
	if err != nil {
		server.cancel()
	}
	return ns, err
}

// serve starts the server of a pair, and returns when it listens at the port. The caller ends it.
func (s *session) serve(ctx context.Context, p pair, iterations int) (server *process, port string, err error) {
	reservation, free, err := linux.ReservePort(netip.IPv4Unspecified())
	if err != nil {
		return nil, "", fmt.Errorf("no free port: %w", err)
	}
	defer reservation.Close() // when the server has the port
	port = strconv.Itoa(int(free.Port()))
	if server, err = s.start(ctx, s.pin(p.server(port, iterations), 0)); err != nil {
		return nil, "", err
	}
	if err := server.listening(port); err != nil {
		server.cancel()
		server.end()
		return nil, "", err
	}
	return server, port, nil
}

// ask runs the client of a pair, and returns its figure.
func (s *session) ask(ctx context.Context, p pair, port string, iterations int) (float64, error) {
	client, err := s.start(ctx, s.pin(p.client(port, iterations), 1))
	if err != nil {
		return 0, err
	}
	text, err := client.wait()
	if err != nil {
		return 0, err
	}
	return p.parse(text)
}

// pin binds rank r of a pair as package bench would.
func (s *session) pin(p program, r int) program {
	p.pinned, p.core = s.o.Pinned, s.cores[r%len(s.cores)]
	return p
}

// listening waits until the process listens at the port. It does not connect, because the servers accept the first
// connection as that of their client.
func (r *process) listening(port string) error {
	n, err := strconv.Atoi(port)
	if err != nil {
		return err
	}
	for !listens(n) {
		select {
		case <-r.done:
			text, err := r.wait()
			if err == nil {
				err = fmt.Errorf("%s: the server exited before the client started%s", r.cmd.Path, ending(text))
			}
			return err
		case <-time.After(2 * time.Millisecond):
		}
	}
	return nil
}

// listens searches the kernel's tables for a socket in state 0A, listening.
func listens(port int) bool {
	local := fmt.Appendf(nil, ":%04X", port)
	for _, table := range []string{"/proc/self/net/tcp", "/proc/self/net/tcp6"} {
		text, _ := os.ReadFile(table)
		for line := range bytes.Lines(text) {
			f := bytes.Fields(line)
			if len(f) > 3 && bytes.HasSuffix(f[1], local) && string(f[3]) == "0A" {
				return true
			}
		}
	}
	return false
}
