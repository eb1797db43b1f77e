package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/softnd/softnd"
	"github.com/softnd/softnd/nd"
)

const (
	chunkSize   = 256 << 10 // window.ChunkSize
	stopsSize   = 2 << 20
	stopsTrials = 40
)

var (
	stopsLengths = []int{8, chunkSize, stopsSize}
	stopsReads   = os.Getenv("SOFTND_EXEC") == "target"
)

// stops is c/tests/stops.c in Go.
func stops() {
	job = must(softnd.Init(ctx, softnd.WithExit()))
	pids := must(job.Exchange(ctx, binary.NativeEndian.AppendUint64(nil, uint64(os.Getpid()))))
	if job.Rank() == 0 {
		ownStopped(int(binary.NativeEndian.Uint64(pids[1])))
	} else {
		useStopped()
	}
	barrier()
	ok(job.Close())
}

// isStopped reports whether all threads of a process are stopped.
func isStopped(pid int) bool {
	for _, path := range must(filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))) {
		text, err := os.ReadFile(path)
		if _, state, _ := bytes.Cut(text, []byte(") ")); err == nil && state[0] != 'T' {
			return false
		}
	}
	return true
}

// stopsTrial is struct trial of stops.c.
type stopsTrial struct {
	link
	region  nd.MemoryRegion // of a Read
	window  nd.MemoryWindow
	remote  nd.WindowDescriptor
	words   []atomic.Uint64
	n       int
	reading bool   // a Read is outstanding
	read    uint64 // Reads so far
}

// isInPart reports whether a chunk has been copied in part, as is_in_part of stops.c.
func (t *stopsTrial) isInPart() bool {
	for at := 0; at < t.n; at += chunkSize {
		last := t.words[(at+chunkSize)/8-1].Load()
		for of := 0; of < chunkSize; of += 1024 {
			if t.words[(at+of)/8].Load() != last {
				return true
			}
		}
	}
	return false
}

// goOn keeps a Read outstanding until it fails.
func (t *stopsTrial) goOn() {
	var r [1]nd.Result
	if t.cq.Poll(r[:]) == 1 {
		check(t.reading && r[0].Status == nd.Success, r)
		t.reading = false
	}
	if stopsReads && !t.reading {
		ok(t.ep.Read(1, nd.One(nd.SGEOf(t.region, 0, t.n)), t.remote.Address+t.read%2*stopsSize, t.remote.Token, 0))
		t.read++
		t.reading = true
	}
}

// stop stops rank 1: wherever it is if it copies words, else in the middle of a chunk.
func (t *stopsTrial) stop(pid int) {
	for end, try := time.Now().Add(30*time.Second), 0; ; try++ {
		at := &t.words[try*4096%t.n/8]
		t.goOn()
		for last, spins := at.Load(), 1; at.Load() == last; spins++ {
			if spins%1024 == 0 {
				check(time.Now().Before(end), t.n)
				t.goOn()
			}
		}
		ok(syscall.Kill(pid, syscall.SIGSTOP))
		for !isStopped(pid) {
		}
		if t.n == 8 || t.isInPart() {
			return
		}
		ok(syscall.Kill(pid, syscall.SIGCONT))
	}
}

// endAccess reports whether the access has ended. It is called again until it has.
func (t *stopsTrial) endAccess(timeout time.Duration) bool {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	if stopsReads {
		err := t.region.Close(ctx)
		check(err == nil || errors.Is(err, nd.Canceled), err)
		return err == nil
	}
	var r [1]nd.Result
	_, err := t.cq.Wait(ctx, r[:])
	check(err != nil || r[0].Status == nd.Success && r[0].RequestType == nd.RequestInvalidate, r)
	return err == nil
}

