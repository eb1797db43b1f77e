package shm

import (
	"bytes"
	"fmt"
	"strings"
	"unicode"

	"github.com/softnd/softnd/internal/build"
)

// buildText reads the name of a build out of shared memory or a record, where it may be
// anything. It ends at the first zero byte.
func buildText(b []byte) string {
	b, _, _ = bytes.Cut(b, []byte{0})
	if len(b) == 0 {
		return "that does not say its build"
	}
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return '?'
	}, string(b))
}

// otherVersion is the error of processes that cannot share an arena. theirs is whom the
// other build belongs to, and why says what differs.
func otherVersion(theirs string, otherBuild []byte, why string) error {
	return fmt.Errorf("%s softnd %s, this program contains softnd %s: %w (%s); build all programs with one release of softnd",
		theirs, buildText(otherBuild), build.Name(), ErrVersion, why)
}
