// Gorank is the Go half of c/tests/pair.c: it plays the same script, so that ndrun can mix ranks in Go
// and in C:
//
//	ndrun -n 1 ./c/tests/gorank : -n 1 build/tests/test_pair
package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log"
	"os"
	"strconv"
	"time"

	"github.com/softnd/softnd"
	"github.com/softnd/softnd/nd"
)

const (
	middle = 500_000 // see pair.c
	buffer = 3 << 19
	bursts = 5000
)

var (
	sizes    = []int{1, 7, 8, 40, 41, 48, 49, 4096, 65535, 65536, 65537, middle, buffer}
	messages = []int{0, 1, 48, 49, 1000, 65536, middle, buffer}

	ctx context.Context
	job *softnd.Job
)

func main() {
	log.SetFlags(log.Lshortfile)
	var cancel context.CancelFunc
	ctx, cancel = context.WithTimeout(context.Background(), 100*time.Second)
	defer cancel()
	if len(os.Args) > 1 && os.Args[1] != "pair" {
		map[string]func(){"kill": kill, "faulty": faulty, "again": again, "revoke": revoke, "stops": stops}[os.Args[1]]()
		return
	}
	if name := os.Getenv("PAIR_NAME"); name != "" { // ranks that no launcher has started
		rank, _ := strconv.Atoi(os.Getenv("SOFTND_RANK"))
		job = must(softnd.Join(ctx, name, rank, 2))
	} else {
		job = must(softnd.Init(ctx, softnd.WithExit()))
	}
	for round := range 4 {
		initiator, private := job.Rank() == round%2, round >= 2
		oneSided(initiator, private)
		twoSided(initiator, private)
		windows(initiator, private)
		remoteInvalidate(initiator)
		tooLong(initiator, 40)
		tooLong(initiator, 4000)
		burst(initiator)
	}
	barrier()
	ok(job.Close())
}

func ok(err error) {
	if err != nil {
		log.Output(2, fmt.Sprintf("rank %d: %v", job.Rank(), err))
		os.Exit(1)
	}
}

func check(what bool, v any) {
	if !what {
		log.Output(2, fmt.Sprintf("rank %d: unexpected %+v", job.Rank(), v))
		os.Exit(1)
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		log.Output(2, err.Error())
		os.Exit(1)
	}
	return v
}

func pattern(n, k int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i*7 + k*13 + 5)
	}
	return b
}

func barrier() { ok(job.Barrier(ctx)) }

func region(private bool) nd.MemoryRegion {
	const flags = nd.AllowLocalWrite | nd.AllowRemoteRead | nd.AllowRemoteWrite
	if private {
		return must(job.Adapter().Register(ctx, make([]byte, buffer), flags))
	}
	return must(job.Adapter().Allocate(ctx, buffer, flags))
}

type link struct {
	cq nd.CompletionQueue
	ep nd.Endpoint
}

func connect() link {
	cq := must(job.Adapter().CreateCompletionQueue(ctx, 512))
	ep := must(job.Connect(ctx, 1-job.Rank(), nd.EndpointConfig{ReceiveCQ: cq, InitiatorCQ: cq, Context: 77, ReceiveDepth: 128, InitiatorDepth: 128, InlineSize: 256}))
	return link{cq, ep}
}

func (l link) close() {
	ok(l.ep.Close())
	ok(l.cq.Close())
}

func (l link) wait() nd.Result {
	var r [1]nd.Result
	must(l.cq.Wait(ctx, r[:]))
	return r[0]
}

func (l link) want(t nd.RequestType, reqCtx uint64, n int) {
	r := l.wait()
	if r.Status != nd.Success || r.RequestType != t || r.RequestContext != reqCtx || int(r.BytesTransferred) != n {
		log.Output(2, fmt.Sprintf("rank %d: result %+v, want %v %d of %d bytes: %v", job.Rank(), r, t, reqCtx, n, l.ep.Err()))
		os.Exit(1)
	}
}

// poll makes progress once: it finds no result.
func (l link) poll() {
	var r [1]nd.Result
	n := l.cq.Poll(r[:])
	check(n == 0, r)
}

func theirs(d nd.WindowDescriptor) nd.WindowDescriptor {
	all := must(job.ExchangeWindows(ctx, d))
	return all[1-job.Rank()]
}

func oneSided(initiator, private bool) {
	l, mr := connect(), region(private)
	b := mr.Bytes()
	d := theirs(nd.DescriptorOf(mr))
	for k, n := range sizes {
		if initiator {
			copy(b, pattern(n, k))
			ok(l.ep.Write(uint64(k), nd.One(nd.SGEOf(mr, 0, n)), d.Address, d.Token, 0))
			l.want(nd.RequestWrite, uint64(k), n)
			if n <= 256 {
				ok(l.ep.Write(uint64(k), nd.One(nd.SGE{Buffer: bytes.Clone(b[:n])}), d.Address, d.Token, nd.Inline|nd.SilentSuccess))
			}
			clear(b[:n])
			ok(l.ep.Read(uint64(100+k), nd.List(nd.SGEOf(mr, 0, n/2), nd.SGEOf(mr, n/2, n-n/2)), d.Address, d.Token, 0))
			l.want(nd.RequestRead, uint64(100+k), n)
			check(bytes.Equal(b[:n], pattern(n, k)), n)
			barrier()
		} else {
			l.poll()
			barrier()
			check(bytes.Equal(b[:n], pattern(n, k)), n)
		}
		barrier()
	}
	l.close()
	ok(mr.Close(ctx))
	barrier()
}

