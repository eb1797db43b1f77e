package measure

import (
	"errors"
	"testing"
	"time"

	"github.com/softnd/softnd"
	"github.com/softnd/softnd/nd"
)

// TestReversible: everything is done before it is undone, as often as requested, and no object is done twice at a time.
func TestReversible(t *testing.T) {
	const objects = 3
	for n := range 3 * objects {
		var live [objects]bool
		done, undone := 0, 0
		twoPhases := reversible{objects: objects,
			do: func(i int) error {
				if live[i] {
					t.Errorf("%d of %d is done again", i, n)
				}
				live[i] = true
				done++
				return nil
			},
			undo: func(i int) error {
				if !live[i] {
					t.Errorf("%d of %d is undone before it is done", i, n)
				}
				live[i] = false
				undone++
				return nil
			}}
		if _, _, err := twoPhases.time(n); err != nil {
			t.Fatal(err)
		}
		var h histogram
		if err := twoPhases.sample(n, &h, true); err != nil {
			t.Fatal(err)
		}
		if done != 2*n || undone != 2*n || h.count() != int64(n) {
			t.Errorf("%d times: done %d, undone %d, %d recorded", n, done, undone, h.count())
		}
	}
}

func TestReversibleReturnsErrors(t *testing.T) {
	broken := errors.New("as asked")
	fine, fails := func(int) error { return nil }, func(int) error { return broken }
	for name, twoPhases := range map[string]reversible{"do": {2, fails, fine}, "undo": {2, fine, fails}} {
		if _, _, err := twoPhases.time(5); err != broken {
			t.Errorf("%s: time: %v", name, err)
		}
		if err := twoPhases.sample(5, new(histogram), false); err != broken {
			t.Errorf("%s: sample: %v", name, err)
		}
	}
}

// TestArenaIsCounted checks that the count includes each allocated byte, and no freed one.
func TestArenaIsCounted(t *testing.T) {
	ctx := t.Context()
	job, err := softnd.Init(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer job.Close()
	ad := job.Adapter()
	bytes := func() int64 {
		n, err := arenaBytes(ctx, ad)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	bytes() // claims what a first region needs
	before := bytes()
	const size = 3 << 20
	mr, err := ad.Allocate(ctx, size, nd.AllowLocalWrite)
	if err != nil {
		t.Fatal(err)
	}
	if got := bytes() - before; got != size {
		t.Errorf("%d bytes more after an allocation of %d", got, size)
	}
	if err := mr.Close(ctx); err != nil {
		t.Fatal(err)
	}
	if after := bytes(); after != before {
		t.Errorf("%d bytes, and %d after all was freed", before, after)
	}
}

func TestArenaThatDoesNotExist(t *testing.T) {
	if _, err := mappedInode(1); err == nil {
		t.Error("something is mapped at address 1")
	}
	if _, err := allocated(0); err == nil {
		t.Error("a descriptor leads to inode 0")
	}
}

// TestGarbage: startGarbage allocates whole objects until its end.
func TestGarbage(t *testing.T) {
	g := startGarbage(100 << 20)
	for begun := time.Now(); time.Since(begun) < 20*time.Millisecond; {
		time.Sleep(time.Millisecond)
	}
	if reached := g.end(); reached <= 0 || g.bytes%garbageObject != 0 {
		t.Errorf("%d bytes at %v a second", g.bytes, reached)
	}
}

func TestProcessorShare(t *testing.T) {
	busy, err := processorShare(func() error {
		before, err := processorTime()
		for now := before; err == nil && now-before < 5*time.Millisecond; {
			now, err = processorTime()
		}
		return err
	})
	if err != nil || busy <= 0 {
		t.Errorf("%v %%, %v", busy, err)
	}
	broken := errors.New("as asked")
	if _, err := processorShare(func() error { return broken }); err != broken {
		t.Errorf("%v", err)
	}
}
