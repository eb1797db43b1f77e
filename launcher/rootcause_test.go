package launcher

import (
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"
)

// Rank 1 exits first, because of rank 0, or because of an action of rank 2 on rank 0.
func TestRootCauseIsFirstToFail(t *testing.T) {
	for _, tc := range []struct {
		name    string
		plans   [3]string // of ranks 0 to 2; rank 1 ends first
		causes  []int
		status  int
		first   int
		message string
	}{
		{"it fails later", [3]string{"gate exit 3", "exit 5", ""}, []int{0}, 3, 0, "exited with code 3; rank 1 failed because of it; 1 rank that still ran was stopped"},
		{"its own cause fails", [3]string{"", "exit 5", "gate exit 4"}, []int{0, 2}, 4, 2, "exited with code 4; rank 1 failed because of it; 1 rank that still ran was stopped"},
		{"it ends well", [3]string{"gate exit 0", "exit 5", ""}, []int{0}, 5, 1, "exited with code 5; 1 rank that still ran was stopped"},
		{"it does not end", [3]string{"", "exit 5", ""}, []int{0}, 5, 1, "exited with code 5; the other 2 ranks were stopped"},
		{"there is none", [3]string{"gate exit 3", "exit 5", ""}, nil, 5, 1, "exited with code 5; the other 2 ranks were stopped"},
	} {
		run := func(t *testing.T) *Report {
			r, open := gate(t)
			var env []string
			for rank, plan := range tc.plans {
				env = append(env, fmt.Sprintf("PLAN_%d=%s", rank, plan))
			}
			cfg := config("plan", len(tc.plans), env...)
			cfg.Files = []*os.File{r}
			var later sync.WaitGroup
			defer later.Wait()
			var once sync.Once // the front end may ask again
			cfg.Causes = func(victim int) []int {
				if victim != 1 || tc.causes == nil {
					return nil
				}
				once.Do(func() { // rank 1 has ended by now
					later.Go(func() {
						time.Sleep(50 * time.Millisecond)
						open('x')
					})
				})
				return tc.causes
			}
			return start(t, cfg).wait()
		}
		t.Run(tc.name, func(t *testing.T) {
			report := run(t)
			isLate := func() bool { // the machine was too busy for the cause to end in time
				return tc.first != 1 && report.First == 1 || strings.HasSuffix(tc.message, "1 rank that still ran was stopped") && strings.HasSuffix(strings.Join(report.Messages(), ""), "the other 2 ranks were stopped")
			}
			for tries := 0; tries < 5 && isLate(); tries++ {
				report = run(t)
			}
			if report.First != tc.first || report.ExitStatus() != tc.status {
				t.Errorf("rank %d failed first and the exit status is %d, want %d and %d", report.First, report.ExitStatus(), tc.first, tc.status)
			}
			if got := strings.Join(report.Messages(), "\n"); !strings.HasSuffix(got, ") "+tc.message) {
				t.Errorf("message %q, want %q at its end", got, tc.message)
			}
		})
	}
}
