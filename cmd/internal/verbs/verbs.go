// Package verbs finds the libraries for programs that use verbs.
package verbs

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
)

// Files of the directory with the libraries for verbs programs.
const (
	Library     = "libibverbs.so.1"
	RDMALibrary = "librdmacm.so.1"
	SysLibrary  = "libsoftnd-sys.so" // answers for paths of the device
)

// EnvDir is the variable that names the only directory in which the libraries may be.
const EnvDir = "SOFTND_VERBS_DIR"

// Libraries are the libraries by which a program that uses verbs finds softnd's device.
type Libraries struct {
	Dir     string   // absolute
	preload []string // absolute
}

// Find returns the libraries. mode is the value of option --verbs of ndrun: "", "libs" or "preload".
func Find(mode string) (*Libraries, error) {
	names := map[string][]string{"": {SysLibrary}, "libs": {}, "preload": {SysLibrary, RDMALibrary, Library}}[mode]
	if names == nil {
		return nil, errors.New("want libs or preload")
	}
	places, err := allPlaces()
	if err != nil {
		return nil, err
	}
	isThere := func(dir string) bool {
		return !slices.ContainsFunc(append(slices.Clone(names), Library), func(name string) bool {
			_, err := os.Stat(filepath.Join(dir, name))
			return err != nil
		})
	}
	i := slices.IndexFunc(places, isThere)
	if i < 0 {
		needed := strings.Join(slices.Compact(append(names, Library)), ", ")
		return nil, fmt.Errorf("no directory has %s (looked in %s): install the C library with verbs, or set %s to their directory", needed, strings.Join(places, ", "), EnvDir)
	}
	v := &Libraries{Dir: places[i]}
	if strings.ContainsAny(v.Dir, " :;") {
		return nil, fmt.Errorf("directory %q: the loader takes no path with a space, colon or semicolon: move the libraries", v.Dir)
	}
	for _, name := range names {
		v.preload = append(v.preload, filepath.Join(v.Dir, name))
	}
	return v, nil
}

// allPlaces returns the directories in which the libraries may be: that of SOFTND_VERBS_DIR, or those of an
// installation that this program belongs to.
func allPlaces() ([]string, error) {
	if dir := os.Getenv(EnvDir); dir != "" {
		dir, err := filepath.Abs(dir)
		return []string{dir}, err
	}
	program, err := os.Executable()
	if err == nil {
		program, err = filepath.EvalSymlinks(program)
	}
	if err != nil {
		return nil, fmt.Errorf("find the directory of this program: %w: set %s", err, EnvDir)
	}
	return placesNear(program), nil
}

// placesNear returns the directories in which the libraries may be if program is installed with them.
func placesNear(program string) []string {
	multiarch := map[string]string{"amd64": "x86_64-linux-gnu", "arm64": "aarch64-linux-gnu"}[runtime.GOARCH]
	var places []string
	for _, lib := range []string{filepath.Join("lib", multiarch), "lib", "lib64"} {
		places = append(places, filepath.Join(filepath.Dir(program), "..", lib, "softnd", "verbs"))
	}
	return places
}

// Env returns the variables of the loader for a program that has the variables in given, of which the last counts.
func (v *Libraries) Env(given []string) []string {
	paths := []string{v.Dir}
	if old := valueOf("LD_LIBRARY_PATH", given); old != "" {
		for dir := range strings.SplitSeq(old, ":") {
			if dir != v.Dir {
				paths = append(paths, dir)
			}
		}
	}
	env := []string{"LD_LIBRARY_PATH=" + strings.Join(paths, ":")}
	preload := strings.FieldsFunc(valueOf("LD_PRELOAD", given), func(r rune) bool { return r == ' ' || r == ':' })
	for _, path := range v.preload {
		if !slices.Contains(preload, path) {
			preload = append(preload, path)
		}
	}
	if len(v.preload) > 0 {
		env = append(env, "LD_PRELOAD="+strings.Join(preload, ":"))
	}
	return env
}
