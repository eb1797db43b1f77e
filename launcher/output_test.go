package launcher

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/softnd/softnd/internal/testkit/proctest"
)

// unlabel splits labelled output by rank. It fails on any byte outside of a labelled line.
func unlabel(t *testing.T, out []byte, ranks int) [][]byte {
	t.Helper()
	got := make([][]byte, ranks)
	for line := range bytes.Lines(out) {
		var rank int
		if _, err := fmt.Sscanf(string(line[:min(len(line), 8)]), "[%d] ", &rank); err != nil || rank >= ranks {
			t.Fatalf("a line without a rank's label: %q", line)
		}
		_, text, _ := bytes.Cut(line, []byte("] "))
		got[rank] = append(got[rank], text...)
	}
	return got
}

func checkWriters(t *testing.T, out []byte, ranks, stream int) {
	t.Helper()
	for rank, got := range unlabel(t, out, ranks) {
		// The last line had no end of its own.
		if want := append(wantOutput(rank, stream), '\n'); !bytes.Equal(got, want) {
			t.Errorf("rank %d, stream %d: %d bytes arrived that are not the %d bytes written", rank, stream, len(got), len(want))
		}
	}
}

func TestLabelledLinesAreCompleteAndWhole(t *testing.T) {
	const ranks = 8
	j := start(t, config("writer", ranks))
	if status := j.wait().ExitStatus(); status != 0 {
		t.Errorf("exit status %d", status)
	}
	checkWriters(t, []byte(j.out.String()), ranks, 0)
	checkWriters(t, []byte(j.err.String()), ranks, 1)
}

