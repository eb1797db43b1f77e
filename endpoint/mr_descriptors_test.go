package endpoint

import (
	"errors"
	"fmt"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/softnd/softnd/internal/testkit/proctest"
	"github.com/softnd/softnd/nd"
	"github.com/softnd/softnd/shm"
)

var roleNoDescriptor = proctest.Role("no descriptor", func(self *proctest.Self) error {
	arena, err := shm.Create(shm.Config{Size: testArena})
	if err != nil {
		return err
	}
	defer arena.Close()
	s, err := openSide(self.Ctx, arena, sideOptions{})
	if err != nil {
		return err
	}
	defer s.leave()
	page := os.Getpagesize()
	mem, err := unix.Mmap(-1, 0, 2*page, unix.PROT_READ, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		return err
	}
	if err := unix.Mprotect(mem[:page], unix.PROT_READ|unix.PROT_WRITE); err != nil {
		return err
	}
	mem[0] = 7
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 0, Max: 1 << 10}); err != nil {
		return err
	}
	if _, err := s.adapter.Register(self.Ctx, mem, nd.AllowLocalWrite); !errors.Is(err, nd.InsufficientResources) {
		return fmt.Errorf("memory that cannot be written: %w", err)
	}
	mr, err := s.adapter.Register(self.Ctx, mem[:page], nd.AllowLocalWrite)
	if err != nil || mem[0] != 7 {
		return fmt.Errorf("byte %d: %w", mem[0], err)
	}
	return errors.Join(mr.Close(self.Ctx), unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 1 << 10, Max: 1 << 10}))
})

// A process without a free descriptor registers memory that it can access.
func TestRegisterWithoutDescriptor(t *testing.T) {
	if status, _, errs := proctest.Run(t, proctest.Command(roleNoDescriptor)); status != 0 {
		t.Error(errs)
	}
}
