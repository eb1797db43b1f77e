//go:build !amd64

package shm

import "sync/atomic"

// claim does nothing: the line comes when it is stored.
func claim(*atomic.Uint64) {}

// fetch does nothing: the line comes when it is loaded.
func fetch(*atomic.Uint64) {}
