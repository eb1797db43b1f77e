package measure

import (
	"context"
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/softnd/softnd"
	"github.com/softnd/softnd/nd"
)

func TestPatternTellsEveryByte(t *testing.T) {
	b := make([]byte, 300)
	fill(b, 7)
	if at := differs(b, 7); at != -1 {
		t.Fatalf("the pattern differs from itself at %d", at)
	}
	if differs(b, 8) == -1 || differs(make([]byte, 300), 7) != 0 {
		t.Error("another pattern, or none at all, passes")
	}
	for i := range b {
		b[i] ^= 2
		if at := differs(b, 7); at != i {
			t.Errorf("a change of byte %d is seen at %d", i, at)
		}
		b[i] ^= 2
	}
}

// inPairs runs f on both ranks of a job, which are two goroutines here.
func inPairs(t *testing.T, f func(ctx context.Context, w *World) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	name := fmt.Sprintf("measure-%d-%s", os.Getpid(), t.Name())
	ended := make(chan error, 2)
	for rank := range 2 {
		go func() {
			job, err := softnd.Join(ctx, name, rank, 2)
			if err == nil {
				err = errors.Join(f(ctx, &World{Job: job}), job.Barrier(ctx), job.Close())
			}
			if err != nil {
				err = fmt.Errorf("rank %d: %w", rank, err)
				cancel() // the other may wait for this one
			}
			ended <- err
		}()
	}
	for range 2 {
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
}

// TestValidationSeesDamage: after a transfer of each kind, its data pass the check. With one changed byte at the
// destination they fail.
func TestValidationSeesDamage(t *testing.T) {
	o := Options{Bidirectional: true, Pairs: 2, Events: true}
	inPairs(t, func(ctx context.Context, w *World) error {
		for _, kind := range []nd.RequestType{nd.RequestWrite, nd.RequestRead, nd.RequestSend} {
			l, err := openLink(ctx, w, o, linkConfig{size: 1000, depth: 6, spare: 3, slots: 3})
			if err != nil {
				return err
			}
			if err := l.validateRound(kind, 5); err != nil {
				return err
			}
			if err := l.check(kind, 1, 2, 5); err != nil {
				return fmt.Errorf("sound data: %w", err)
			}
			half := 1
			if kind == nd.RequestRead {
				half += o.Pairs
			}
			l.entry(half, 2).Buffer[999] ^= 4
			if err := l.check(kind, 1, 2, 5); !errors.Is(err, nd.DataError) {
				return fmt.Errorf("%v: damaged data: %v, want DataError", kind, err)
			}
			if err := l.check(kind, 0, 2, 4); !errors.Is(err, nd.DataError) {
				return fmt.Errorf("%v: data of another round: %v, want DataError", kind, err)
			}
			if err := l.Close(); err != nil {
				return err
			}
		}
		return nil
	})
}
