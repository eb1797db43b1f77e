//go:build !amd64

package shm

import "sync/atomic"

// Slots are not claimed here.
const (
	claims        = false
	claimsByStore = false
	claimedAtOnce = uint64(1)
)

// claim does nothing: the line comes when it is stored.
func claim(*atomic.Uint64) {}

// fetch does nothing: the line comes when it is loaded.
func fetch(*atomic.Uint64) {}