func twoSided(initiator, private bool) {
	l, mr := connect(), region(private)
	b := mr.Bytes()
	for k, n := range messages {
		if initiator {
			copy(b, pattern(n, k))
			var sge nd.SGL
			if n > 0 {
				sge = nd.One(nd.SGEOf(mr, 0, n))
			}
			flags := nd.OpFlags(0)
			if k%2 != 0 {
				flags = nd.SendAndSolicitEvent
			}
			ok(l.ep.Send(uint64(k), sge, flags))
			l.want(nd.RequestSend, uint64(k), n)
		} else {
			ok(l.ep.Receive(uint64(10+k), nd.List(nd.SGEOf(mr, 0, 30), nd.SGEOf(mr, 30, buffer-30))))
			l.want(nd.RequestReceive, uint64(10+k), n)
			check(bytes.Equal(b[:n], pattern(n, k)), n)
			clear(b[:n])
		}
	}
	barrier()
	l.close()
	ok(mr.Close(ctx))
	barrier()
}

func burst(initiator bool) {
	const window, size = 64, 16
	l, mr := connect(), region(false)
	b := mr.Bytes()
	var r [16]nd.Result
	for posted, done := 0, 0; done < bursts; {
		for posted < bursts && posted-done < window {
			at := posted % window * size
			if sge := nd.One(nd.SGEOf(mr, at, size)); initiator {
				binary.LittleEndian.PutUint32(b[at:], uint32(posted))
				ok(l.ep.Send(uint64(posted), sge, 0))
			} else {
				ok(l.ep.Receive(uint64(posted), sge))
			}
			posted++
		}
		n := must(l.cq.Wait(ctx, r[:]))
		for i := range n {
			check(r[i].Status == nd.Success && r[i].RequestContext == uint64(done) && r[i].BytesTransferred == size, r[i])
			check(initiator || int(binary.LittleEndian.Uint32(b[done%window*size:])) == done, done)
			done++
		}
	}
	barrier()
	l.close()
	ok(mr.Close(ctx))
	barrier()
}

func windows(initiator, private bool) {
	l, mr := connect(), region(private)
	b := mr.Bytes()
	w := must(job.Adapter().CreateMemoryWindow(ctx))
	if !initiator {
		ok(l.ep.Bind(1, mr, w, b[1000:6000], nd.AllowRead|nd.AllowWrite))
		l.want(nd.RequestBind, 1, 0)
	}
	d := theirs(w.Descriptor())
	if initiator {
		copy(b, pattern(5000, 3))
		ok(l.ep.Write(2, nd.One(nd.SGEOf(mr, 0, 5000)), d.Address, d.Token, 0))
		l.want(nd.RequestWrite, 2, 5000)
	} else {
		l.poll()
	}
	barrier()
	if !initiator {
		check(bytes.Equal(b[1000:6000], pattern(5000, 3)), 0)
		ok(l.ep.Invalidate(3, w, 0))
		l.want(nd.RequestInvalidate, 3, 0)
		clear(b[1000:6000])
	}
	barrier()
	if initiator {
		ok(l.ep.Write(4, nd.One(nd.SGEOf(mr, 0, 8)), d.Address, d.Token, 0))
		r := l.wait()
		check(r.Status == nd.AccessViolation && r.RequestContext == 4 && errors.Is(l.ep.Err(), nd.AccessViolation), r)
	} else {
		ok(l.ep.Receive(5, nd.One(nd.SGEOf(mr, 0, 8))))
		r := l.wait()
		check(r.Status == nd.Canceled && r.RequestContext == 5 && l.ep.Err() != nil, r)
		for _, c := range b[1000:6000] {
			check(c == 0, c)
		}
	}
	barrier()
	ok(w.Close(ctx))
	l.close()
	ok(mr.Close(ctx))
	barrier()
}

func remoteInvalidate(initiator bool) {
	l, mr := connect(), region(false)
	w := must(job.Adapter().CreateMemoryWindow(ctx))
	sge := nd.One(nd.SGEOf(mr, 0, 20))
	if !initiator {
		ok(l.ep.Bind(1, mr, w, mr.Bytes()[:100], nd.AllowWrite))
		l.want(nd.RequestBind, 1, 0)
		ok(l.ep.Receive(2, sge))
	}
	d := theirs(w.Descriptor())
	if initiator {
		ok(l.ep.SendAndInvalidate(3, sge, d.Token, 0))
		l.want(nd.RequestSend, 3, 20)
	} else {
		r := l.wait()
		check(r.Status == nd.Success && r.RequestType == nd.RequestReceiveAndInvalidate && r.InvalidatedToken == w.RemoteToken() && r.BytesTransferred == 20, r)
	}
	barrier()
	ok(w.Close(ctx))
	l.close()
	ok(mr.Close(ctx))
	barrier()
}

func tooLong(initiator bool, n int) {
	l, mr := connect(), region(false)
	if !initiator {
		ok(l.ep.Receive(1, nd.One(nd.SGEOf(mr, 0, n-1))))
	}
	barrier()
	want := nd.BufferOverflow
	if initiator {
		ok(l.ep.Send(2, nd.One(nd.SGEOf(mr, 0, n)), 0))
		want = nd.RemoteError
	}
	r := l.wait()
	check(r.Status == want, r)
	barrier()
	l.close()
	ok(mr.Close(ctx))
	barrier()
}
