package endpoint_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"os"
	"strconv"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/softnd/softnd"
	"github.com/softnd/softnd/bench"
	"github.com/softnd/softnd/internal/testkit/proctest"
	"github.com/softnd/softnd/nd"
	"github.com/softnd/softnd/shm"
)

// The benchmarks run between two processes, each on its own core. The test binary starts itself
// once more as the other side.

var roleBenchPeer = proctest.Role("benchmark peer", func(*proctest.Self) error { return serveBench() })

// benchSide is what both sides have: memory for the other's writes, the other's window, and an
// endpoint.
type benchSide struct {
	job  *softnd.Job
	cq   nd.CompletionQueue
	ep   nd.Endpoint
	mr   nd.MemoryRegion
	far  nd.WindowDescriptor
	here nd.SGE // the source part of mr
	res  [16]nd.Result
}

const (
	benchTransfer = 1 << 20
	stopWord      = ^uint64(0)
)

// openBench connects the two sides. The first part of the region is the window, the second the
// source of writes.
func openBench(ctx context.Context) (*benchSide, error) {
	job, err := softnd.Init(ctx)
	if err != nil {
		return nil, err
	}
	s := &benchSide{job: job}
	if _, err := bench.Pin(job.Rank()); err != nil {
		return nil, err
	}
	ad := job.Adapter()
	if s.mr, err = ad.Allocate(ctx, 2*benchTransfer, nd.AllowLocalWrite|nd.AllowRemoteWrite); err != nil {
		return nil, err
	}
	if s.cq, err = ad.CreateCompletionQueue(ctx, 256); err != nil {
		return nil, err
	}
	if s.ep, err = job.Connect(ctx, 1-job.Rank(), nd.EndpointConfig{ReceiveCQ: s.cq, InitiatorCQ: s.cq}); err != nil {
		return nil, err
	}
	all, err := job.ExchangeWindows(ctx, nd.WindowDescriptor{Address: s.mr.Address(), Length: benchTransfer, Token: s.mr.RemoteToken()})
	if err != nil {
		return nil, err
	}
	s.far = all[1-job.Rank()]
	s.here = nd.SGE{Buffer: s.mr.Bytes()[benchTransfer:], Token: s.mr.LocalToken()}
	return s, nil
}

// word returns 8 bytes of the region that both processes use.
func (s *benchSide) word(at int) *atomic.Uint64 {
	return (*atomic.Uint64)(unsafe.Pointer(&s.mr.Bytes()[at]))
}

// write posts a Write of n bytes and takes its completion.
func (s *benchSide) write(n int) error {
	s.here.Buffer = s.mr.Bytes()[benchTransfer:][:n]
	if err := s.ep.Write(0, nd.One(s.here), s.far.Address, s.far.Token, 0); err != nil {
		return err
	}
	return s.complete(1)
}

func (s *benchSide) complete(n int) error {
	for n > 0 {
		got := s.cq.Poll(s.res[:])
		for _, r := range s.res[:got] {
			if r.Status != nd.Success {
				return fmt.Errorf("%v: %w", r.Status, s.ep.Err())
			}
		}
		n -= got
	}
	return nil
}

// bounce sends value to the other side and, unless it is the last one, waits until it comes
// back.
func (s *benchSide) bounce(value uint64) error {
	binary.NativeEndian.PutUint64(s.mr.Bytes()[benchTransfer:], value)
	if err := s.write(8); err != nil || value == stopWord {
		return err
	}
	for s.word(0).Load() != value {
	}
	return nil
}

// serveBench is the other side: it echoes raw words and writes until it is told to stop each.
func serveBench() error {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	s, err := openBench(ctx)
	if err != nil {
		return err
	}
	defer s.job.Close()
	line, err := bench.MapLine(os.NewFile(4, "line"))
	if err != nil {
		return err
	}
	line.Echo(false)
	line.Meet(1)
	for seen := uint64(0); seen != stopWord; {
		if v := s.word(0).Load(); v != seen {
			seen = v
			binary.NativeEndian.PutUint64(s.mr.Bytes()[benchTransfer:], v)
			if err := s.write(8); err != nil {
				return err
			}
		}
	}
	return s.job.Barrier(ctx)
}

