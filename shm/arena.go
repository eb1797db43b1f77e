package shm

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cespare/xxhash/v2"
	"github.com/edsrzf/mmap-go"
	"golang.org/x/sys/unix"

	"github.com/softnd/softnd/internal/build"
)

// Config says what kind of arena [Create] makes. The zero value is an arena
// without ranks and of the default size.
type Config struct {
	Ranks int    // size of the rank group, 0..MaxRanks
	Size  uint64 // bytes of address space; 0 = as much as the machine has memory, within the process's limits
}

// Arena is a sparse memory file that several processes map. It has no name in
// any file system, so nothing remains of it when the last process is gone.
//
// Its methods are safe for concurrent use, [Arena.Close] excepted.
type Arena struct {
	file *os.File // our own open file description
	mem  mmap.MMap
	geo  geometry
	id   [2]uint64
	node inode // of the file

	reaping sync.Mutex // held by the goroutine that reaps

	ranks  int
	secret [2]uint64
	refs   atomic.Int32 // members joined through this mapping
	closed atomic.Bool  // mem is empty pages
}

// Create makes a new arena, sealed against shrinking and growing, and maps it.
//
// Errors: [ErrShortage] when the address space, file size or memory limits of
// this process do not allow one.
func Create(cfg Config) (*Arena, error) {
	if cfg.Ranks < 0 || cfg.Ranks > MaxRanks {
		return nil, fmt.Errorf("shm: create arena: %d ranks: want 0 to %d", cfg.Ranks, MaxRanks)
	}
	size, err := arenaSize(cfg.Size)
	if err != nil {
		return nil, fmt.Errorf("shm: create arena: %w", err)
	}
	geo, err := geometryFor(size)
	if err != nil {
		return nil, fmt.Errorf("shm: create arena: %w", err)
	}
	fd, err := unix.MemfdCreate("softnd-arena", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING|unix.MFD_NOEXEC_SEAL)
	if errors.Is(err, unix.EINVAL) { // MFD_NOEXEC_SEAL came with Linux 6.3
		fd, err = unix.MemfdCreate("softnd-arena", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	}
	if err != nil {
		return nil, fmt.Errorf("shm: create arena: memfd_create: %w", err)
	}
	file := os.NewFile(uintptr(fd), "softnd-arena")
	a, err := create(file, geo, cfg.Ranks)
	if err != nil {
		file.Close()
		return nil, fmt.Errorf("shm: create arena of %d bytes: %w", size, err)
	}
	return a, nil
}

func create(file *os.File, geo geometry, ranks int) (*Arena, error) {
	fd := int(file.Fd())
	if err := unix.Ftruncate(fd, int64(geo.size)); err != nil {
		return nil, fmt.Errorf("ftruncate: %w", err)
	}
	if _, err := unix.FcntlInt(file.Fd(), unix.F_ADD_SEALS, unix.F_SEAL_SHRINK|unix.F_SEAL_GROW|unix.F_SEAL_SEAL); err != nil {
		return nil, fmt.Errorf("sealing: %w", err)
	}
	node, err := inodeOf(fd)
	if err != nil {
		return nil, fmt.Errorf("fstat: %w", err)
	}
	a := &Arena{file: file, geo: geo, ranks: ranks, node: node}
	// The small tables are reserved as a whole, so that no word has to say which of their
	// pages exist; testimonies and window blocks when they are claimed.
	for _, r := range []struct {
		off Offset
		n   uint64
	}{
		{0, headerSize},
		{geo.memberTable, MaxMembers * memberStride},
		{geo.places, uint64(ranks) * placeStride},
		{geo.windowOwners, windowBlocks * 4},
		{geo.chunkOwners, geo.chunks * 4},
	} {
		if err := a.reserve(r.off, r.n); err != nil {
			return nil, err
		}
	}
	mem, err := mapWhole(file, geo.size)
	if err != nil {
		return nil, err
	}
	a.mem = mem

	h := a.header()
	var random [32]byte
	rand.Read(random[:])
	for i := range 2 {
		a.secret[i] = binary.NativeEndian.Uint64(random[8*i:])
		a.id[i] = binary.NativeEndian.Uint64(random[16+8*i:])
	}
	h.magic, h.ranks, h.layout, h.size = Magic, uint32(ranks), LayoutHash(), geo.size
	h.secret, h.id = a.secret, a.id
	h.checksum = h.constants().sum()
	copy(h.build[:], build.Name())
	h.version.Store(Version) // ORDER arena-ready: pairs with the load in readHeader
	return a, nil
}

// constants is a private copy of what the creator wrote into the header, so
// that what is used is what was checked.
type constants struct {
	magic, layout, size, checksum uint64
	ranks                         uint32
	secret, id                    [2]uint64
}

func (h *header) constants() constants {
	return constants{h.magic, h.layout, h.size, h.checksum, h.ranks, h.secret, h.id}
}

func (c constants) sum() uint64 {
	words := [...]uint64{c.magic, uint64(c.ranks), c.layout, c.size, c.secret[0], c.secret[1], c.id[0], c.id[1]}
	var b []byte
	for _, w := range words {
		b = binary.LittleEndian.AppendUint64(b, w)
	}
	return xxhash.Sum64(b)
}

// Attach maps the arena that file holds. The arena re-opens the file, because
// locks belong to the open file description and an inherited one is shared;
// the caller keeps file and may close it.
//
// An arena whose creator has not finished is waited for until ctx ends.
//
// Errors: [ErrNotArena], [ErrNotReady], [ErrVersion], [ErrTruncated],
// [ErrUnsealed], [ErrDamaged]; each says what was found.
func Attach(ctx context.Context, file *os.File) (*Arena, error) {
	size, err := sealedSize(file)
	if err != nil {
		return nil, fmt.Errorf("shm: attach arena: %w", err)
	}
	own, err := reopen(int(file.Fd()))
	if err != nil {
		return nil, fmt.Errorf("shm: attach arena: %w", err)
	}
	a, err := attach(ctx, own, size)
	if err != nil {
		own.Close()
		return nil, fmt.Errorf("shm: attach arena: %w", err)
	}
	return a, nil
}

func reopen(fd int) (*os.File, error) {
	own, err := os.OpenFile(fmt.Sprintf("/proc/self/fd/%d", fd), os.O_RDWR, 0)
	if err != nil {
		return nil, fmt.Errorf("re-opening descriptor %d (softnd needs a mounted /proc): %w", fd, err)
	}
	return own, nil
}

func attach(ctx context.Context, file *os.File, size uint64) (*Arena, error) {
	first, err := mmap.MapRegion(file, headerSize, mmap.RDWR, 0, 0)
	if err != nil {
		return nil, fmt.Errorf("mmap of the header: %w", err)
	}
	defer first.Unmap()
	c, geo, err := readHeader(ctx, (&Arena{mem: first}).header(), size)
	if err != nil {
		return nil, err
	}
	mem, err := mapWhole(file, size)
	if err != nil {
		return nil, err
	}
	node, err := inodeOf(int(file.Fd()))
	if err != nil {
		return nil, errors.Join(fmt.Errorf("fstat: %w", err), mem.Unmap())
	}
	return &Arena{file: file, mem: mem, geo: geo, node: node, ranks: int(c.ranks), id: c.id, secret: c.secret}, nil
}

// mapWhole maps the whole file, for this process and none that it forks.
func mapWhole(file *os.File, size uint64) (mmap.MMap, error) {
	mem, err := mmap.MapRegion(file, int(size), mmap.RDWR, 0, 0)
	if err != nil {
		return nil, fmt.Errorf("mmap of %d bytes (address space limit? see ulimit -v): %w", size, err)
	}
	if err := notInherited(mem); err != nil {
		return nil, errors.Join(err, mem.Unmap())
	}
	return mem, nil
}

// inode tells one file from another.
type inode struct{ device, number uint64 }

func inodeOf(fd int) (inode, error) {
	var st unix.Stat_t
	err := unix.Fstat(fd, &st)
	return inode{st.Dev, st.Ino}, err
}

// useFile calls f with the arena's descriptor after it has passed checkFile. [Arena.Close]
// does not close the descriptor before f has returned.
//
// Errors: [ErrClosed]; those of f.
func (a *Arena) useFile(f func(fd int) error) error {
	return a.holdFile(func(fd int) error {
		if err := a.checkFile(fd); err != nil {
			return err
		}
		return f(fd)
	})
}

// holdFile is useFile for an f that calls checkFile itself.
func (a *Arena) holdFile(f func(fd int) error) error {
	var err error
	conn, closed := a.file.SyscallConn()
	if closed == nil {
		closed = conn.Control(func(fd uintptr) { err = f(int(fd)) })
	}
	if closed != nil {
		return fmt.Errorf("shm: the arena is closed: %w", ErrClosed)
	}
	return err
}

// checkFile makes sure that the arena's descriptor is still that of the arena. A
// program that closes descriptors which are not its own may have closed it. Its
// number may then name another file, which must not be written, and whose locks mean
// nothing.
//
// Errors: [ErrClosed].
func (a *Arena) checkFile(fd int) error {
	if node, err := inodeOf(fd); err != nil || node != a.node {
		return fmt.Errorf("shm: descriptor %d is not the arena: this program closed it, or gave its number to another file: %w; close only descriptors that the program has opened itself",
			fd, ErrClosed)
	}
	return nil
}

// sealedSize refuses files whose size a peer could change under our mapping.
func sealedSize(file *os.File) (uint64, error) {
	st, err := file.Stat()
	if err != nil {
		return 0, err
	}
	if !st.Mode().IsRegular() || st.Size() < headerSize {
		return 0, fmt.Errorf("%w: mode %v, %d bytes", ErrNotArena, st.Mode(), st.Size())
	}
	seals, err := unix.FcntlInt(file.Fd(), unix.F_GET_SEALS, 0)
	if err != nil {
		return 0, fmt.Errorf("%w: the file has no seals (%v)", ErrNotArena, err)
	}
	if seals&unix.F_SEAL_SHRINK == 0 {
		return 0, fmt.Errorf("%w (seals %#x)", ErrUnsealed, seals)
	}
	return uint64(st.Size()), nil
}

// readHeader tells "not yet" from "never" and "damaged" from "another version".
func readHeader(ctx context.Context, h *header, fileSize uint64) (c constants, geo geometry, err error) {
	version := h.version.Load() // ORDER arena-ready: pairs with the store in create
	for version == 0 {
		if magic := h.magic; magic != 0 && magic != Magic {
			return c, geo, fmt.Errorf("%w: magic %#x", ErrNotArena, magic)
		}
		select {
		case <-ctx.Done():
			return c, geo, fmt.Errorf("%w: %w", ErrNotReady, ctx.Err())
		case <-time.After(time.Millisecond):
		}
		version = h.version.Load()
	}
	c = h.constants()
	if c.magic != Magic {
		return c, geo, fmt.Errorf("%w: magic %#x, want %#x", ErrNotArena, c.magic, Magic)
	}
	if version != Version {
		return c, geo, otherVersion("the arena was made by", h.build[:], fmt.Sprintf("the arena's layout is of version %d, this program's of %d", version, Version))
	}
	if hash := LayoutHash(); c.layout != hash {
		return c, geo, otherVersion("the arena was made by", h.build[:], fmt.Sprintf("the arena's layout has hash %#x, this program's %#x", c.layout, hash))
	}
	if want := c.sum(); c.checksum != want {
		return c, geo, fmt.Errorf("header checksum %#x, computed %#x: %w", c.checksum, want, ErrDamaged)
	}
	if c.size > fileSize {
		return c, geo, fmt.Errorf("%w: the header says %d bytes, the file has %d", ErrTruncated, c.size, fileSize)
	}
	if c.size != fileSize {
		return c, geo, fmt.Errorf("the header says %d bytes, the file has %d: %w", c.size, fileSize, ErrDamaged)
	}
	if c.ranks > MaxRanks {
		return c, geo, fmt.Errorf("the header claims %d ranks: %w", c.ranks, ErrDamaged)
	}
	if geo, err = geometryFor(c.size); err != nil {
		return c, geo, fmt.Errorf("%w: %w", err, ErrDamaged)
	}
	return c, geo, nil
}

// File returns the descriptor to hand to other processes. It stays owned by
// the arena.
func (a *Arena) File() *os.File { return a.file }

// Ranks returns the size of the rank group, 0 if the arena has none.
func (a *Arena) Ranks() int { return a.ranks }

// Size returns the bytes of address space that the arena takes.
func (a *Arena) Size() uint64 { return a.geo.size }

// ID returns a random identity that tells two arenas apart.
func (a *Arena) ID() [2]uint64 { return a.id }

// Secret seeds what peers of other arenas must not guess.
func (a *Arena) Secret() [2]uint64 { return a.secret }

// Close gives the arena's memory up. Every [Member] joined through it must have
// left: otherwise Close returns an error and does nothing.
//
// No slice or structure taken from the arena may be used afterwards. One that is
// used all the same shows zeros, and what is stored there is lost: calls that race
// with Close do no harm, and no other mapping takes these addresses as long as
// anything refers to the arena.
func (a *Arena) Close() error {
	if err := a.closable(); err != nil {
		return fmt.Errorf("shm: close arena: %w", err)
	}
	a.closed.Store(true)
	return errors.Join(a.vacate(), a.file.Close())
}

func (a *Arena) closable() error {
	if n := a.refs.Load(); n != 0 {
		return fmt.Errorf("%d members joined through it have not left", n)
	}
	if a.closed.Load() {
		return ErrClosed
	}
	return nil
}
