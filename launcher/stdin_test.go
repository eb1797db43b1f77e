package launcher

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"
	"testing"
)

// inputOf starts a job of shells whose input is the returned file.
func inputOf(t *testing.T, script string, ranks int, readers []int) (*runningJob, *os.File) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close(); w.Close() })
	cfg := config("", ranks)
	cfg.Apps[0].Path, cfg.Apps[0].Args = "/bin/sh", []string{"sh", "-c", script}
	cfg.Stdin, cfg.StdinRanks = r, readers
	return start(t, cfg), w
}

func TestInputGoesToSelectedRanks(t *testing.T) {
	for _, tc := range []struct {
		readers []int
		want    [3]string
	}{
		{nil, [3]string{"all\n", "", ""}},
		{[]int{}, [3]string{}},
		{[]int{2}, [3]string{"", "", "all\n"}},
		{[]int{0, 2}, [3]string{"all\n", "", "all\n"}},
		{[]int{2, 1, 0}, [3]string{"all\n", "all\n", "all\n"}},
	} {
		t.Run(fmt.Sprint(tc.readers), func(t *testing.T) {
			j, w := inputOf(t, "cat; echo end", 3, tc.readers)
			io.WriteString(w, "all\n")
			w.Close()
			j.wait()
			for rank, got := range unlabel(t, []byte(j.out.String()), 3) {
				if string(got) != tc.want[rank]+"end\n" {
					t.Errorf("rank %d read %q, want %q", rank, got, tc.want[rank])
				}
			}
		})
	}
}

// A rank that closes its input, and one that exits, get no more copies; the third rank gets all
// input.
func TestInputSkipsRanksThatStopReading(t *testing.T) {
	done := t.TempDir() + "/done"
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	cfg := config("", 3, "DONE="+done)
	cfg.Apps[0].Path, cfg.Apps[0].Args = "/bin/sh", []string{"sh", "-c", `
		case $RANK in
		0) exec <&-; echo ready; while ! [ -e "$DONE" ]; do sleep 0.01; done;;
		1) echo ready;;
		2) echo ready; wc -c; : >"$DONE";;
		esac`}
	cfg.Stdin, cfg.StdinRanks = r, []int{0, 1, 2}
	j := start(t, cfg)
	const length = 1 << 20 // far more than a pipe holds
	if _, err := io.WriteString(w, strings.Repeat("x", length)); err != nil {
		t.Fatal(err)
	}
	w.Close()
	j.wait()
	if want := fmt.Sprintf("[2] %d\n", length); !strings.Contains(j.out.String(), want) {
		t.Errorf("no %q in\n%s", want, j.out)
	}
}

// Input is not read if no rank reads it.
func TestInputIsNotReadWithoutReaders(t *testing.T) {
	for _, readers := range [][]int{nil, {0, 1}} {
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		cfg := config("", 2)
		cfg.Apps[0].Path, cfg.Apps[0].Args = "/bin/sh", []string{"sh", "-c", "exec <&-; exec sleep 0.05"}
		cfg.Stdin, cfg.StdinRanks = r, readers
		j := start(t, cfg)
		j.wait()
		io.WriteString(w, "for the next program")
		w.Close()
		left, err := io.ReadAll(r)
		r.Close()
		if err != nil || string(left) != "for the next program" {
			t.Errorf("ranks %v: left are %q, %v", readers, left, err)
		}
	}
}

// The end of the job ends the copying, although the input has no end.
func TestEndlessInput(t *testing.T) {
	j, _ := inputOf(t, "echo ready; sleep 1000", 2, []int{0, 1})
	j.out.await(2, "ready")
	j.cancel()
	if _, err := j.result(); err == nil {
		t.Error("no error")
	}
}

func TestInputCheckFails(t *testing.T) {
	for _, tc := range []struct {
		readers []int
		want    string
	}{
		{[]int{2}, "standard input: rank 2 does not exist: want 0 to 1"},
		{[]int{-1}, "standard input: rank -1 does not exist: want 0 to 1"},
		{[]int{0, 1, 0}, "standard input: rank 0 is listed twice"},
	} {
		cfg := config("plan", 2)
		cfg.StdinRanks = tc.readers
		if _, err := start(t, cfg).result(); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%v: error %v, want %s", tc.readers, err, tc.want)
		}
	}
}

// After a read error, the ranks see no end of input.
func TestInputReadErrorStopsJob(t *testing.T) {
	dir, err := os.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	cfg := config("reader", 2)
	cfg.Stdin, cfg.StdinRanks = dir, []int{0, 1}
	j := start(t, cfg)
	if report, err := j.result(); !errors.Is(err, syscall.EISDIR) || report.ExitStatus() == 0 {
		t.Errorf("exit status %d, %v", report.ExitStatus(), err)
	}
	if got := j.out.String(); got != "" {
		t.Errorf("ranks saw an end of the input: %s", got)
	}
}

// A copier of the input that blocks in a read does not hold the end of the job.
func TestBlockedInputDoesNotHoldTheJob(t *testing.T) {
	r, stop := pipe(t)
	f := &frontEnd{input: &stdinCopier{}, stopInput: stop, inputEnded: make(chan struct{}), outErr: make(chan error, 1), report: &Report{}}
	if !f.finishOutput() {
		t.Error("output is lost")
	}
	if n, err := r.Read(make([]byte, 1)); err != io.EOF {
		t.Errorf("the copier was not stopped: %d, %v", n, err)
	}
}