// Both streams go to one file through two descriptors, as after 2>&1. Lines are not mixed.
func TestStreamsInOneFile(t *testing.T) {
	const ranks = 4
	name := t.TempDir() + "/log"
	var files [2]*os.File
	for i := range files {
		f, err := os.OpenFile(name, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		files[i] = f
	}
	cfg := config("writer", ranks)
	cfg.Stdout, cfg.Stderr = files[0], files[1]
	if sinks := newSinks(&cfg, nil); sinks[0] != sinks[1] {
		t.Error("two sinks for one file")
	}
	start(t, cfg).wait()
	out, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	for rank, got := range unlabel(t, out, ranks) {
		// The streams of a rank are mixed, line by line.
		count := make(map[string]int)
		for stream := range 2 {
			for line := range bytes.Lines(append(wantOutput(rank, stream), '\n')) {
				count[string(line)]++
			}
		}
		for line := range bytes.Lines(got) {
			count[string(line)]--
		}
		for line, n := range count {
			if n != 0 {
				t.Errorf("rank %d: line %q came %d times too few", rank, line, n)
			}
		}
	}
}

type slowWriter struct{ *lineLog }

func (w *slowWriter) Write(p []byte) (int, error) {
	time.Sleep(20 * time.Microsecond * time.Duration(min(len(p), 1000)))
	return w.lineLog.Write(p)
}

// The ranks write far more than the pipes hold and exit before all of it is read.
func TestSlowOutputLosesNothing(t *testing.T) {
	t.Parallel()
	w := &slowWriter{newLineLog(t)}
	cfg := config("writer", 2)
	cfg.Stdout = w
	start(t, cfg).wait()
	checkWriters(t, []byte(w.String()), 2, 0)
}

func TestOutputOfKilledRank(t *testing.T) {
	j := start(t, config("plan", 2, "PLAN_1=signal 9"))
	if report := j.wait(); report.ExitStatus() != 137 {
		t.Errorf("exit status %d", report.ExitStatus())
	}
	if !strings.Contains(j.out.String(), "\n[1] last words\n") {
		t.Errorf("no last words in %q", j.out)
	}
}

// heldWriter blocks its first write until it is released.
type heldWriter struct {
	*lineLog
	held, release chan struct{}
	once          sync.Once
}

func (w *heldWriter) Write(p []byte) (int, error) {
	w.once.Do(func() {
		close(w.held)
		<-w.release
	})
	return w.lineLog.Write(p)
}

// A process outside of the job holds the writing end open. Data that was written before the end
// of the job still arrives, although it is in the pipe until then.
func TestForeignWriterDoesNotHoldTheJob(t *testing.T) {
	w := &heldWriter{lineLog: newLineLog(t), held: make(chan struct{}), release: make(chan struct{})}
	r, open := gate(t)
	cfg := config("plan", 1, "PLAN_0=gate exit 0")
	cfg.Files = []*os.File{r}
	cfg.Stdout = w
	j := start(t, cfg)
	<-w.held
	below, err := descendants(os.Getpid())
	if err != nil || len(below) != 3 {
		t.Fatalf("watchdog, supervisor and rank should be there: %v, %v", below, err)
	}
	watchdog, rank := proctest.Watch(t, below[0].PID), below[2].PID
	foreign, err := os.OpenFile(fmt.Sprintf("/proc/%d/fd/1", rank), os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer foreign.Close()
	text := strings.Repeat("from outside\n", 3000) + "and no end"
	if _, err := foreign.WriteString(text); err != nil {
		t.Fatal(err)
	}
	open('x')
	watchdog.MustEnd()
	close(w.release)
	j.wait()
	if got := string(unlabel(t, []byte(w.String()), 1)[0]); !strings.HasSuffix(got, text+"\n") {
		t.Errorf("%d bytes arrived, and the last are %.40q", len(got), got[max(0, len(got)-40):])
	}
}

type brokenWriter struct{}

func (brokenWriter) Write([]byte) (int, error) { return 0, syscall.ENOSPC }

func TestClosedEmptyPipes(t *testing.T) {
	for name, tc := range map[string]struct {
		do   func(w *os.File)
		want bool
	}{
		"open":                    {func(*os.File) {}, false},
		"closed":                  {func(w *os.File) { w.Close() }, true},
		"last words":              {func(w *os.File) { w.WriteString("x"); w.Close() }, false},
		"open in another process": {func(w *os.File) { keepCopy(t, w); w.Close() }, false},
	} {
		t.Run(name, func(t *testing.T) {
			r, w := pipe(t)
			other, stays := pipe(t)
			tc.do(w)
			if got := closedEmpty([]int{int(other.Fd()), int(r.Fd())}); got[0] || got[1] != tc.want {
				t.Errorf("%v, want false and %v", got, tc.want)
			}
			stays.Close()
		})
	}
}

// keepCopy keeps a copy of a file open until the test ends.
func keepCopy(t *testing.T, file *os.File) {
	t.Helper()
	fd, err := unix.FcntlInt(file.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
}

func pipe(t *testing.T) (r, w *os.File) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close(); w.Close() })
	return r, w
}

func TestOutputThatCannotBeWrittenStopsTheJob(t *testing.T) {
	cfg := config("plan", 2)
	cfg.Stdout = brokenWriter{}
	report, err := start(t, cfg).result()
	if !errors.Is(err, syscall.ENOSPC) || !strings.Contains(err.Error(), "write ranks' output") {
		t.Errorf("error %v, want %v with its operation", err, syscall.ENOSPC)
	}
	if report.First >= 0 || report.ExitStatus() != 1 {
		t.Errorf("rank %d failed first, exit status %d; want -1 and 1", report.First, report.ExitStatus())
	}
}

