package launcher

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// Form is the form in which a rank's lines reach [Config.Stdout] and [Config.Stderr].
type Form int

const (
	Labelled  Form = iota // "[2] text", of standard output and error each to its own
	Plain                 // the bytes as they are, nothing added; lines of several ranks still come whole
	JSONLines             // one JSON object a line, of both streams to Stdout
)

// Output says what becomes of the ranks' output. The zero value labels it.
type Output struct {
	Form       Form
	Timestamps bool   // each line also begins with the time at which it came; JSONLines have it anyway
	Dir        string // if not "": made if it is missing, and gets rank.N.out and rank.N.err, byte by byte
	FilesOnly  bool   // nothing goes to Stdout and Stderr; needs Dir
}

func (o *Output) check() error {
	switch {
	case o.Form < Labelled || o.Form > JSONLines:
		return fmt.Errorf("there is no form %d of output", o.Form)
	case o.FilesOnly && o.Dir == "":
		return errors.New("output to files alone needs a directory for them")
	}
	return nil
}

// sink is where the streams of several ranks meet. Only whole lines go in, so no
// line is split or merged with another rank's.
type sink struct {
	mu     sync.Mutex
	w      io.Writer
	form   lineForm
	ends   string       // the bytes that end a line
	writes atomic.Int64 // how many have returned
	eager  bool         // bytes do not wait for the end of their line: there is no other rank to be mixed with
	out    []byte       // lines on their way out
	err    error        // of the first write that failed; nothing is written after it
	onErr  func(error)
}

// newSinks makes the sinks for standard output and error: one and the same if both
// go to the same file, where their lines must not be mixed either, and none if the
// output goes to files alone. A failure to write is told to onErr once per sink.
func newSinks(cfg *Config, onErr func(error)) [2]*sink {
	if cfg.Output.FilesOnly {
		return [2]*sink{}
	}
	first := newSink(cfg, cfg.Stdout, onErr)
	if cfg.Output.Form == JSONLines || cfg.Stderr == cfg.Stdout || sameFile(cfg.Stdout, cfg.Stderr) {
		return [2]*sink{first, first}
	}
	return [2]*sink{first, newSink(cfg, cfg.Stderr, onErr)}
}

func newSink(cfg *Config, w io.Writer, onErr func(error)) *sink {
	s := &sink{w: w, ends: "\n", onErr: onErr, form: lineForm{
		label: cfg.Output.Form == Labelled,
		json:  cfg.Output.Form == JSONLines,
		times: cfg.Output.Timestamps,
	}}
	s.eager = s.form.raw() && cfg.ranks() == 1
	if !s.form.json && IsTerminal(w) {
		// Programs draw progress by returning the carriage. Shown at the next line
		// feed only, it would not be progress.
		s.ends = "\n\r"
	}
	return s
}

// write writes what is in out. The caller holds mu.
func (s *sink) write() {
	_, err := s.w.Write(s.out)
	s.writes.Add(1)
	if err != nil {
		s.err = fmt.Errorf("pass on the ranks' output: %w; the job was stopped", err)
		s.onErr(s.err)
	}
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

// IsTerminal tells whether w is a terminal.
func IsTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	conn, err := f.SyscallConn()
	if err != nil {
		return false
	}
	terminal := false
	_ = conn.Control(func(fd uintptr) {
		_, err := unix.IoctlGetTermios(int(fd), unix.TCGETS)
		terminal = err == nil
	})
	return terminal
}

// streamNames are the names of a rank's two streams in its lines, and the endings of
// its files.
var streamNames, fileEndings = [2]string{"stdout", "stderr"}, [2]string{"out", "err"}

// makeDir makes the directory for the files, if there is to be one.
func (o *Output) makeDir() error {
	if o.Dir == "" {
		return nil
	}
	if err := os.MkdirAll(o.Dir, 0o777); err != nil {
		return fmt.Errorf("make the directory for the ranks' output: %w; name one that can be made", err)
	}
	return nil
}

// create makes the file for one stream of a rank, empty if it was there; nil without a
// directory.
func (o *Output) create(rank, which int) (*os.File, error) {
	if o.Dir == "" {
		return nil, nil
	}
	f, err := os.Create(filepath.Join(o.Dir, fmt.Sprintf("rank.%d.%s", rank, fileEndings[which])))
	if err != nil {
		return nil, fmt.Errorf("make the files for the output of rank %d: %w%s; name a directory in which files can be made", rank, err, remedy(err))
	}
	return f, nil
}
