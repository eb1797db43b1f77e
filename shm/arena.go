package shm

// TWIN c/src/shm/arena.c.

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

	"github.com/softnd/softnd/internal/goruntime"
	"github.com/softnd/softnd/internal/layout"
	"github.com/softnd/softnd/internal/linux"
	"github.com/softnd/softnd/internal/testkit/failpoint"
)

// Config configures [Create]. The zero value means an arena without ranks, of the default size.
type Config struct {
	Ranks int    // number of ranks in the group, 0 to MaxRanks
	Size  uint64 // bytes of address space; 0: the size of the machine's memory, within the process's limits

	// FaultRules is the number of fault rules of the job, 0 to 128. The creator writes them to
	// Info.FaultRules before it starts other processes.
	FaultRules int

	// Host is the number of the arena's host in a job over several hosts, 0 to 178. It is part of the addresses of
	// all members. A job on one host has number 0.
	Host int
}

// Arena is a sparse memory file that several processes map. It has no name in any file system, so
// nothing is left of it after the last process.
//
// Its methods are safe for concurrent use, except for [Arena.Close].
type Arena struct {
	file *os.File // with an open file description of its own
	mem  mmap.MMap
	geo  geometry
	id   [2]uint64
	node inode // of the file

	reaping sync.Mutex // held during reap

	slotsSeen atomic.Uint64 // highest header.slots so far: a peer that lowers that hides no member that this process has seen

	ranks   int
	rules   int // number of fault rules
	host    int // number of this host in the job
	secret  [2]uint64
	refs    atomic.Int32 // number of members joined through this mapping
	closed  atomic.Bool  // mem holds private pages only
	private *os.File     // with the private pages; nil = none yet
	dumps   bool         // core dumps contain what is allocated
	fabric  *fabric      // nil = the arena has no name
}

// Create creates an arena, sealed against shrinking and growing, and maps it.
//
// Errors: [NoMemoryError] if this process's limits on address space, file size or memory do not allow
// an arena of that size.
func Create(cfg Config) (*Arena, error) {
	if cfg.Ranks < 0 || cfg.Ranks > MaxRanks {
		return nil, fmt.Errorf("shm: create arena: %d ranks: want 0 to %d", cfg.Ranks, MaxRanks)
	}
	if cfg.FaultRules < 0 || cfg.FaultRules > maxFaultRules {
		return nil, fmt.Errorf("shm: create arena: %d fault rules: want 0 to %d", cfg.FaultRules, maxFaultRules)
	}
	if cfg.Host < 0 || cfg.Host > maxHost {
		return nil, fmt.Errorf("shm: create arena: host number %d: want 0 to %d", cfg.Host, maxHost)
	}
	size, err := arenaSize(cfg.Size)
	if err != nil {
		return nil, fmt.Errorf("shm: create arena: %w", err)
	}
	geo, err := geometryFor(size)
	if err != nil {
		return nil, fmt.Errorf("shm: create arena (asked %d bytes): %w", cfg.Size, err)
	}
	fd, err := makeFile("softnd-arena", unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, fmt.Errorf("shm: create arena: memfd_create: %w", fileError(err))
	}
	file := os.NewFile(uintptr(fd), "softnd-arena")
	a, err := create(file, geo, cfg)
	if err != nil {
		file.Close()
		return nil, fmt.Errorf("shm: create arena of %d bytes: %w", size, err)
	}
	return a, nil
}

// makeFile makes a memory file, with flags of memfd_create beside the usual ones.
func makeFile(name string, flags int) (fd int, err error) {
	linux.ReserveStandard(func() {
		fd, err = linux.AboveStandard(unix.MemfdCreate(name, unix.MFD_CLOEXEC|unix.MFD_NOEXEC_SEAL|flags))
		if errors.Is(err, unix.EINVAL) { // MFD_NOEXEC_SEAL came with Linux 6.3
			fd, err = linux.AboveStandard(unix.MemfdCreate(name, unix.MFD_CLOEXEC|flags))
		}
	})
	return fd, err
}

