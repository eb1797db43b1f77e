//go:build !amd64

package shm

import "sync/atomic"

// claims tells whether claim is of any use here.
const claims = false

// claim does nothing: the line comes when it is stored.
func claim(*atomic.Uint64) {}

// fetch does nothing: the line comes when it is loaded.
func fetch(*atomic.Uint64) {}