// passThrough gives each of the reads to a stream and returns the output after each of them and
// at the end.
func passThrough(t *testing.T, ends string, reads ...string) (after []string) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	out := newLineLog(t)
	s := newStream(7, 0, r, nil, newSink(&Config{Apps: []App{{Ranks: 8}}}, out, func(err error) { t.Error(err) }), nil)
	s.to.ends = ends
	done := make(chan struct{})
	go func() { s.copy(); close(done) }()
	seen := 0
	fresh := func() string {
		all := out.String()
		defer func() { seen = len(all) }()
		return all[seen:]
	}
	for _, data := range reads {
		if _, err := w.WriteString(data); err != nil {
			t.Fatal(err)
		}
		if strings.ContainsAny(data, ends) {
			proctest.Eventually(t, fmt.Sprintf("output for %q", data), func() bool { return len(out.String()) > seen })
		}
		after = append(after, fresh())
	}
	w.Close()
	<-done
	return append(after, fresh())
}

func TestLinesOfOneStream(t *testing.T) {
	long := strings.Repeat("x", maxLine)
	for _, tc := range []struct {
		name  string
		ends  string
		reads []string
		want  []string
	}{
		{"nothing", "\n", nil, []string{""}},
		{"empty line", "\n", []string{"\n"}, []string{"[7] \n", ""}},
		{"end is added", "\n", []string{"a"}, []string{"", "[7] a\n"}},
		{"held until the end comes", "\n", []string{"a", "b\nc", "\n"}, []string{"", "[7] ab\n", "[7] c\n", ""}},
		{"carriage returns in a file", "\n", []string{"10%\r20%\rdone\r\n"}, []string{"[7] 10%\r20%\rdone\r\n", ""}},
		{"progress on a terminal", "\n\r", []string{"10%\r", "20%\r", "done\n"}, []string{"[7] 10%\r", "[7] 20%\r", "[7] done\n", ""}},
		{"CR LF on a terminal", "\n\r", []string{"a\r\nb\r\n"}, []string{"[7] a\r\n[7] b\r\n", ""}},
		{"CR LF in two reads", "\n\r", []string{"a\r", "\nb\n"}, []string{"[7] a\r", "\n[7] b\n", ""}},
		{"a return, then an empty line", "\n\r", []string{"a\r\n\n"}, []string{"[7] a\r\n[7] \n", ""}},
		{"as long as it may be", "\n", []string{long[1:] + "\n"}, []string{"[7] " + long[1:] + "\n", ""}},
		{"exactly as long", "\n", []string{long + "\n"}, []string{"[7] " + long + "\n", ""}},
		{"exactly as long, without an end", "\n", []string{long}, []string{"", "[7] " + long + "\n"}},
		{"twice as long", "\n", []string{long + long + "\nb\n"}, []string{"[7] " + long + "\n[7] " + long + "\n[7] b\n", ""}},
		{"exactly as long, on a terminal", "\n\r", []string{long + "\r\n"}, []string{"[7] " + long + "\r\n", ""}},
		{"longer", "\n", []string{long + "yz\nb"}, []string{"[7] " + long + "\n[7] yz\n", "[7] b\n"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := passThrough(t, tc.ends, tc.reads...)
			// Where a long line is cut into reads is the pipe's business.
			if len(tc.reads) == 1 && len(tc.reads[0]) >= maxLine {
				got, tc.want = []string{strings.Join(got, "")}, []string{strings.Join(tc.want, "")}
			}
			if fmt.Sprintf("%q", got) != fmt.Sprintf("%q", tc.want) {
				t.Errorf("got  %.200q\nwant %.200q", got, tc.want)
			}
		})
	}
}

func TestIsTerminal(t *testing.T) {
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer master.Close()
	fd := int(master.Fd())
	if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	terminal, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer terminal.Close()
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	if ends := newSink(&Config{}, terminal, nil).ends; ends != "\n\r" {
		t.Errorf("a terminal's lines end with %q", ends)
	}
	if ends := newSink(&Config{}, null, nil).ends; ends != "\n" {
		t.Errorf("a file's lines end with %q", ends)
	}
}

