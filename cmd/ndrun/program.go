package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// program is what the user asked to run.
type program struct {
	path      string // absolute: of the executable or of the package's directory
	name      string // argv[0] of the ranks
	isPackage bool
	file      *os.File // what the package was built into; nil before, and for an executable
}

// find looks the program up as a shell does: by path if the name has a slash, along
// PATH otherwise. A directory, with or without a slash, stands for the Go package in
// it. Relative paths count from the current directory, whatever -wdir says, so that
// the shell's completion is right.
//
// what says in errors what the name is for.
func find(what, name string) (program, error) {
	if info, err := os.Stat(name); strings.HasSuffix(name, ".go") && err == nil && info.Mode().IsRegular() {
		dir := filepath.Dir(name)
		if dir != "." && !filepath.IsAbs(dir) {
			dir = "./" + dir
		}
		return program{}, fmt.Errorf("find the %s %s: it is a Go source file; name the directory of its package, %s, or an executable", what, name, dir)
	}
	if !strings.Contains(name, "/") {
		path, err := exec.LookPath(name)
		if err == nil {
			path, err = filepath.Abs(path)
			return program{path: path, name: name}, err
		}
		if info, statErr := os.Stat(name); statErr != nil {
			return program{}, fmt.Errorf("find the %s %s: %w; name it by its path, or add its directory to PATH", what, name, reason(err))
		} else if !info.IsDir() {
			return program{}, fmt.Errorf("find the %s %s: %w; for the file in this directory, say ./%s", what, name, reason(err), name)
		}
	}
	path, err := filepath.Abs(name)
	if err != nil {
		return program{}, fmt.Errorf("find the %s %s: %w", what, name, err)
	}
	info, err := os.Stat(path)
	if err != nil {
		return program{}, fmt.Errorf("find the %s %s: %w; check the path", what, name, reason(err))
	}
	if info.IsDir() {
		sources, _ := filepath.Glob(filepath.Join(path, "*.go"))
		if len(sources) == 0 {
			return program{}, fmt.Errorf("find the %s %s: it is a directory without Go files; name an executable or the directory of a Go program", what, name)
		}
		return program{path: path, name: filepath.Base(path), isPackage: true}, nil
	}
	if err := unix.Access(path, unix.X_OK); err != nil {
		return program{}, fmt.Errorf("run the %s %s: the file is not executable (%w); chmod +x it, or put its interpreter before it", what, name, err)
	}
	return program{path: path, name: name}, nil
}

// reason strips what the message around it says anyway.
func reason(err error) error {
	var lookup *exec.Error
	var path *fs.PathError
	switch {
	case errors.As(err, &lookup):
		return lookup.Err
	case errors.As(err, &path):
		return path.Err
	}
	return err
}
