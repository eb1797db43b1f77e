package shm

// TWIN c/src/shm/arena.c.

import (
	"bytes"
	"fmt"
	"strings"
	"unicode"

	"github.com/softnd/softnd/internal/goruntime"
)

// buildText makes the name of a build printable. b comes from shared memory or from a fabric
// record, so it may hold anything. The name ends at the first zero byte.
func buildText(b []byte) string {
	b, _, _ = bytes.Cut(b, []byte{0})
	if len(b) == 0 {
		return "of an unnamed build"
	}
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return '?'
	}, string(b))
}

// versionError returns the error for processes that cannot share an arena. subject names the other
// build's arena or processes with a verb, as in "the arena was made by"; why says what differs.
func versionError(subject string, otherBuild []byte, why string) error {
	return fmt.Errorf("%s softnd %s, this program contains softnd %s: %w (%s): build all programs with one release of softnd",
		subject, buildText(otherBuild), goruntime.BuildName(), ErrVersion, why)
}
