package softnd

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/softnd/softnd/nd"
)

// Offsets in the arena, as docs/shared-memory.md has them.
const (
	recordsAt, recordSize = 0x1000, 512
	highestAt             = 512 // in a layout before this one; nothing lies there now
)

// words that the victim clears in its own record, and in the header, before it dies.
var wordsBeforeDeath = []func(slot int64) int64{
	func(slot int64) int64 { return recordsAt + slot*recordSize },      // state
	func(slot int64) int64 { return recordsAt + slot*recordSize + 8 },  // deathEpoch
	func(slot int64) int64 { return recordsAt + slot*recordSize + 16 }, // deathsSeen
	func(int64) int64 { return highestAt },
}

var roleHidden = rankRole("hidden", playHidden)

// playHidden lets the last rank clear a word and die while the others wait for it.
func playHidden(ctx context.Context, j *Job, word int) error {
	if err := j.Barrier(ctx); err != nil {
		return err
	}
	if j.Rank() == j.Size()-1 {
		at := wordsBeforeDeath[word](int64(j.member.ID().Slot()))
		if _, err := j.arena.File().WriteAt(make([]byte, 8), at); err != nil {
			return err
		}
		return syscall.Kill(os.Getpid(), syscall.SIGKILL)
	}
	err := j.Barrier(ctx)
	if !errors.Is(err, nd.ConnectionAborted) {
		return fmt.Errorf("%w, want %v", err, nd.ConnectionAborted)
	}
	fmt.Println(err)
	return nil
}

// No word that a peer writes hides its death from a collective call.
func TestBarrierFindsDeathDespiteOverwrittenWord(t *testing.T) {
	for word := range wordsBeforeDeath {
		for _, ranks := range []int{2, 4} {
			t.Run(fmt.Sprintf("word %d, %d ranks", word, ranks), func(t *testing.T) {
				all := start(t, ranks, roleHidden, word)
				all[ranks-1].WaitKilled()
				for _, r := range all[:ranks-1] {
					r.Wait()
					if got := r.Out.String(); !strings.Contains(got, "has died or left") {
						t.Errorf("the error is %q", got)
					}
				}
			})
		}
	}
}
