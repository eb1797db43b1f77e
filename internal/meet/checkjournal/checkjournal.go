// Package checkjournal makes the memory that the ranks of a job share for the checker. The memory is a file
// without a name, which ends with the last process that has it open.
package checkjournal

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync/atomic"
	"time"

	mmap "github.com/edsrzf/mmap-go"
	"golang.org/x/sys/unix"

	"github.com/softnd/softnd/internal/linux"
	"github.com/softnd/softnd/nd/ndcheck"
)

const name = "softnd-check"

// ErrNone means that a descriptor is not of a journal: a wrapper of the rank has closed or reused it.
var ErrNone = errors.New("not a journal of the checker")

// Create returns the file of a new journal. No process can change its size, so all processes can map it safely.
func Create() (*os.File, error) {
	fd, err := linux.AboveStandard(unix.MemfdCreate(name, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING))
	if err != nil {
		return nil, fmt.Errorf("create the journal of the checker: %w", err)
	}
	file := os.NewFile(uintptr(fd), name)
	err = file.Truncate(ndcheck.JournalSize)
	if err == nil {
		_, err = unix.FcntlInt(file.Fd(), unix.F_ADD_SEALS, unix.F_SEAL_SHRINK|unix.F_SEAL_GROW|unix.F_SEAL_SEAL)
	}
	if err != nil {
		file.Close()
		return nil, fmt.Errorf("create the journal of the checker: %w", err)
	}
	return file, nil
}

// Open maps the journal behind a descriptor of this process. It stays mapped until the process ends. So does the mark of the
// process's rank: the mapping keeps it, even if the runtime closes the file of a journal that is not used. The error is
// ErrNone if the descriptor has no journal.
func Open(fd int) (*ndcheck.Journal, error) {
	path := fmt.Sprintf("/proc/self/fd/%d", fd)
	if target, err := os.Readlink(path); err != nil || target != "/memfd:"+name+" (deleted)" {
		return nil, fmt.Errorf("descriptor %d: %w", fd, ErrNone)
	}
	// The lock belongs to an open file description, so this process needs one of its own.
	var file *os.File
	var err error
	linux.ReserveStandard(func() { file, err = os.OpenFile(path, os.O_RDWR, 0) })
	if err != nil {
		return nil, fmt.Errorf("open the journal of the checker, descriptor %d: %w", fd, err)
	}
	info, err := file.Stat()
	if err == nil && info.Size() != ndcheck.JournalSize {
		err = fmt.Errorf("it has %d bytes, want %d: use the ndrun of the same release", info.Size(), ndcheck.JournalSize)
	}
	if err != nil {
		file.Close()
		return nil, fmt.Errorf("open the journal of the checker, descriptor %d: %w", fd, err)
	}
	memory, err := mmap.MapRegion(file, ndcheck.JournalSize, mmap.RDWR, 0, 0)
	if err != nil {
		file.Close()
		return nil, fmt.Errorf("map the journal of the checker: %w", err)
	}
	return ndcheck.NewJournal(memory, &lock{file: file})
}

// lock excludes other processes: byte 0 of the file is the lock of the journal, and byte r+1 that of rank r, which its
// process keeps. The kernel releases the locks of a process that dies.
type lock struct {
	file *os.File
	late atomic.Bool // the last attempt has failed
}

const (
	attempts    = 64 // before the first pause
	pause       = 50 * time.Microsecond
	lockTimeout = time.Second // with a process that keeps the lock, because it is stopped
)

func (l *lock) Lock() bool {
	var deadline time.Time
	for i := 0; ; i++ {
		if l.set(unix.F_WRLCK, 0) {
			l.late.Store(false)
			return true
		}
		switch {
		case l.late.Load():
			return false // wait once only
		case i < attempts:
			runtime.Gosched()
			continue
		case deadline.IsZero():
			deadline = time.Now().Add(lockTimeout)
		case time.Now().After(deadline):
			l.late.Store(true)
			return false
		}
		time.Sleep(pause)
	}
}

func (l *lock) Unlock() { l.set(unix.F_UNLCK, 0) }

func (l *lock) Enter(rank int) { l.set(unix.F_WRLCK, int64(rank)+1) }

func (l *lock) set(kind int16, at int64) bool {
	for {
		err := unix.FcntlFlock(l.file.Fd(), unix.F_OFD_SETLK, &unix.Flock_t{Type: kind, Start: at, Len: 1})
		if err != unix.EINTR {
			return err == nil
		}
	}
}

// IsPresent asks for the lock of the rank. Another rank of this process, which shares the lock's file, cannot be
// distinguished from none; a process is one rank.
func (l *lock) IsPresent(rank int) bool {
	if rank < 0 {
		return false
	}
	f := unix.Flock_t{Type: unix.F_WRLCK, Start: int64(rank) + 1, Len: 1}
	return unix.FcntlFlock(l.file.Fd(), unix.F_OFD_GETLK, &f) == nil && f.Type != unix.F_UNLCK
}