func ownStopped(pid int) {
	mr := must(job.Adapter().Allocate(ctx, stopsSize, nd.AllowLocalWrite))
	b := mr.Bytes()
	t := stopsTrial{words: must(nd.View[atomic.Uint64](b))}
	inPart, held, late, beyond := 0, 0, 0, 0
	for i := range stopsTrials {
		var mine nd.WindowDescriptor
		clear(b)
		t.n, t.link = stopsLengths[i%3], connectStopped()
		if stopsReads {
			t.region = must(job.Adapter().Register(ctx, b, nd.AllowLocalWrite))
		} else {
			t.window = must(job.Adapter().CreateMemoryWindow(ctx))
			ok(t.ep.Bind(1, mr, t.window, b, nd.AllowWrite))
			t.want(nd.RequestBind, 1, 0)
			mine = t.window.Descriptor()
		}
		t.remote = theirs(mine)
		t.stop(pid)
		if t.n > 8 {
			inPart++
		}
		if !stopsReads {
			ok(t.ep.Invalidate(3, t.window, 0))
		}
		done := t.endAccess(2 * time.Millisecond)
		stopped := bytes.Clone(b)
		ok(syscall.Kill(pid, syscall.SIGCONT))
		ended := stopped
		if !done {
			held++
			check(t.endAccess(30*time.Second), i)
			ended = bytes.Clone(b)
		}
		if t.reading { // its result: rank 1 has done with it
			t.wait()
		}
		t.reading = false
		if stopsReads {
			t.close() // rank 1 goes on until then
		}
		barrier()
		if !bytes.Equal(ended, b) {
			late++
		}
		changed := 0
		for at := range b {
			if stopped[at] != b[at] {
				changed++
			}
		}
		if changed > chunkSize {
			beyond++
		}
		if !stopsReads {
			t.close()
			ok(t.window.Close(ctx))
		}
	}
	fmt.Printf("stops: %d trials, %d in the middle of a chunk; %d held the end of the access, %d with a late byte, %d beyond a chunk\n",
		stopsTrials, inPart, held, late, beyond)
	check(held >= inPart && late == 0 && beyond == 0, held)
	ok(mr.Close(ctx))
}

func connectStopped() link {
	cq := must(job.Adapter().CreateCompletionQueue(ctx, 64))
	return link{cq, must(job.Connect(ctx, 1-job.Rank(), nd.EndpointConfig{ReceiveCQ: cq, InitiatorCQ: cq}))}
}

// unmapPages makes this process fault on each page of shared memory that it copies next, as unmap_pages of stops.c.
func unmapPages() {
	for line := range bytes.Lines(must(os.ReadFile("/proc/self/maps"))) {
		var start, end uintptr
		if n, _ := fmt.Sscanf(string(line), "%x-%x rw-s", &start, &end); n == 2 && bytes.Contains(line, []byte("rw-s")) {
			syscall.Syscall(syscall.SYS_MADVISE, start, end-start, syscall.MADV_DONTNEED) // the memory keeps its bytes
		}
	}
}

// useStopped makes Writes, or serves Reads. Each request finds other bytes than the one before it.
func useStopped() {
	mr := must(job.Adapter().Allocate(ctx, 2*stopsSize, nd.AllowLocalWrite|nd.AllowRemoteRead))
	for i := range mr.Bytes() {
		mr.Bytes()[i] = byte(1 + i/stopsSize)
	}
	for i := range stopsTrials {
		l, n := connectStopped(), stopsLengths[i%3]
		d := theirs(nd.DescriptorOf(mr))
		if stopsReads {
			ok(l.ep.Receive(1, nd.One(nd.SGEOf(mr, 0, n)))) // it is canceled at the end
		}
		for k, ended := 0, false; !ended; k++ {
			var r [1]nd.Result
			if n > 8 {
				unmapPages()
			}
			if stopsReads {
				ended = l.cq.Poll(r[:]) > 0
			} else if ended = l.ep.Write(2, nd.One(nd.SGEOf(mr, k%2*stopsSize, n)), d.Address, d.Token, 0) != nil; !ended {
				ended = l.wait().Status != nd.Success
			}
		}
		barrier()
		l.close()
	}
	ok(mr.Close(ctx))
}
