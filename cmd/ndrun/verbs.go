package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/kballard/go-shellquote"
)

// Files of the directory with the libraries for verbs programs.
const (
	verbsLibrary = "libibverbs.so.1"
	rdmaLibrary  = "librdmacm.so.1"
	sysLibrary   = "libsoftnd-sys.so" // answers for paths of the device
)

const envVerbsDir = "SOFTND_VERBS_DIR"

// verbsLibraries are the libraries by which a program that uses verbs finds softnd's device.
type verbsLibraries struct {
	dir     string   // absolute
	preload []string // absolute
}

// findVerbs returns the libraries. mode is the value of --verbs.
func findVerbs(mode string) (*verbsLibraries, error) {
	names := map[string][]string{"": {sysLibrary}, "libs": {}, "preload": {sysLibrary, rdmaLibrary, verbsLibrary}}[mode]
	if names == nil {
		return nil, errors.New("want libs or preload")
	}
	places, err := verbsPlaces()
	if err != nil {
		return nil, err
	}
	isThere := func(dir string) bool {
		return !slices.ContainsFunc(append(slices.Clone(names), verbsLibrary), func(name string) bool {
			_, err := os.Stat(filepath.Join(dir, name))
			return err != nil
		})
	}
	i := slices.IndexFunc(places, isThere)
	if i < 0 {
		needed := strings.Join(slices.Compact(append(names, verbsLibrary)), ", ")
		return nil, fmt.Errorf("no directory has %s (looked in %s): install the C library with verbs, or set %s to their directory", needed, strings.Join(places, ", "), envVerbsDir)
	}
	v := &verbsLibraries{dir: places[i]}
	if strings.ContainsAny(v.dir, " :;") {
		return nil, fmt.Errorf("directory %q: the loader takes no path with a space, colon or semicolon: move the libraries", v.dir)
	}
	for _, name := range names {
		v.preload = append(v.preload, filepath.Join(v.dir, name))
	}
	return v, nil
}

// verbsPlaces returns the directories in which the libraries may be: that of SOFTND_VERBS_DIR, or those of an
// installation that this program belongs to.
func verbsPlaces() ([]string, error) {
	if dir := os.Getenv(envVerbsDir); dir != "" {
		dir, err := filepath.Abs(dir)
		return []string{dir}, err
	}
	program, err := os.Executable()
	if err == nil {
		program, err = filepath.EvalSymlinks(program)
	}
	if err != nil {
		return nil, fmt.Errorf("find the directory of ndrun: %w: set %s", err, envVerbsDir)
	}
	return verbsPlacesNear(program), nil
}

// verbsPlacesNear returns the directories in which the libraries may be if program is ndrun.
func verbsPlacesNear(program string) []string {
	multiarch := map[string]string{"amd64": "x86_64-linux-gnu", "arm64": "aarch64-linux-gnu"}[runtime.GOARCH]
	var places []string
	for _, lib := range []string{filepath.Join("lib", multiarch), "lib", "lib64"} {
		places = append(places, filepath.Join(filepath.Dir(program), "..", lib, "softnd", "verbs"))
	}
	return places
}

// env returns the variables of the loader for a program that has the variables in given, of which the last counts.
func (v *verbsLibraries) env(given []string) []string {
	value := func(name string) (s string) {
		for _, entry := range given {
			if rest, ok := strings.CutPrefix(entry, name+"="); ok {
				s = rest
			}
		}
		return s
	}
	paths := []string{v.dir}
	if old := value("LD_LIBRARY_PATH"); old != "" {
		for dir := range strings.SplitSeq(old, ":") {
			if dir != v.dir {
				paths = append(paths, dir)
			}
		}
	}
	env := []string{"LD_LIBRARY_PATH=" + strings.Join(paths, ":")}
	preload := strings.FieldsFunc(value("LD_PRELOAD"), func(r rune) bool { return r == ' ' || r == ':' })
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

func setVerbs(c *command, mode string) (err error) {
	c.verbs, err = findVerbs(mode)
	return err
}

// printVerbsEnv prints commands for a shell.
func printVerbsEnv(_ *command, mode string) error {
	v, err := findVerbs(mode)
	if err != nil {
		return err
	}
	var b strings.Builder
	for _, entry := range v.env(os.Environ()) {
		fmt.Fprintf(&b, "export %s\n", shellquote.Join(entry))
	}
	return text(b.String())
}
