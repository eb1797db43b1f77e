package linux

import (
	"fmt"
	"syscall"

	"golang.org/x/sys/unix"
)

// PeerUser returns the effective user of the process at the other end of a Unix socket: of the process that
// connected, or of the process that first listened. It fails if c is closed or no Unix socket. Safe
// for concurrent use.
func PeerUser(c syscall.Conn) (uint32, error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return 0, err
	}
	var cred *unix.Ucred
	if ctlErr := raw.Control(func(fd uintptr) {
		cred, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	}); ctlErr != nil {
		return 0, ctlErr
	}
	if err != nil {
		return 0, fmt.Errorf("SO_PEERCRED: %w", err)
	}
	return cred.Uid, nil
}
