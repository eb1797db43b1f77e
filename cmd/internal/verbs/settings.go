package verbs

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// settings are the variables that the libraries read, and what each must be unless it is empty.
//
// TWIN c/verbs/device.c, c/verbs/fabric.c.
var settings = []struct {
	name, want string
	isValid    func(value string) bool
}{
	{"SOFTND_VERBS_LINK", "infiniband or roce", oneOf("infiniband", "roce")},
	{"SOFTND_VERBS_DEVICE", "1 to 63 bytes without /, and no . first", isDeviceName},
	{"SOFTND_VERBS_ADOPT", "off, auto or always", oneOf("off", "auto", "always")},
	{"SOFTND_VERBS_CHECK_PAGES", "0 or 1", oneOf("0", "1")},
	{"SOFTND_VERBS_SPIN", "a duration from 0 to 1s, such as 50us", isSpin},
}

func oneOf(values ...string) func(string) bool {
	return func(value string) bool { return slices.Contains(values, value) }
}

func isDeviceName(value string) bool {
	return len(value) < 64 && value[0] != '.' && !strings.Contains(value, "/")
}

func isSpin(value string) bool {
	d, err := time.ParseDuration(value)
	return err == nil && d >= 0 && d <= time.Second
}

// Check returns an error if a variable in env has a value that the libraries refuse. The last entry of a name counts.
func Check(env []string) error {
	for _, s := range settings {
		if value := valueOf(s.name, env); value != "" && !s.isValid(value) {
			return fmt.Errorf("%s: %q: want %s", s.name, value, s.want)
		}
	}
	return nil
}

// valueOf returns the value of a variable, "" if it is not set.
func valueOf(name string, env []string) (value string) {
	for _, entry := range env {
		if rest, ok := strings.CutPrefix(entry, name+"="); ok {
			value = rest
		}
	}
	return value
}
