package main

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/softnd/softnd/internal/testkit/proctest"
	"github.com/softnd/softnd/internal/testkit/scale"
)

// writing describes the output of the ranks of a test, derived from a common seed.
type writing struct {
	seed  uint64
	lines int
	text  []byte // every line is a substring of it
}

func newWriting(seed uint64, lines int) *writing {
	w := &writing{seed, lines, make([]byte, 1<<16)}
	r := rand.New(rand.NewPCG(seed, 1))
	for i := range w.text {
		for w.text[i] = '\n'; w.text[i] == '\n'; {
			w.text[i] = byte(r.IntN(256))
		}
	}
	copy(w.text, "[1] [2] [63] a line that looks like several ranks'")
	return w
}

// largestWrite is the maximum number of bytes that a rank writes at once, plus the line feed that
// ndrun adds to the last line.
const largestWrite = 4096 + 10_000 + 1

// line returns line i of a rank, without line feed. The last one is not empty.
func (w *writing) line(rank, i int) []byte {
	if i == w.lines-1 {
		return []byte("the end")
	}
	h := (w.seed + uint64(rank)<<32 + uint64(i)) * 0x9e3779b97f4a7c15
	h ^= h >> 29
	length := int(h>>8) % 100
	if h%1000 == 0 {
		length *= 100
	}
	length = max(length, -length)
	from := int(h>>40) % (len(w.text) - 10_000)
	return w.text[from:][:length]
}

// progress returns memory that a test shares with its ranks: for each rank the number of bytes
// that write(2) has accepted, and its PID.
func progress(path string, ranks int) (written, pids []atomic.Int64, err error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, nil, err
	}
	defer f.Close()
	if err := f.Truncate(int64(ranks) * 16); err != nil {
		return nil, nil, err
	}
	b, err := syscall.Mmap(int(f.Fd()), 0, ranks*16, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED)
	if err != nil {
		return nil, nil, err
	}
	all := unsafe.Slice((*atomic.Int64)(unsafe.Pointer(&b[0])), 2*ranks)
	return all[:ranks], all[ranks:], nil
}

// runLines writes the lines of a rank, split at arbitrary positions, with pauses; the last line
// has no line feed. Its arguments are "lines SEED LINES PROGRESS END". END is "exit", or "stay"
// to wait until it is killed.
func runLines(args []string) error {
	seed, err := strconv.ParseUint(args[0], 10, 64)
	if err != nil {
		return err
	}
	lines, err := strconv.Atoi(args[1])
	if err != nil {
		return err
	}
	rank, _ := strconv.Atoi(os.Getenv("SOFTND_RANK"))
	size, _ := strconv.Atoi(os.Getenv("SOFTND_SIZE"))
	done, pids, err := progress(args[2], size)
	if err != nil {
		return err
	}
	pids[rank].Store(int64(os.Getpid()))
	w := newWriting(seed, lines)
	r := rand.New(rand.NewPCG(seed, uint64(rank)+2))
	var held []byte
	write := func(n int) error {
		if _, err := syscall.Write(1, held[:n]); err != nil { // blocks until the pipe has taken all
			return err
		}
		done[rank].Add(int64(n))
		held = held[:copy(held, held[n:])]
		return nil
	}
	for i := range lines {
		if i > 0 {
			held = append(held, '\n')
		}
		held = append(held, w.line(rank, i)...)
		for len(held) > 4096 {
			if err := write(1 + r.IntN(4096)); err != nil {
				return err
			}
			if r.IntN(50) == 0 {
				time.Sleep(time.Duration(r.IntN(2000)) * time.Microsecond)
			}
		}
	}
	if err := write(len(held)); err != nil || args[3] == "exit" {
		return err
	}
	forever()
	return nil
}

// arrived checks the output of ndrun, label by label, and counts for each rank the bytes that
// match its output.
type arrived struct {
	w     *writing
	next  []int   // by rank: the line that has to come
	bytes []int64 // with the ends of lines
	cut   []bool  // the last line that came was shorter than it should be
}

// take checks one line of output with its line feed.
func (a *arrived) take(line []byte) error {
	var rank int
	label, text, ok := bytes.Cut(line, []byte("] "))
	if _, err := fmt.Sscanf(string(label), "[%d", &rank); !ok || err != nil || rank < 0 || rank >= len(a.next) {
		return fmt.Errorf("a line without a label: %.80q", line)
	}
	text = bytes.TrimSuffix(text, []byte("\n"))
	i := a.next[rank]
	if a.cut[rank] || i >= a.w.lines {
		return fmt.Errorf("rank %d goes on after its end with %.80q", rank, text)
	}
	want := a.w.line(rank, i)
	switch {
	case bytes.Equal(text, want):
		a.bytes[rank] += int64(len(text)) + 1
	case bytes.HasPrefix(want, text):
		a.bytes[rank] += int64(len(text))
		a.cut[rank] = true
	default:
		return fmt.Errorf("rank %d, line %d: %.80q came, %.80q was written", rank, i, text, want)
	}
	a.next[rank]++
	return nil
}

func TestStressOutput(t *testing.T) {
	ranks, lines := scale.Of(16, 64), scale.Of(3000, 100_000)
	for _, tc := range []struct {
		name, end string
		status    int
	}{{"to the end", "exit", 0}, {"a rank is killed", "stay", 128 + 9}} {
		t.Run(tc.name, func(t *testing.T) {
			kill := tc.end == "stay"
			r, seed := seeded(t)
			left := watchLeftovers(t)
			file := filepath.Join(t.TempDir(), "progress")
			done, pids, err := progress(file, ranks)
			if err != nil {
				t.Fatal(err)
			}
			w := newWriting(seed, lines)
			cmd := built(t, append(left.env(), proctest.RoleEnv+"=rank"), "-n", strconv.Itoa(ranks), "--quiet",
				testBinary(t), "lines", strconv.FormatUint(seed, 10), strconv.Itoa(lines), file, tc.end)
			out, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := left.start(cmd); err != nil {
				t.Fatal(err)
			}
			victim, at := r.IntN(ranks), int64(1+r.IntN(lines*40)) // an average line has some 50 bytes
			killed := make(chan struct{})
			go func() {
				defer close(killed)
				for kill && done[victim].Load() < at {
					if t.Context().Err() != nil {
						return // the PIDs may not be set yet, and PID 0 is this process group
					}
					time.Sleep(100 * time.Microsecond)
				}
				if kill {
					if err := syscall.Kill(int(pids[victim].Load()), syscall.SIGKILL); err != nil {
						t.Errorf("kill rank %d: %v", victim, err)
					}
				}
			}()
			a := &arrived{w, make([]int, ranks), make([]int64, ranks), make([]bool, ranks)}
			lineReader := bufio.NewReaderSize(out, 1<<20)
			for {
				line, err := lineReader.ReadSlice('\n')
				if err == io.EOF && len(line) == 0 {
					break
				}
				if err == nil {
					err = a.take(line)
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			<-killed
			got := status(cmd.Wait())
			if got != tc.status {
				t.Errorf("exit status %d, want %d", got, tc.status)
			}
			var total int64
			for rank := range ranks {
				// A rank may be killed between its write and the note that it takes of it.
				came, noted := a.bytes[rank], done[rank].Load()
				total += came
				if came < noted || came > noted+largestWrite || !kill && (a.next[rank] != lines || a.cut[rank] || came != noted+1) {
					t.Errorf("rank %d: %d bytes and %d lines came, %d bytes were written", rank, came, a.next[rank], noted)
				}
			}
			t.Logf("%d bytes of %d ranks came", total, ranks)
			left.mustBeNone()
		})
	}
}