func create(file *os.File, geo geometry, cfg Config) (*Arena, error) {
	fd := int(file.Fd())
	if err := unix.Ftruncate(fd, int64(geo.size)); err != nil {
		return nil, fmt.Errorf("ftruncate: %w", err)
	}
	if _, err := unix.FcntlInt(file.Fd(), unix.F_ADD_SEALS, unix.F_SEAL_SHRINK|unix.F_SEAL_GROW|unix.F_SEAL_SEAL); err != nil {
		return nil, fmt.Errorf("seal the memory file: %w", err)
	}
	node, err := inodeOf(fd)
	if err != nil {
		return nil, fmt.Errorf("fstat: %w", err)
	}
	a := &Arena{file: file, geo: geo, ranks: cfg.Ranks, rules: cfg.FaultRules, host: cfg.Host, node: node}
	// The small tables are reserved as a whole. Status pages and window blocks are reserved when a
	// member claims them.
	for _, t := range a.tables() {
		if err := a.reserve(t.off, t.n); err != nil {
			return nil, err
		}
	}
	mem, err := mapWhole(file, geo.size)
	if err != nil {
		return nil, err
	}
	a.mem = mem
	if a.dumps, err = dumpsArena(); err != nil {
		return nil, errors.Join(err, mem.Unmap())
	}
	a.dumpTables()

	h := a.header()
	var random [32]byte
	rand.Read(random[:])
	for i := range 2 {
		a.secret[i] = binary.NativeEndian.Uint64(random[8*i:])
		a.id[i] = binary.NativeEndian.Uint64(random[16+8*i:])
	}
	h.magic, h.ranks, h.layout, h.size = arenaMagic, uint32(cfg.Ranks), layout.Hash(), geo.size
	h.rules, h.host = uint32(cfg.FaultRules), uint32(cfg.Host)
	h.secret, h.id = a.secret, a.id
	h.checksum = h.constants().sum()
	copy(h.build[:], goruntime.BuildName())
	failpoint.Reach(failpoint.HeaderFilled)
	h.version.Store(layout.Version) // ORDER arena-ready: pairs with the load in readHeader
	failpoint.Reach(failpoint.ArenaReady)
	return a, nil
}

// span is a part of the arena.
type span struct {
	off Offset
	n   uint64
}

// tables returns the parts that the creator reserves. Members reserve status pages, blocks of entries and the heap.
func (a *Arena) tables() []span {
	g := a.geo
	return []span{
		{0, headerSize},
		{g.memberTable, maxMembers * memberStride},
		{g.rankRecords, uint64(a.ranks) * rankRecordStride},
		{g.windowOwners, windowBlocks * 4},
		{g.faultRules, uint64(a.rules) * faultRuleSize},
		{g.numberOwners, numberBlocks * 4},
		{g.chunkOwners, g.chunks * 4},
	}
}

// constants is a private copy of the header fields that the creator wrote, so that the checked values
// are those that are used.
type constants struct {
	magic, layout, size, checksum uint64
	ranks, rules, host            uint32
	secret, id                    [2]uint64
}

func (h *header) constants() constants {
	return constants{h.magic, h.layout, h.size, h.checksum, h.ranks, h.rules, h.host, h.secret, h.id}
}

func (c constants) sum() uint64 {
	words := [...]uint64{c.magic, uint64(c.ranks) | uint64(c.rules)<<32, c.layout, c.size, c.secret[0], c.secret[1], c.id[0], c.id[1], uint64(c.host)}
	var b []byte
	for _, w := range words {
		b = binary.LittleEndian.AppendUint64(b, w)
	}
	return xxhash.Sum64(b)
}

// Attach maps the arena in file. It re-opens the file, because locks belong to the open file
// description, and processes share an inherited one. The caller keeps file and may close it.
//
// If the creator of the arena has not finished, Attach blocks until it has, or until ctx ends.
//
// Errors: [ErrVersion], [ErrDamaged]. Attach also fails if file is no arena, is truncated, is not
// sealed against shrinking, or is not ready when ctx ends. Each error says what Attach found.
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
	var own *os.File
	var err error
	linux.ReserveStandard(func() { own, err = os.OpenFile(fmt.Sprintf("/proc/self/fd/%d", fd), os.O_RDWR, 0) })
	if err != nil {
		return nil, fmt.Errorf("re-open descriptor %d (softnd needs a mounted /proc): %w", fd, fileError(err))
	}
	return own, nil
}

