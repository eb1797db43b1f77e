// Package peeruser tells who is at the other end of a local socket.
package peeruser

import (
	"fmt"
	"syscall"

	"golang.org/x/sys/unix"
)

// Of returns the effective user of the process at the other end of a unix
// socket: of the one that connected, or of the one that first listened. Safe for
// concurrent use. Errors: those of the system for SO_PEERCRED, and for a socket
// that is closed.
func Of(c syscall.Conn) (uint32, error) {
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
