// Package ranks tests jobs of many ranks, and ranks that return.
package ranks

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/softnd/softnd"
	"github.com/softnd/softnd/internal/testkit/proctest"
	"github.com/softnd/softnd/internal/testkit/ranktest"
	"github.com/softnd/softnd/internal/testkit/scale"
)

func TestMain(m *testing.M) {
	proctest.Main()
	proctest.SideBySide(8)
	os.Exit(m.Run())
}

var roleMany = ranktest.Role("many", runMany)

// runMany is the life of a rank in a large job.
func runMany(ctx context.Context, j *softnd.Job, _ int) error {
	all, err := j.Exchange(ctx, fmt.Append(nil, j.Rank()))
	if err != nil {
		return err
	}
	for rank, b := range all {
		if string(b) != fmt.Sprint(rank) {
			return fmt.Errorf("rank %d says %q", rank, b)
		}
	}
	return j.Barrier(ctx)
}

// The time of a job with many times more ranks than cores grows with their number, and not
// with its square or its cube. The log has the time.
func TestManyRanks(t *testing.T) {
	ranks := 400
	switch {
	case scale.IsFull():
		ranks = 1000
	case testing.Short():
		ranks = 50
	}
	began := time.Now()
	for _, r := range ranktest.Start(t, ranks, roleMany, 0) {
		r.Wait()
	}
	t.Logf("%d ranks: %v", ranks, time.Since(began))
}
