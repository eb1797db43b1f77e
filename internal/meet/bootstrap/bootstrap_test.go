package bootstrap

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/softnd/softnd/shm"
)

// A launcher of another release says so, and that is the error of an arena of another release.
func TestRefusalByVersion(t *testing.T) {
	for text, want := range map[string]bool{"wrong secret": false, "x: arena of another version (control channel versions 1 and 2 differ): y": true} {
		if err := fmt.Errorf("%s: %w", EnvControl, refusal{errors.New(text)}); errors.Is(err, shm.ErrVersion) != want || !strings.HasSuffix(err.Error(), text) {
			t.Errorf("%q is the error of a version: %t", err, !want)
		}
	}
}
