package main

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/softnd/softnd"
	"github.com/softnd/softnd/nd"
)

const revokeSize = 2 << 20

// revoke is c/tests/revoke.c in Go.
func revoke() {
	job = must(softnd.Init(ctx, softnd.WithExit()))
	if job.Rank() == 0 {
		own()
	} else {
		writeAll()
	}
	barrier()
	ok(job.Close())
}

func own() {
	seconds := 2
	if n, err := strconv.Atoi(os.Getenv("REVOKE_SECONDS")); err == nil {
		seconds = n
	}
	end := time.Now().Add(time.Duration(seconds) * time.Second)
	mr := must(job.Adapter().Allocate(ctx, revokeSize, nd.AllowLocalWrite))
	message := must(job.Adapter().Allocate(ctx, 64, nd.AllowLocalWrite))
	b, words := mr.Bytes(), must(nd.View[atomic.Uint64](mr.Bytes()))
	before := make([]byte, revokeSize)
	rounds, cut, late := 0, 0, 0
	for more := true; more; rounds++ {
		more = time.Now().Before(end)
		l := link{cq: must(job.Adapter().CreateCompletionQueue(ctx, 64))}
		l.ep = must(job.Connect(ctx, 1, nd.EndpointConfig{ReceiveCQ: l.cq, InitiatorCQ: l.cq}))
		w := must(job.Adapter().CreateMemoryWindow(ctx))
		var d nd.WindowDescriptor
		if more {
			ok(l.ep.Bind(1, mr, w, b, nd.AllowWrite))
			l.want(nd.RequestBind, 1, 0)
			d = w.Descriptor()
		}
		copy(message.Bytes(), must(d.MarshalBinary()))
		first := words[0].Load()
		ok(l.ep.Send(2, nd.One(nd.SGEOf(message, 0, nd.WindowDescriptorSize)), 0))
		l.want(nd.RequestSend, 2, nd.WindowDescriptorSize)
		if more {
			for words[0].Load() == first {
				l.poll()
			}
			for until := time.Now().Add(time.Duration(rand.IntN(400_000))); time.Now().Before(until); {
			}
			ok(l.ep.Invalidate(3, w, 0))
			l.want(nd.RequestInvalidate, 3, 0)
			copy(before, b)
			if !bytes.Equal(before[8:16], before[revokeSize-8:]) { // the last long Write has come in part
				cut++
			}
			time.Sleep(time.Duration(rand.IntN(300_000)))
			if !bytes.Equal(before, b) {
				late++
			}
		}
		ok(l.ep.Close())
		ok(w.Close(ctx))
		ok(l.cq.Close())
	}
	fmt.Printf("revoke: %d rounds, %d with a transfer in flight, %d with a late byte\n", rounds, cut, late)
	check(late == 0, late)
	ok(mr.Close(ctx))
	ok(message.Close(ctx))
}

func writeAll() {
	mr := must(job.Adapter().Allocate(ctx, revokeSize+64, nd.AllowLocalWrite))
	b := mr.Bytes()
	stamp := uint64(0)
	for more := true; more; {
		l := link{cq: must(job.Adapter().CreateCompletionQueue(ctx, 64))}
		l.ep = must(job.Connect(ctx, 0, nd.EndpointConfig{ReceiveCQ: l.cq, InitiatorCQ: l.cq}))
		ok(l.ep.Receive(1, nd.One(nd.SGEOf(mr, revokeSize, 64))))
		l.want(nd.RequestReceive, 1, nd.WindowDescriptorSize)
		var d nd.WindowDescriptor
		ok(d.UnmarshalBinary(b[revokeSize : revokeSize+nd.WindowDescriptorSize]))
		more = d.Length != 0
		for failed := false; more && !failed; {
			stamp++
			n := 8
			if rand.IntN(4) == 0 {
				n = revokeSize
			}
			for i := range b[:n] {
				b[i] = byte(stamp)
			}
			binary.LittleEndian.PutUint64(b, stamp)
			if failed = l.ep.Write(2, nd.One(nd.SGEOf(mr, 0, n)), d.Address, d.Token, 0) != nil; !failed {
				failed = l.wait().Status != nd.Success
			}
		}
		ok(l.ep.Close())
		ok(l.cq.Close())
	}
	ok(mr.Close(ctx))
}
