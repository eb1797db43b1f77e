package launcher

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"

	"github.com/softnd/softnd/internal/linux"
)

// Output selects the destinations and the format of the ranks' output. The zero value is
// labeled output, "[2] text", to Stdout and Stderr, which stay apart.
type Output struct {
	Raw        bool   // unchanged bytes; lines of several ranks are still not mixed
	JSONLines  bool   // one JSON object for each line, both streams to Stdout
	Timestamps bool   // each line also begins with the time of its arrival; JSONLines always has it
	Dir        string // if not "": directory for copies in rank.N.out and rank.N.err; it is created if necessary
	FilesOnly  bool   // write nothing to Stdout and Stderr; requires Dir
}

func (o *Output) check() error {
	switch {
	case o.Raw && o.JSONLines:
		return errors.New("output: Raw and JSONLines: set one of them")
	case o.FilesOnly && o.Dir == "":
		return errors.New("output: FilesOnly without Dir: set Dir")
	}
	return nil
}

// sink merges the streams of several ranks. It receives whole lines only, so no line is split or
// merged with one of another rank.
type sink struct {
	mu     sync.Mutex
	w      io.Writer
	format lineFormat
	ends   string       // bytes that end a line
	writes atomic.Int64 // chunks that are written
	eager  bool         // pass incomplete lines on: there is only one rank
	most   int          // bytes to be written at once
	out    []byte       // lines to be written next
	err    error        // of the first write that failed; nothing is written after it
	onErr  func(error)
}

// newSinks creates the sinks for standard output and error. They are the same sink if both go to
// the same file, so that lines are not mixed there either, and nil if output goes to files only.
// The first write error of each sink is reported to onErr.
func newSinks(cfg *Config, onErr func(error)) [2]*sink {
	if cfg.Output.FilesOnly {
		return [2]*sink{}
	}
	first := newSink(cfg, cfg.Stdout, onErr)
	if cfg.Output.JSONLines || cfg.Stderr == cfg.Stdout || sameFile(cfg.Stdout, cfg.Stderr) {
		return [2]*sink{first, first}
	}
	return [2]*sink{first, newSink(cfg, cfg.Stderr, onErr)}
}

func newSink(cfg *Config, w io.Writer, onErr func(error)) *sink {
	s := &sink{w: w, most: maxChunk, ends: "\n", onErr: onErr, format: lineFormat{
		label: !cfg.Output.Raw && !cfg.Output.JSONLines,
		json:  cfg.Output.JSONLines,
		times: cfg.Output.Timestamps,
	}}
	if isRegular(w) { // it needs no reader, and a line that is written at once is whole
		s.most = math.MaxInt
	}
	s.eager = s.format.isRaw() && cfg.ranks() == 1
	if !s.format.json && linux.IsTerminal(w) {
		// Programs show progress with carriage returns, which has to appear before the next line
		// feed.
		s.ends = "\n\r"
	}
	return s
}

// maxChunk is the maximum number of bytes that a sink writes at once, unless it writes to a regular file. A process that
// reads a kilobyte per second from a pipe takes each chunk within outputTimeout.
const maxChunk = 4 << 10

// write writes out in chunks of whole lines. Only lines that are longer than a chunk are cut. The caller
// holds mu.
func (s *sink) write() {
	for left := s.out; len(left) > 0; {
		chunk := left[:min(len(left), s.most)]
		if end := bytes.LastIndexAny(chunk, s.ends); end >= 0 && len(chunk) < len(left) {
			chunk = chunk[:end+1]
		}
		left = left[len(chunk):]
		if _, err := s.w.Write(chunk); err != nil {
			s.err = fmt.Errorf("write ranks' output: %w: the job was stopped", err)
			s.onErr(s.err)
			return
		}
		s.writes.Add(1)
	}
}

func isRegular(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode().IsRegular()
}

func sameFile(a, b io.Writer) bool {
	fa, ok := a.(*os.File)
	fb, ok2 := b.(*os.File)
	if !ok || !ok2 {
		return false
	}
	ia, err := fa.Stat()
	ib, err2 := fb.Stat()
	return err == nil && err2 == nil && os.SameFile(ia, ib)
}

// streamNames are the names of a rank's two streams in JSON Lines. fileEndings are the endings of
// their files.
var streamNames, fileEndings = [2]string{"stdout", "stderr"}, [2]string{"out", "err"}

// makeDir creates the directory for the files if Dir is set.
func (o *Output) makeDir() error {
	if o.Dir == "" {
		return nil
	}
	if err := os.MkdirAll(o.Dir, 0o777); err != nil {
		return fmt.Errorf("create output directory: %w: change the directory", err)
	}
	return nil
}

// create creates or truncates the file for one stream of a rank; nil if Dir is not set.
func (o *Output) create(rank, which int) (*os.File, error) {
	if o.Dir == "" {
		return nil, nil
	}
	f, err := os.Create(filepath.Join(o.Dir, fmt.Sprintf("rank.%d.%s", rank, fileEndings[which])))
	if err != nil {
		return nil, fmt.Errorf("create output file of rank %d: %w%s: change the output directory", rank, err, hint(err))
	}
	return f, nil
}