// If no process reads the output, one signal ends the job and the wait for a reader.
func TestSignalWhileOutputIsNotRead(t *testing.T) {
	t.Parallel()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	defer r.Close() // after the job: the pipe has a reader that never reads
	cfg, send := withSignals(config("", 2))
	cfg.Apps[0].Path, cfg.Apps[0].Args = "/bin/sh", []string{"sh", "-c", "echo ready >&2; exec yes"}
	cfg.Stdout = w
	j := start(t, cfg)
	j.err.await(2, "ready")
	proctest.Eventually(t, "the output is full", func() bool {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(w.Fd()), Events: unix.POLLOUT}}, 0)
		return n == 0 && err == nil
	})
	send <- syscall.SIGTERM
	report, err := j.result()
	if err == nil || !strings.Contains(err.Error(), "no process read it") || report.ExitStatus() != 128+15 {
		t.Errorf("exit status %d, %v", report.ExitStatus(), err)
	}
}

// A process that reads slowly takes one chunk after the other, so that the output counts as read before the
// whole of it is.
func TestSlowReaderShowsProgress(t *testing.T) {
	r, w := pipe(t)
	if _, err := unix.FcntlInt(w.Fd(), unix.F_SETPIPE_SZ, 64<<10); err != nil { // it is larger with large pages
		t.Fatal(err)
	}
	s := newStream(0, 0, nil, nil, newSink(&Config{Apps: []App{{Ranks: 2}}}, w, func(err error) { t.Error(err) }), nil)
	lines := []byte(strings.Repeat(strings.Repeat("x", 99)+"\n", 5*busyBuffer/100))
	want := len(lines) + len("[0] ")*bytes.Count(lines, []byte("\n"))
	var writing sync.WaitGroup
	writing.Go(func() { s.pass(lines) })
	chunk := make([]byte, maxChunk)
	for step := range 4 {
		before := s.to.writes.Load()
		for range 2 {
			if _, err := io.ReadFull(r, chunk); err != nil {
				t.Fatal(err)
			}
			want -= len(chunk)
		}
		proctest.Eventually(t, fmt.Sprintf("step %d: a chunk is written", step), func() bool { return s.to.writes.Load() > before })
		if s.to.mu.TryLock() {
			t.Fatalf("step %d: all is written, although %d bytes do not fit into the pipe", step, want)
		}
	}
	if n, err := io.CopyN(io.Discard, r, int64(want)); err != nil {
		t.Errorf("%d bytes, want %d: %v", n, want, err)
	}
	writing.Wait()
}

// chunkLog records the length of each write.
type chunkLog struct {
	bytes.Buffer
	chunks []int
}

func (w *chunkLog) Write(p []byte) (int, error) {
	w.chunks = append(w.chunks, len(p))
	return w.Buffer.Write(p)
}

func TestChunksAreWholeLines(t *testing.T) {
	line := strings.Repeat("x", 1500) + "\n" // two in a chunk
	long := strings.Repeat("y", maxChunk) + "\n"
	w := new(chunkLog)
	s := newSink(&Config{Apps: []App{{Ranks: 2}}, Output: Output{Raw: true}}, w, func(err error) { t.Error(err) })
	newStream(0, 0, nil, nil, s, nil).pass([]byte(strings.Repeat(line, 3) + long + line))
	if want := []int{2 * len(line), len(line), maxChunk, 1 + len(line)}; !slices.Equal(w.chunks, want) {
		t.Errorf("chunks of %d bytes, want %d", w.chunks, want)
	}
	if want := strings.Repeat(line, 3) + long + line; w.String() != want {
		t.Error("other bytes were written")
	}
}

// With output to files only, the files show whether the job's output is still written.
func TestWritesToFilesCount(t *testing.T) {
	file, err := os.Create(t.TempDir() + "/out")
	if err != nil {
		t.Fatal(err)
	}
	s := newStream(0, 0, nil, file, nil, func(err error) { t.Error(err) })
	f := &frontEnd{streams: []*stream{nil, s}}
	s.keep([]byte("text"))
	if n := f.written(); n != 1 {
		t.Errorf("%d writes, want 1", n)
	}
	file.Close()
}
