//go:build !amd64 || race

package asym

import "sync/atomic"

// Register does nothing: here no fence needs the kernel.
func Register() {}

// Light is the frequent side's fence, between its store and its load. Here it is a full fence.
func Light() { fenceWord.Add(1) }

var fenceWord atomic.Uint32

// Heavy is the rare side's fence, between its store and its load. Here Light is enough for both.
func Heavy() {}

// HasHeavyGlobal reports whether [HeavyGlobal] works in this process, and reaches this process when another calls it.
func HasHeavyGlobal() bool { return false }

// HeavyGlobal is Heavy for all processes in which HasHeavyGlobal is true. It works only if that is true in this process.
func HeavyGlobal() {}
