package measure

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/softnd/softnd/nd"
)

// sectorBytes is the unit of st_blocks, whatever the size of a page.
const sectorBytes = 512

// arenaBytes returns the allocated bytes of the job's arena, for all owners: the arena is a sparse file, and the kernel
// counts its pages.
func arenaBytes(ctx context.Context, ad nd.Adapter) (int64, error) {
	mr, err := ad.Allocate(ctx, 1, nd.AllowLocalWrite)
	if err != nil {
		return 0, err
	}
	inode, err := mappedInode(mr.Address())
	if err := errors.Join(err, mr.Close(ctx)); err != nil {
		return 0, err
	}
	return allocated(inode)
}

// mappedInode returns the inode of the file that is mapped at an address.
func mappedInode(address uint64) (uint64, error) {
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		return 0, fmt.Errorf("measure: which file is the arena: %w", err)
	}
	for line := range strings.Lines(string(maps)) {
		fields := strings.Fields(line) // range, rights, offset, device, inode, name
		if len(fields) < 5 {
			continue
		}
		from, to, _ := strings.Cut(fields[0], "-")
		first, err1 := strconv.ParseUint(from, 16, 64)
		end, err2 := strconv.ParseUint(to, 16, 64)
		if err1 == nil && err2 == nil && first <= address && address < end {
			return strconv.ParseUint(fields[4], 10, 64)
		}
	}
	return 0, fmt.Errorf("measure: find the arena's file: no mapping contains address %#x", address)
}

// allocated returns the allocated bytes of the open file with this inode. The inodes of memory files are unique.
func allocated(inode uint64) (int64, error) {
	open, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return 0, fmt.Errorf("measure: the size of the arena: %w", err)
	}
	for _, e := range open {
		fd, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		var st unix.Stat_t
		name, _ := os.Readlink("/proc/self/fd/" + e.Name())
		if unix.Fstat(fd, &st) == nil && st.Ino == inode && strings.Contains(name, "memfd:") {
			return st.Blocks * sectorBytes, nil
		}
	}
	return 0, errors.New("measure: find the arena's size: no open descriptor refers to its file")
}
