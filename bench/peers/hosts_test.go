package peers

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/softnd/softnd/bench/report"
)

// member is a rank of a job of two goroutines.
type member struct {
	rank      int
	out, in   chan []byte
	exchanges int
}

func (m *member) Rank() int { return m.rank }

func (m *member) Exchange(ctx context.Context, mine []byte) ([][]byte, error) {
	m.exchanges++
	m.out <- mine
	all := [][]byte{mine, mine}
	select {
	case all[1-m.rank] = <-m.in:
		return all, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// overHosts makes a repeat beside the results, and returns what rank 0 has.
func overHosts(t *testing.T, test string, own []report.Result) (found []report.Result, failed error) {
	t.Helper()
	a, b := make(chan []byte, 1), make(chan []byte, 1)
	ranks := []*member{{rank: 0, out: a, in: b}, {rank: 1, out: b, in: a}}
	play := func(m *member) (failed, err error) {
		h := OverHosts{Test: test, Provider: "tcp", Address: "127.0.0.1", Iterations: 30, Repeats: 1}
		mine := func() ([]report.Result, error) { return own, nil }
		if m.rank != 0 {
			mine = func() ([]report.Result, error) { return nil, nil }
		}
		results, err := RunOverHosts(t.Context(), m, h, mine, func(err error) { failed = err })
		if m.rank == 0 && err == nil {
			found = results[len(own):]
		}
		return failed, err
	}
	served := make(chan error, 1)
	go func() {
		_, err := play(ranks[1])
		served <- err
	}()
	failed, err := play(ranks[0])
	if err != nil {
		t.Fatal(err)
	}
	if err := <-served; err != nil {
		t.Fatal(err)
	}
	if ranks[0].exchanges != ranks[1].exchanges {
		t.Errorf("exchanges: %d and %d", ranks[0].exchanges, ranks[1].exchanges)
	}
	return found, failed
}

func ofWrites(sizes ...int) (own []report.Result) {
	for _, size := range sizes {
		own = append(own, report.Result{Test: "write_bw", Settings: report.Settings{Size: size}, Unit: "MB/s", Better: "more",
			Limit: &report.Limit{Name: "tcp_stream", Unit: "MB/s", Value: 4000}})
	}
	return own
}

func TestOverHosts(t *testing.T) {
	nothingLeft(t)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(self, filepath.Join(only(t, nil), "fi_rma_bw")); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PEERS_TEST_SAYS", fiHead+"64k  30  =30  2m  0.00s  2000.00  32.77  0.03\n")
	found, failed := overHosts(t, "write_bw", ofWrites(64<<10, 1<<20))
	if failed != nil || len(found) != 2 {
		t.Fatalf("%+v, %v", found, failed)
	}
	for i, size := range []int{64 << 10, 1 << 20} {
		r := found[i]
		if r.Size != size || r.Hosts != 2 || r.Provider != "libfabric" || r.Iterations != 30 || r.Note != "fi_rma_bw -p tcp -o write" || r.Limit == nil || r.Limit.Ratio != r.Value/4000 {
			t.Errorf("%+v", r)
		}
	}
	if v := found[0].Value; v < 1999 || v > 2001 {
		t.Errorf("%v MB/s, want 2000", v)
	}
}

// A program that fails is named, and both ranks stay in step.
func TestOverHostsFails(t *testing.T) {
	nothingLeft(t)
	only(t, map[string]string{"fi_rma_bw": "echo no tcp; exit 7"})
	found, failed := overHosts(t, "read_bw", ofWrites(8, 64))
	if len(found) != 0 || failed == nil {
		t.Fatalf("%+v, %v", found, failed)
	}
	for _, want := range []string{"fi_rma_bw -p tcp -o read", "between hosts", "exit status 7", "no tcp"} {
		if !strings.Contains(failed.Error(), want) {
			t.Errorf("%v: want %q", failed, want)
		}
	}
}

func TestOverHostsMissing(t *testing.T) {
	only(t, nil)
	own := ofWrites(8)
	found, failed := overHosts(t, "write_bw", own)
	if len(found) != 0 || failed != nil || own[0].Note != "fi_rma_bw is not installed at the host of rank 0 and rank 1" {
		t.Errorf("%+v, %v, note %q", found, failed, own[0].Note)
	}
}