// startBench makes the arena and the other side, and returns this side.
func startBench(b *testing.B) (*benchSide, *bench.Line) {
	arena, err := shm.Create(shm.Config{Ranks: 2})
	if err != nil {
		b.Fatal(err)
	}
	defer arena.Close()
	lineFile, err := bench.NewLineFile()
	if err != nil {
		b.Fatal(err)
	}
	defer lineFile.Close()
	cmd := proctest.Command(roleBenchPeer)
	cmd.Env = append(cmd.Env, softnd.EnvRank+"=1", softnd.EnvSize+"=2", softnd.EnvArenaFD+"=3")
	cmd.ExtraFiles = []*os.File{arena.File(), lineFile}
	peer := proctest.Start(b, cmd).NoLimit()
	b.Cleanup(func() {
		if !b.Failed() { // otherwise the peer may wait for this side
			peer.Wait()
		}
	})
	own, err := unix.Dup(int(arena.File().Fd())) // like an inherited one, because Init leaves it open
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { unix.Close(own) })
	b.Setenv(softnd.EnvRank, "0")
	b.Setenv(softnd.EnvSize, "2")
	b.Setenv(softnd.EnvArenaFD, strconv.Itoa(own))
	line, err := bench.MapLine(lineFile)
	if err != nil {
		b.Fatal(err)
	}
	s, err := openBench(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	return s, line
}

// BenchmarkTwoProcesses measures in one run what the machine can do and what softnd achieves.
//
// The sub-benchmarks report the time of one operation; "x-raw" and "x-memcpy"
// are their ratios to the limits that the first and the last but one measured.
func BenchmarkTwoProcesses(b *testing.B) {
	s, line := startBench(b)
	defer s.job.Close()
	var rawLine, memcpy float64
	perOp := func(b *testing.B, parts int) float64 {
		return float64(b.Elapsed().Nanoseconds()) / float64(b.N) / float64(parts)
	}

	b.Run("RawCacheLineHalfRoundTrip", func(b *testing.B) {
		for b.Loop() {
			line.Bounce()
		}
		rawLine = perOp(b, 2)
		b.ReportMetric(rawLine, "ns/half-rtt")
	})
	line.Meet(0)

	value := uint64(0)
	b.Run("Write8HalfRoundTrip", func(b *testing.B) {
		for b.Loop() {
			value++
			if err := s.bounce(value); err != nil {
				b.Fatal(err)
			}
		}
		oneWay := perOp(b, 2)
		b.ReportMetric(oneWay, "ns/oneWay-rtt")
		b.ReportMetric(oneWay/rawLine, "x-raw")
	})
	if err := s.bounce(stopWord); err != nil {
		b.Fatal(err)
	}

	// The other side only waits for the end from here on.
	b.Run("Write8PostedAndCompleted", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if err := s.write(8); err != nil {
				b.Fatal(err)
			}
		}
		b.ReportMetric(perOp(b, 1)/rawLine, "x-raw")
	})
	b.Run("Memcpy1MiB", func(b *testing.B) {
		from, to := make([]byte, benchTransfer), make([]byte, benchTransfer)
		b.SetBytes(benchTransfer)
		for b.Loop() {
			copy(to, from)
		}
		memcpy = perOp(b, 1)
	})
	b.Run("Write1MiB", func(b *testing.B) {
		b.SetBytes(benchTransfer)
		for b.Loop() {
			if err := s.write(benchTransfer); err != nil {
				b.Fatal(err)
			}
		}
		b.ReportMetric(memcpy/perOp(b, 1), "x-memcpy")
	})
	if err := s.job.Barrier(b.Context()); err != nil {
		b.Fatal(err)
	}
}
