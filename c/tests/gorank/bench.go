package main

import (
	"fmt"
	"runtime"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/softnd/softnd"
	"github.com/softnd/softnd/nd"
)

// bench is c/tests/bench.c in Go.
func bench() {
	const rounds, ping, window, size = 2_000_000, 400_000, 64, 8
	job = must(softnd.Init(ctx))
	rank := job.Rank()
	runtime.LockOSThread()
	var core unix.CPUSet
	core.Set(rank)
	ok(unix.SchedSetaffinity(0, &core))
	report := func(what string, began time.Time, n float64) {
		if ns := float64(time.Since(began)) / n; rank == 0 {
			fmt.Printf("Go  %-28s %8.1f ns\n", what, ns)
		}
	}
	a := job.Adapter()
	cq := must(a.CreateCompletionQueue(ctx, 512))
	ep := must(job.Connect(ctx, 1-rank, nd.EndpointConfig{Receive: cq, Initiator: cq, ReceiveDepth: 128, InitiatorDepth: 128}))
	mr := must(a.Allocate(ctx, 4<<20, nd.AllowLocalWrite|nd.AllowRemoteRead|nd.AllowRemoteWrite))
	words := must(nd.View[atomic.Uint64](mr.Bytes()))
	clear(mr.Bytes())
	d := theirs(nd.DescriptorOf(mr))
	s := []nd.SGE{nd.SGEOf(mr, 4096, size)}
	var r [window]nd.Result
	one := func() {
		for cq.Poll(r[:1]) == 0 {
		}
	}
	for k := range 3 {
		barrier()
		t := time.Now()
		if rank == 0 {
			for i := range rounds {
				ok(ep.Write(uint64(i), s, d.Address, d.Token, 0))
				one()
			}
		}
		report("Write 8 B posted+polled", t, rounds)
		barrier()
		t = time.Now()
		if rank == 0 {
			for i := range rounds {
				ok(ep.Read(uint64(i), s, d.Address, d.Token, 0))
				one()
			}
		}
		report("Read 8 B posted+polled", t, rounds)

		barrier()
		t = time.Now()
		for i := uint64(1); i <= ping; i++ {
			tag := uint64(k)<<32 | i
			if rank == 1 {
				for words[8192/8].Load() != tag {
				}
			}
			words[4096/8].Store(tag)
			ok(ep.Write(i, s, d.Address+8192, d.Token, 0))
			one()
			if rank == 0 {
				for words[8192/8].Load() != tag {
				}
			}
		}
		report("Write 8 B half round trip", t, 2*ping)

		in := []nd.SGE{nd.SGEOf(mr, 16384, size)}
		if rank == 1 || k == 0 { // rank 0 keeps the last one
			ok(ep.Receive(0, in))
		}
		barrier()
		t = time.Now()
		sent, received := uint64(0), uint64(0)
		for i := range uint64(ping) {
			if rank == 0 {
				ok(ep.Send(i, s, 0))
			}
			for received == i {
				n := cq.Poll(r[:4])
				for j := range n {
					check(r[j].Status == nd.Success, r[j])
					if r[j].RequestType == nd.RequestReceive {
						received++
						ok(ep.Receive(i, in))
					} else {
						sent++
					}
				}
			}
			if rank == 1 {
				ok(ep.Send(i, s, 0))
			}
		}
		for sent < ping {
			sent += uint64(cq.Poll(r[:1]))
		}
		report("Send 8 B half round trip", t, 2*ping)

		for i := 1; rank == 1 && i < window; i++ {
			ok(ep.Receive(0, in))
		}
		barrier()
		t = time.Now()
		for posted, done := 0, 0; done < rounds; {
			for ; rank == 0 && posted < rounds && posted-done < window; posted++ {
				ok(ep.Send(uint64(posted), s, 0))
			}
			n := cq.Poll(r[:])
			done += n
			for i := 0; rank == 1 && i < n && posted+window < rounds; i, posted = i+1, posted+1 {
				ok(ep.Receive(0, in))
			}
		}
		barrier()
		report("Send 8 B, each of a stream", t, rounds)

		large := []nd.SGE{nd.SGEOf(mr, 1<<20, 1<<20)}
		barrier()
		t = time.Now()
		if rank == 0 {
			for i := range 2000 {
				ok(ep.Write(uint64(i), large, d.Address+2<<20, d.Token, 0))
				one()
			}
		}
		report("Write 1 MiB", t, 2000)
		barrier()
		t = time.Now()
		for range 300_000 {
			barrier()
		}
		report("barrier of 2", t, 300_000)
		if rank == 0 {
			fmt.Println()
		}
	}
	barrier()
	ok(job.Close())
}
