package shm

import "sync/atomic"

// claim asks for the cache line of a word that is to be stored soon, and does not
// wait for it.
//
//go:noescape
func claim(w *atomic.Uint64)

// fetch asks for the cache line of a word that is to be loaded soon, and does not wait
// for it.
//
//go:noescape
func fetch(w *atomic.Uint64)
