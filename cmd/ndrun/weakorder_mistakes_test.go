package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"regexp"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/softnd/softnd"
	"github.com/softnd/softnd/internal/testkit/proctest"
	"github.com/softnd/softnd/nd"
)

// mistakenPrograms are wrong: each relies on something that softnd does and hardware may not do. A rank that notices
// it returns an error. Rank 0 posts, and rank 1 owns the memory.
var mistakenPrograms = []struct {
	name string
	run  func(*mistaken) error
	says string // in the error of the rank
}{
	{"polls the last word of a Write", pollLastWord, "is missing"},
	{"overwrites what it reads", overwriteSource, "but a Write is later"},
	{"expects Reads in order", expectReadsInOrder, "has overwritten"},
	{"sends what it reads", sendSink, "was sent before the Read"},
	{"uses more entries than it asked for", useMoreEntries, "2 scatter/gather entries, granted 1"},
}

const (
	mistakenRounds = 100
	mistakenWords  = 64
	mistakenPart   = 8 * mistakenWords // the memory of a rank has two parts of so many bytes
)

// mistaken is a rank of such a program.
type mistaken struct {
	ctx  context.Context
	job  *softnd.Job
	mr   nd.MemoryRegion
	peer nd.WindowDescriptor
	ep   nd.Endpoint
	cq   nd.CompletionQueue
}

// runMistaken is a rank of the program that the first argument names.
func runMistaken() error {
	ctx, cancel := context.WithTimeout(context.Background(), 5*proctest.Timeout)
	defer cancel()
	job, err := softnd.Init(ctx)
	if err != nil {
		return err
	}
	defer job.Close()
	l := &mistaken{ctx: ctx, job: job}
	if l.mr, err = job.Adapter().Allocate(ctx, 2*mistakenPart, nd.AllowLocalWrite|nd.AllowRemoteRead|nd.AllowRemoteWrite); err != nil {
		return err
	}
	windows, err := job.ExchangeWindows(ctx, nd.DescriptorOf(l.mr))
	if err != nil {
		return err
	}
	if l.cq, err = job.Adapter().CreateCompletionQueue(ctx, 64); err != nil {
		return err
	}
	l.peer = windows[1-job.Rank()]
	if l.ep, err = job.Connect(ctx, 1-job.Rank(), nd.EndpointConfig{ReceiveCQ: l.cq, InitiatorCQ: l.cq, MaxInitiatorSGE: 1}); err != nil {
		return err
	}
	for _, p := range mistakenPrograms {
		if p.name == os.Args[1] {
			if err := p.run(l); err != nil {
				return err
			}
			return job.Barrier(ctx)
		}
	}
	return fmt.Errorf("unknown program %q", os.Args[1])
}

// words returns one part of the memory. Both ranks may access it at the same time.
func (l *mistaken) words(part int) ([]uint64, error) {
	return nd.View[uint64](l.mr.Bytes()[part*mistakenPart:][:mistakenPart])
}

func (l *mistaken) part(part, n int) nd.SGL { return nd.One(nd.SGEOf(l.mr, part*mistakenPart, n)) }

// finish waits for the results of posts, which must be successful.
func (l *mistaken) finish(posts ...error) error {
	if err := errors.Join(posts...); err != nil {
		return err
	}
	for range posts {
		if _, err := nd.WaitOne(l.ctx, l.cq, l.ep); err != nil {
			return err
		}
	}
	return nil
}

func pollLastWord(l *mistaken) error {
	words, err := l.words(0)
	if err != nil {
		return err
	}
	for round := range uint64(mistakenRounds) {
		if l.job.Rank() == 0 {
			for i := range words {
				words[i] = round + 1
			}
			if err := nd.WriteTo(l.ep, 0, l.part(0, mistakenPart), l.peer, 0); err != nil {
				return err
			}
			r := make([]nd.Result, 1)
			for l.cq.Poll(r) == 0 { // each Poll is a step of the delays
				if l.ctx.Err() != nil {
					return l.ctx.Err()
				}
				time.Sleep(20 * time.Microsecond) // in which rank 1 may look, even if it has to share a processor
			}
			if err := nd.Explain(l.ep, r[0]); err != nil {
				return err
			}
		} else {
			for atomic.LoadUint64(&words[mistakenWords-1]) != round+1 {
				if l.ctx.Err() != nil {
					return l.ctx.Err()
				}
				runtime.Gosched()
			}
			for i := range words {
				if got := atomic.LoadUint64(&words[i]); got != round+1 {
					return fmt.Errorf("round %d: the last word is there, and word %d is missing", round, i)
				}
			}
		}
		if err := l.job.Barrier(l.ctx); err != nil {
			return err
		}
	}
	return nil
}