func attach(ctx context.Context, file *os.File, size uint64) (*Arena, error) {
	first, err := mapFile(file, headerSize)
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
	dumps, err := dumpsArena()
	if err != nil {
		return nil, errors.Join(err, mem.Unmap())
	}
	a := &Arena{file: file, mem: mem, geo: geo, node: node, dumps: dumps, ranks: int(c.ranks), rules: int(c.rules), host: int(c.host), id: c.id, secret: c.secret}
	a.dumpTables()
	return a, nil
}

// mapWhole maps the whole file. Neither forked children nor core dumps contain the mapping.
func mapWhole(file *os.File, size uint64) (mmap.MMap, error) {
	mem, err := mapFile(file, size)
	if err != nil {
		return nil, mmapError(size, err)
	}
	if err := ownProcessOnly(mem); err != nil {
		return nil, errors.Join(err, mem.Unmap())
	}
	return mem, nil
}

// inode identifies a file.
type inode struct{ device, number uint64 }

func inodeOf(fd int) (inode, error) {
	var st unix.Stat_t
	err := unix.Fstat(fd, &st)
	return inode{st.Dev, st.Ino}, err
}

// useFile checks the arena's descriptor with checkFile and calls f with it. [Arena.Close] does not
// close the descriptor before f returns.
//
// Errors: errClosed; those of f.
func (a *Arena) useFile(f func(fd int) error) error {
	return a.holdFile(func(fd int) error {
		if err := a.checkFile(fd); err != nil {
			return err
		}
		return f(fd)
	})
}

// holdFile is useFile without checkFile; f calls checkFile itself.
func (a *Arena) holdFile(f func(fd int) error) error {
	var err error
	conn, closed := a.file.SyscallConn()
	if closed == nil {
		closed = conn.Control(func(fd uintptr) { err = f(int(fd)) })
	}
	if closed != nil {
		return fmt.Errorf("shm: use arena: %w", errClosed)
	}
	return err
}

// checkFile checks that the arena's descriptor still refers to the arena. A program that closes
// descriptors of others may have closed it. The number may then refer to another file, which softnd
// must not write, and whose locks have no meaning.
//
// Errors: errClosed.
func (a *Arena) checkFile(fd int) error {
	if node, err := inodeOf(fd); err != nil || node != a.node {
		return fmt.Errorf("shm: descriptor %d is not the arena: the program closed it, or gave its number to another file: %w: close only descriptors that the program has opened itself",
			fd, errClosed)
	}
	return nil
}

// sealedSize returns the size of file. It fails if a peer could shrink the file, because an access
// beyond its end would kill this process.
func sealedSize(file *os.File) (uint64, error) {
	st, err := file.Stat()
	if err != nil {
		return 0, err
	}
	if !st.Mode().IsRegular() || st.Size() < headerSize {
		return 0, fmt.Errorf("%w: mode %v, %d bytes", errNotArena, st.Mode(), st.Size())
	}
	seals, err := unix.FcntlInt(file.Fd(), unix.F_GET_SEALS, 0)
	if err != nil {
		return 0, fmt.Errorf("%w: the file has no seals (%v)", errNotArena, err)
	}
	if seals&unix.F_SEAL_SHRINK == 0 {
		return 0, fmt.Errorf("%w (seals %#x)", errUnsealed, seals)
	}
	return uint64(st.Size()), nil
}

