package ndcheck

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"
)

// Journal has the tokens of all processes of a job, their accesses in flight, and their waits for each other. It
// is memory that the processes share. A process accesses it under a lock. A process that scribbles over it makes
// findings wrong, but no other process fails.
type Journal struct {
	mu     sync.Mutex
	lock   Lock // nil = the journal belongs to this process
	memory []byte
	late   []func() // changes that wait for the lock
	users  int      // providers of this process that use it
}

// Lock is the lock of a journal between processes. The process that dies with it releases it.
type Lock interface {
	// Lock returns false if another process keeps the lock, for example because it is stopped.
	Lock() bool
	Unlock()
	// Enter marks this process as the rank until it dies.
	Enter(rank int)
	// IsPresent reports whether a process that lives has entered as the rank.
	IsPresent(rank int) bool
}

// JournalSize is the size in bytes of the memory of a journal.
const JournalSize = findingsAt + findingsSize

// The memory: a header, then tables. Numbers are little-endian.
const (
	journalMagic = "ndcheck7"
	maxRanks     = 1024
	maxTokens    = 1 << 15
	maxAccesses  = 1 << 13
	siteSize     = 96

	headerSize    = 64      // 0 magic, 8 number of access records in use, 12 bytes of findings, 16 findings that did not fit, 20 accesses that found their table full, 24 errors that did not fit
	forgottenSize = 1 << 14 // 1<<17 bits: see forgottenBit
	rankSize      = 192
	tokenHeader   = 88
	tokenSize     = tokenHeader + 2*siteSize
	accessSize    = 64 + siteSize

	forgottenAt = headerSize
	ranksAt     = forgottenAt + forgottenSize
	tokensAt    = ranksAt + maxRanks*rankSize
	accessesAt  = tokensAt + maxTokens*tokenSize
	writesAt    = accessesAt + maxAccesses*accessSize
	findingsAt  = writesAt + maxRanks*maxWrites*writeSize

	findingsSize = 1 << 20 // lines of JSON
)

// NewJournal returns the journal in memory, which has JournalSize bytes and is zero before its first use. lock
// excludes the other processes that use the memory; nil means that there are none. If one of them keeps it, the journal must have been
// used before.
func NewJournal(memory []byte, lock Lock) (*Journal, error) {
	if len(memory) < JournalSize {
		return nil, fmt.Errorf("ndcheck: journal of %d bytes: want %d", len(memory), JournalSize)
	}
	j := &Journal{lock: lock, memory: memory}
	hasLock := j.begin()
	if hasLock {
		defer j.end()
	}
	switch magic := string(memory[:len(journalMagic)]); magic {
	case journalMagic:
	case string(make([]byte, len(journalMagic))):
		if !hasLock {
			return nil, errors.New("ndcheck: another process keeps the lock of the journal: end the processes of the job that are stopped")
		}
		copy(memory, journalMagic)
	default:
		return nil, errors.New("ndcheck: the journal is of another version of the checker: use the ndrun of the same release")
	}
	return j, nil
}

// begin takes the lock, and catches up with the changes that had to wait for it. If it returns false, the caller
// does not touch the memory.
func (j *Journal) begin() bool {
	j.mu.Lock()
	if j.lock != nil && !j.lock.Lock() {
		j.mu.Unlock()
		return false
	}
	for _, f := range j.late {
		f()
	}
	j.late = nil
	return true
}

func (j *Journal) end() {
	if j.lock != nil {
		j.lock.Unlock()
	}
	j.mu.Unlock()
}

// use counts the providers of this process that use the journal. It reports whether there are none left, and no other
// process uses it.
func (j *Journal) use(change int) (isUnused bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.users += change
	return j.users == 0 && j.lock == nil
}

// maxLate limits the changes that wait for the lock. Further changes are forgotten.
const maxLate = 1 << 16

// update makes a change, now or when the lock is free again. It reports whether the change is made.
func (j *Journal) update(f func()) (isDone bool) {
	if j.begin() {
		defer j.end()
		f()
		return true
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if len(j.late) < maxLate {
		j.late = append(j.late, f)
	}
	return false
}

// now is the time in records: nanoseconds of the host's clock, which all processes share.
func now() int64 { return time.Now().UnixNano() }

// field is a number of the header.
func (j *Journal) field(at int) uint32 { return binary.LittleEndian.Uint32(j.memory[at:]) }

func (j *Journal) setField(at int, v uint32) { binary.LittleEndian.PutUint32(j.memory[at:], v) }

// The fields of the header.
const (
	accessesUsed = 8
	findingsUsed = 12
	findingsLost = 16
	accessesFull = 20
	errorsLost   = 24
)

func getString(b []byte) string {
	n := min(int(b[0]), len(b)-1)
	return string(b[1 : 1+n])
}

func putString(b []byte, s string) {
	n := min(len(s), len(b)-1, 255)
	b[0] = byte(n)
	copy(b[1:], s[:n])
}

// record is a line of the journal: one of the two.
type record struct {
	Finding *Finding     `json:"finding,omitempty"`
	Expect  *Expectation `json:"expect,omitempty"`
}

// isError reports whether the record is an error that the program does not expect.
func (r record) isError() bool {
	return r.Finding != nil && r.Finding.Expected == nil && r.Finding.Rule.Severity == Error
}

// add appends a record.
func (j *Journal) add(r record) {
	line, err := json.Marshal(r)
	if err != nil {
		return // cannot happen: a record has only numbers and text
	}
	line = append(line, '\n')
	j.update(func() {
		used := j.field(findingsUsed)
		if used > findingsSize || len(line) > int(findingsSize-used) {
			j.setField(findingsLost, j.field(findingsLost)+1)
			if r.isError() {
				j.setField(errorsLost, j.field(errorsLost)+1)
			}
			return
		}
		copy(j.memory[findingsAt+int(used):], line)
		j.setField(findingsUsed, used+uint32(len(line)))
	})
}

// Findings returns the findings of all processes so far, and how many are lost: they did not fit into the journal,
// or a process has scribbled over them.
func (j *Journal) Findings() (found []Finding, lost int) {
	records, lost := j.records()
	for _, r := range records {
		if r.Finding != nil {
			found = append(found, *r.Finding)
		}
	}
	return found, lost
}

// LostErrors returns how many errors did not fit into the journal.
func (j *Journal) LostErrors() int {
	if j.begin() {
		defer j.end()
	}
	return int(j.field(errorsLost))
}

func (j *Journal) records() (all []record, lost int) {
	if j.begin() {
		defer j.end()
	} // else the process that keeps the lock is not in the way: it may be stopped, and lines are checked below
	text := bytes.Clone(j.memory[findingsAt:][:min(j.field(findingsUsed), findingsSize)])
	lost = int(j.field(findingsLost))
	for line := range bytes.Lines(text) {
		var r record
		if json.Unmarshal(line, &r) != nil || r.Finding == nil && r.Expect == nil {
			lost++
			continue
		}
		if f := r.Finding; f != nil {
			if f.Rule == nil || byID(f.Rule.ID) == nil {
				lost++
				continue
			}
			f.Rule = byID(f.Rule.ID)
		}
		all = append(all, r)
	}
	return all, lost
}
