package linux

// TWIN c/src/linux/procmaps.c.

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Which access the mappings of this process allow. A check touches no page of the memory that it checks, so sparse
// memory stays sparse, and it needs no signal handler.

// An Access is what the mappings of a range must allow.
type Access uint8

// Kinds of access.
const (
	Read Access = 1 << iota
	Write
)

// A AccessFault is a range of addresses that the process must not access in the way asked for.
type AccessFault struct {
	Start, End uint64 // within the range that was checked; End is excluded
	Reason     string // "not mapped", "not readable" or "not writable"
}

// mapping is one mapping of the process.
type mapping struct {
	start, end uint64
	access     Access
}

// A source returns the mapping that contains at, or else the next one above it; ok is false if there is none. at does
// not decrease from call to call.
type source func(at uint64) (m mapping, ok bool, err error)

// CheckAccess returns the first part of the n bytes at start that the process must not access, nil if there is none. Kernels
// from 6.11 find a mapping by its address, in 4 µs. Older ones list all mappings below the end of the range, at 0.25 µs
// each.
//
// Errors: those of opening and reading /proc/self/maps.
func CheckAccess(start, n uint64, want Access) (*AccessFault, error) {
	fd, err := AboveStandard(unix.Open("/proc/self/maps", unix.O_RDONLY|unix.O_CLOEXEC, 0))
	if err != nil {
		return nil, fmt.Errorf("open /proc/self/maps: %w", err)
	}
	defer unix.Close(fd)
	f, err := check(start, n, want, func(at uint64) (mapping, bool, error) { return query(fd, at) })
	if errors.Is(err, unix.ENOTTY) {
		f, err = check(start, n, want, list(rawFile(fd)))
	}
	return f, err
}

func check(start, n uint64, want Access, next source) (*AccessFault, error) {
	end := start + min(n, math.MaxUint64-start)
	for at := start; at < end; {
		m, ok, err := next(at)
		switch {
		case err != nil:
			return nil, err
		case !ok || m.start >= end:
			return &AccessFault{at, end, "not mapped"}, nil
		case m.start > at:
			return &AccessFault{at, m.start, "not mapped"}, nil
		case want&^m.access&Read != 0:
			return &AccessFault{at, min(m.end, end), "not readable"}, nil
		case want&^m.access != 0:
			return &AccessFault{at, min(m.end, end), "not writable"}, nil
		}
		at = m.end
	}
	return nil, nil
}

// list is the source for the text of /proc/self/maps, which is sorted by address.
func list(text io.Reader) source {
	lines := bufio.NewScanner(text)
	var m mapping
	return func(at uint64) (mapping, bool, error) {
		for m.end <= at {
			if !lines.Scan() {
				return mapping{}, false, lines.Err()
			}
			var err error
			if m, err = parse(lines.Text()); err != nil {
				return mapping{}, false, err
			}
		}
		return m, true, nil
	}
}

// parse parses a line such as "7f0000001000-7f0000003000 rw-p 00000000 00:00 0".
func parse(line string) (m mapping, err error) {
	addresses, rest, _ := strings.Cut(line, " ")
	start, end, _ := strings.Cut(addresses, "-")
	if m.start, err = strconv.ParseUint(start, 16, 64); err == nil {
		m.end, err = strconv.ParseUint(end, 16, 64)
	}
	if err != nil || len(rest) < 2 {
		return m, fmt.Errorf("/proc/self/maps: line %q: want addresses and permissions", line)
	}
	if rest[0] == 'r' {
		m.access |= Read
	}
	if rest[1] == 'w' {
		m.access |= Write
	}
	return m, nil
}

// rawFile reads a file without the runtime's poller.
type rawFile int

func (d rawFile) Read(b []byte) (int, error) {
	n, err := unix.Read(int(d), b)
	if err == nil && n == 0 {
		err = io.EOF
	}
	return max(n, 0), err
}