// readHeader waits until the header is complete, checks it, and returns a copy and the geometry.
func readHeader(ctx context.Context, h *header, fileSize uint64) (c constants, geo geometry, err error) {
	version := h.version.Load() // ORDER arena-ready: pairs with the store in create
	for version == 0 {
		if magic := h.magic; magic != 0 && magic != arenaMagic {
			return c, geo, fmt.Errorf("%w: magic %#x", errNotArena, magic)
		}
		select {
		case <-ctx.Done():
			return c, geo, fmt.Errorf("%w: %w", errNotReady, ctx.Err())
		case <-time.After(time.Millisecond):
		}
		version = h.version.Load()
	}
	c = h.constants()
	if c.magic != arenaMagic {
		return c, geo, fmt.Errorf("%w: magic %#x, want %#x", errNotArena, c.magic, arenaMagic)
	}
	if version != layout.Version {
		return c, geo, versionError("the arena was made by", h.build[:], fmt.Sprintf("the arena's layout has version %d, this program's %d", version, layout.Version))
	}
	if hash := layout.Hash(); c.layout != hash {
		return c, geo, versionError("the arena was made by", h.build[:], fmt.Sprintf("the arena's layout has hash %#x, this program's %#x", c.layout, hash))
	}
	if want := c.sum(); c.checksum != want {
		return c, geo, fmt.Errorf("header checksum %#x, computed %#x: %w", c.checksum, want, ErrDamaged)
	}
	if c.size > fileSize {
		return c, geo, fmt.Errorf("%w: the header says %d bytes, the file has %d", errTruncated, c.size, fileSize)
	}
	if c.size != fileSize {
		return c, geo, fmt.Errorf("the header says %d bytes, the file has %d: %w", c.size, fileSize, ErrDamaged)
	}
	if c.ranks > MaxRanks {
		return c, geo, fmt.Errorf("the header claims %d ranks: %w", c.ranks, ErrDamaged)
	}
	if c.rules > maxFaultRules {
		return c, geo, fmt.Errorf("the header claims %d fault rules: %w", c.rules, ErrDamaged)
	}
	if c.host > maxHost {
		return c, geo, fmt.Errorf("the header claims host number %d: %w", c.host, ErrDamaged)
	}
	if geo, err = geometryFor(c.size); err != nil {
		return c, geo, fmt.Errorf("the header says %d bytes: %w: %w", c.size, err, ErrDamaged)
	}
	return c, geo, nil
}

// File returns the descriptor, for other processes. The arena keeps and closes it.
func (a *Arena) File() *os.File { return a.file }

// Ranks returns the number of ranks in the group, 0 if the arena has none.
func (a *Arena) Ranks() int { return a.ranks }

// Info describes an arena. It does not change.
type Info struct {
	ID     [2]uint64 // random identity of the arena
	Secret [2]uint64 // random number that only processes of the arena know; the seed of tokens' tags
	Size   uint64    // bytes of address space

	// WindowTable is the offset of the window table: [WindowEntries] entries of [WindowEntrySize] bytes. Package window
	// defines the entries. Package shm only assigns them to members, in blocks of [WindowBlockEntries].
	WindowTable Offset

	// StatusPages is the offset of the status pages: one of [StatusPageSize] bytes for each slot of a member. Package
	// internal/statuspage defines them. They are reserved when a member joins, and hold what its predecessor stored.
	StatusPages Offset

	// FaultRules is the offset of the fault rules, and FaultRuleCount their number, 0 if the job has no fault plan.
	// Package internal/faultplan defines them.
	FaultRules     Offset
	FaultRuleCount int

	// HeapStart is the offset of the heap, which extends to the end of the arena.
	HeapStart Offset
}

// Info returns the identity and the geometry of the arena.
func (a *Arena) Info() Info {
	return Info{ID: a.id, Secret: a.secret, Size: a.geo.size, WindowTable: a.geo.windowTable, StatusPages: a.geo.statusPages, FaultRules: a.geo.faultRules, FaultRuleCount: a.rules, HeapStart: a.geo.heap}
}

// Close closes the arena and releases its memory. Every [Member] that joined through it must have
// left; otherwise Close returns an error and does nothing.
//
// No slice or structure of the arena may be used afterwards. A call that races with Close does no
// harm: it reads zeros, or stores into pages that are discarded. No other mapping takes these
// addresses while anything refers to the arena.
func (a *Arena) Close() (err error) {
	if n := a.refs.Load(); n != 0 {
		return fmt.Errorf("shm: close arena: %d of its members have not left: call Leave first", n)
	}
	if a.closed.Load() {
		return fmt.Errorf("shm: close arena: %w", errClosed)
	}
	if a.fabric != nil {
		err = a.fabric.close()
	}
	a.closed.Store(true)
	return errors.Join(err, a.replaceMapping(), a.file.Close())
}
