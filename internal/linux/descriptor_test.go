package linux

import (
	"testing"

	"golang.org/x/sys/unix"
)

// closeStandard closes the standard input until the test ends.
func closeStandard(t *testing.T) {
	saved, err := DuplicateAboveStandard(unix.Stdin)
	if err != nil {
		t.Fatal(err)
	}
	unix.Close(unix.Stdin)
	t.Cleanup(func() {
		if err := unix.Dup2(saved, unix.Stdin); err != nil {
			t.Fatal(err)
		}
		unix.Close(saved)
	})
}

func wantClosed(t *testing.T, fd int) {
	t.Helper()
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err != unix.EBADF {
		t.Errorf("descriptor %d: %v, want %v", fd, err, unix.EBADF)
	}
}

func TestAbove(t *testing.T) {
	closeStandard(t)
	fd, err := AboveStandard(unix.Dup(unix.Stdout))
	if err != nil || fd <= stderr {
		t.Fatalf("descriptor %d, %v", fd, err)
	}
	defer unix.Close(fd)
	wantClosed(t, unix.Stdin)
	if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err != nil || flags != unix.FD_CLOEXEC {
		t.Errorf("flags %#x, %v: programs that this process starts would inherit it", flags, err)
	}
	if _, err := AboveStandard(unix.Dup(-1)); err != unix.EBADF {
		t.Errorf("%v, want %v", err, unix.EBADF)
	}
}

func TestReserve(t *testing.T) {
	closeStandard(t)
	ReserveStandard(func() {
		if _, err := unix.Write(unix.Stdin, []byte("x")); err != unix.EBADF {
			t.Errorf("write: %v, want %v", err, unix.EBADF)
		}
		fd, err := unix.Dup(unix.Stdout)
		if err != nil || fd <= stderr {
			t.Errorf("descriptor %d, %v", fd, err)
		}
		unix.Close(fd)
	})
	wantClosed(t, unix.Stdin)
}
