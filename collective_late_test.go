package softnd_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/softnd/softnd"
	"github.com/softnd/softnd/nd"
	"github.com/softnd/softnd/softndtest"
)

// A collective call whose time is over says what it has waited for.
func TestLateRankIsReported(t *testing.T) {
	ended := make(chan struct{}) // until then, rank 1 does not leave
	softndtest.Run(t, 2, func(ctx context.Context, job *softnd.Job) error {
		if job.Rank() == 1 {
			<-ended
			return nil
		}
		defer close(ended)
		short, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
		defer cancel()
		if err := job.Barrier(short); !errors.Is(err, nd.Canceled) || !strings.Contains(err.Error(), "nd: barrier on job: not all ranks have arrived") {
			return fmt.Errorf("barrier returns %w", err)
		}
		return nil
	})
}