// overwriteSource reads a word and then writes it, as a program does that takes a value and leaves a mark.
func overwriteSource(l *mistaken) error {
	if l.job.Rank() != 0 {
		return nil
	}
	mem := l.mr.Bytes()
	for round := range uint64(mistakenRounds) {
		binary.NativeEndian.PutUint64(mem[mistakenPart:], round+1)
		read := nd.ReadFrom(l.ep, 0, l.part(0, 8), l.peer, 0)
		write := nd.WriteTo(l.ep, 0, l.part(1, 8), l.peer, 0)
		if err := l.finish(read, write); err != nil {
			return err
		}
		if got := binary.NativeEndian.Uint64(mem); got != round {
			return fmt.Errorf("round %d: the Read has returned %d, but a Write is later", round, got)
		}
	}
	return nil
}

// expectReadsInOrder reads two values into the same place.
func expectReadsInOrder(l *mistaken) error {
	words, err := l.words(0)
	if err != nil {
		return err
	}
	words[0], words[1] = 1, 2
	if err := l.job.Barrier(l.ctx); err != nil || l.job.Rank() != 0 {
		return err
	}
	second, err := l.peer.Slice(8, 8)
	if err != nil {
		return err
	}
	for round := range mistakenRounds {
		err := l.finish(nd.ReadFrom(l.ep, 0, l.part(1, 8), l.peer, 0), nd.ReadFrom(l.ep, 0, l.part(1, 8), second, 0))
		if err != nil {
			return err
		}
		if got := binary.NativeEndian.Uint64(l.mr.Bytes()[mistakenPart:]); got != 2 {
			return fmt.Errorf("round %d: the first Read has overwritten the second", round)
		}
	}
	return nil
}

// sendSink sends the sink of a Read without a fence.
func sendSink(l *mistaken) error {
	mem := l.mr.Bytes()
	want := bytes.Repeat([]byte{7}, 8)
	if l.job.Rank() == 1 {
		copy(mem, want)
	}
	for round := range mistakenRounds {
		if l.job.Rank() == 1 {
			if err := l.ep.Receive(0, l.part(1, 8)); err != nil {
				return err
			}
		} else {
			clear(mem[:8])
		}
		if err := l.job.Barrier(l.ctx); err != nil {
			return err
		}
		if l.job.Rank() == 0 {
			if err := l.finish(nd.ReadFrom(l.ep, 0, l.part(0, 8), l.peer, 0), l.ep.Send(0, l.part(0, 8), 0)); err != nil {
				return err
			}
		} else {
			if _, err := nd.WaitOne(l.ctx, l.cq, l.ep); err != nil {
				return err
			}
			if !bytes.Equal(mem[mistakenPart:][:8], want) {
				return fmt.Errorf("round %d: %x was sent before the Read has stored its data", round, mem[mistakenPart:][:8])
			}
		}
		if err := l.job.Barrier(l.ctx); err != nil {
			return err
		}
	}
	return nil
}

// useMoreEntries asks for one scatter/gather entry and posts two.
func useMoreEntries(l *mistaken) error {
	if l.job.Rank() != 0 {
		return nil
	}
	return l.finish(nd.WriteTo(l.ep, 0, nd.List(l.part(0, 8).First, l.part(1, 8).First), l.peer, 0))
}

// A program that relies on more than the model promises is successful, and fails with a weak order. ndrun names the
// seed and the page, and the seed fails again.
func TestWeakOrderFindsLeaningPrograms(t *testing.T) {
	t.Parallel()
	const tries = 20 // the mistakes show in nearly each run, unless other tests take the processors
	for _, p := range mistakenPrograms {
		t.Run(p.name, func(t *testing.T) {
			t.Parallel()
			launch := func(options ...string) (status int, errOut string) {
				args := append(options, "-n", "2", "-env", proctest.RoleEnv+"=mistaken", testBinary(t), p.name)
				status, _, errOut = proctest.Run(t, ndrun(t, args...))
				return status, errOut
			}
			fails := func(seed string) (errOut string) {
				for range tries {
					var status int
					if status, errOut = launch("--weak-order", seed); status != 0 {
						return errOut
					}
				}
				t.Fatalf("--weak-order %s: it is successful %d times\n%s", seed, tries, errOut)
				return ""
			}
			if status, errOut := launch(); status != 0 {
				t.Fatalf("without a weak order: exit status %d\n%s", status, errOut)
			}
			errOut := fails("random")
			found := regexp.MustCompile(`(?m)^ndrun: the job failed with a weak order; --weak-order (\d+) repeats it; docs/weak-order.md lists the mistakes that it shows$`).FindStringSubmatch(errOut)
			if found == nil || !strings.Contains(errOut, p.says) {
				t.Fatalf("no seed, or no %q\n%s", p.says, errOut)
			}
			if again := fails(found[1]); !strings.Contains(again, p.says) {
				t.Errorf("seed %s, again: no %q\n%s", found[1], p.says, again)
			}
		})
	}
}
