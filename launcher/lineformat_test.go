package launcher

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/softnd/softnd/internal/testkit/proctest"
)

// The bytes of one rank arrive unchanged in each write, with or without line feeds.
func TestRawOutputIsUnchanged(t *testing.T) {
	cfg := config("writer", 1)
	cfg.Output.Raw = true
	j := start(t, cfg)
	j.wait()
	if !bytes.Equal([]byte(j.out.String()), wantOutput(0, 0)) || !bytes.Equal([]byte(j.err.String()), wantOutput(0, 1)) {
		t.Errorf("%d and %d bytes arrived that are not what was written", len(j.out.String()), len(j.err.String()))
	}
}

// An incomplete line of a single rank is written at once.
func TestRawOutputOfOneRankIsImmediate(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	cfg := config("", 1)
	cfg.Apps[0].Path, cfg.Apps[0].Args = "/bin/sh", []string{"sh", "-c", "printf 'name? '; read name; printf %s \"$name\""}
	cfg.Stdin, cfg.Output.Raw = r, true
	j := start(t, cfg)
	proctest.Eventually(t, "the prompt comes", func() bool { return j.out.String() == "name? " }, j.out)
	io.WriteString(w, "softnd\n")
	w.Close()
	j.wait()
	if got := j.out.String(); got != "name? softnd" {
		t.Errorf("output %q", got)
	}
}

// Lines of several ranks are not mixed in raw format either.
func TestRawOutputOfSeveralRanks(t *testing.T) {
	cfg := config("", 4)
	cfg.Apps[0].Path, cfg.Apps[0].Args = "/bin/sh", []string{"sh", "-c", `for i in 1 2 3 4 5 6 7 8 9; do printf "rank "; printf "$RANK\n"; done; printf "last $RANK;"`}
	cfg.Output.Raw = true
	j := start(t, cfg)
	j.wait()
	rest := j.out.String()
	for rank := range 4 {
		line := fmt.Sprintf("rank %d\n", rank)
		if n := strings.Count(rest, line); n != 9 {
			t.Errorf("rank %d has %d whole lines instead of 9", rank, n)
		}
		rest = strings.ReplaceAll(rest, line, "")
		rest = strings.Replace(rest, fmt.Sprintf("last %d;", rank), "", 1)
	}
	if rest != "" {
		t.Errorf("more than was written: %q", rest)
	}
}

func TestTimestamps(t *testing.T) {
	before := time.Now().UTC().Truncate(time.Microsecond)
	cfg := config("", 2)
	cfg.Apps[0].Path, cfg.Apps[0].Args = "/bin/echo", []string{"echo", "text"}
	cfg.Output.Timestamps = true
	j := start(t, cfg)
	j.wait()
	lines := regexp.MustCompile(`(?m)^\[[01]\] (\S+) text$`).FindAllStringSubmatch(j.out.String(), -1)
	if len(lines) != 2 {
		t.Fatalf("output %q", j.out)
	}
	for _, line := range lines {
		at, err := time.Parse(time.RFC3339Nano, line[1])
		if err != nil || at.Before(before) || at.After(time.Now()) {
			t.Errorf("time %q, %v", line[1], err)
		}
	}
}

// JSON Lines give back every byte of the output.
func TestJSONLinesAreLossless(t *testing.T) {
	const ranks = 3
	cfg := config("writer", ranks)
	cfg.Output.JSONLines = true
	j := start(t, cfg)
	j.wait()
	if j.err.String() != "" {
		t.Errorf("on standard error: %.100q", j.err)
	}
	got := make(map[string][]byte)
	encoded := 0
	for text := range strings.Lines(j.out.String()) {
		var l struct {
			Rank    int
			Stream  string
			Time    time.Time
			Text    *string
			Base64  []byte
			Partial bool
		}
		dec := json.NewDecoder(strings.NewReader(text))
		dec.DisallowUnknownFields()
		if err := dec.Decode(&l); err != nil || l.Time.IsZero() || l.Text == nil && l.Base64 == nil {
			t.Fatalf("%q: %v", text, err)
		}
		b := l.Base64
		if l.Text != nil {
			b = []byte(*l.Text)
		} else {
			encoded++
		}
		if !l.Partial {
			b = append(b, '\n')
		}
		key := fmt.Sprint(l.Rank, l.Stream)
		got[key] = append(got[key], b...)
	}
	for rank := range ranks {
		for stream, name := range streamNames {
			if !bytes.Equal(got[fmt.Sprint(rank, name)], wantOutput(rank, stream)) {
				t.Errorf("rank %d, %s: not what was written", rank, name)
			}
		}
	}
	if encoded == 0 {
		t.Error("no line was encoded: this test does not try what is not UTF-8")
	}
}

func TestOutputFiles(t *testing.T) {
	const ranks = 3
	for _, only := range []bool{false, true} {
		t.Run(fmt.Sprint("files only ", only), func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "a", "b")
			cfg := config("writer", ranks)
			cfg.Output.Dir, cfg.Output.FilesOnly = dir, only
			j := start(t, cfg)
			j.wait()
			for rank := range ranks {
				for stream, ending := range fileEndings {
					got, err := os.ReadFile(filepath.Join(dir, fmt.Sprintf("rank.%d.%s", rank, ending)))
					if err != nil || !bytes.Equal(got, wantOutput(rank, stream)) {
						t.Errorf("rank %d, stream %d: %d bytes that are not what was written, %v", rank, stream, len(got), err)
					}
				}
			}
			if only {
				if j.out.String()+j.err.String() != "" {
					t.Error("something was shown")
				}
				return
			}
			checkWriters(t, []byte(j.out.String()), ranks, 0)
			checkWriters(t, []byte(j.err.String()), ranks, 1)
		})
	}
}

// A write error of an output file stops the job, and the error names the file.
func TestOutputFileWriteErrorStopsJob(t *testing.T) {
	dir := t.TempDir()
	if err := os.Symlink("/dev/full", filepath.Join(dir, "rank.1.out")); err != nil {
		t.Fatal(err)
	}
	cfg := config("plan", 2)
	cfg.Output.Dir = dir
	report, err := start(t, cfg).result()
	if err == nil || !strings.Contains(err.Error(), "write output file of rank 1: write "+dir+"/rank.1.out: no space left on device: the job was stopped") {
		t.Errorf("error %v", err)
	}
	if report.ExitStatus() != 1 {
		t.Errorf("exit status %d", report.ExitStatus())
	}
}

func TestOutputCheckFails(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		output Output
		text   string
	}{
		{Output{Raw: true, JSONLines: true}, "start job: output: Raw and JSONLines: set one of them"},
		{Output{FilesOnly: true}, "start job: output: FilesOnly without Dir: set Dir"},
		{Output{Dir: file}, "start job: create output directory: mkdir " + file + ": not a directory"},
	} {
		cfg := config("plan", 1)
		cfg.Output = tc.output
		if _, err := start(t, cfg).result(); err == nil || !strings.HasPrefix(err.Error(), tc.text) {
			t.Errorf("error %v, want %q", err, tc.text)
		}
	}
}
