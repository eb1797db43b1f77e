// Package layout identifies the layout of an arena. LAYOUT.txt describes everything in an arena, with
// every offset. Several packages define its structures; their tests compare them with the text, by
// means of package layouttest.
package layout

import (
	_ "embed"
	"fmt"

	"github.com/cespare/xxhash/v2"
)

// Version is the version of the layout. The creator of an arena stores it last.
const Version uint32 = 2

// Text is LAYOUT.txt.
//
//go:embed LAYOUT.txt
var Text string

// Hash returns the hash of [Text], which the header of an arena holds. Two processes compare it
// before they share an arena.
func Hash() uint64 { return xxhash.Sum64String(Text) }

// Name returns version and hash as text.
func Name() string { return fmt.Sprintf("%d-%016x", Version, Hash()) }
