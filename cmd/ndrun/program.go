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

// program is a program of the command line.
type program struct {
	path      string // absolute: of the executable, of the package's directory or of the source file
	name      string // argv[0] of the ranks
	isPackage bool
	language  *language // of a source file that ndrun compiles; nil for a package or an executable
	file      *os.File  // executable that ndrun has built; nil before the build and for an executable
}

// isBuilt reports whether ndrun builds the program.
func (p *program) isBuilt() bool { return p.isPackage || p.language != nil }

// find looks up a program as a shell does: by path if the name has a slash, else in PATH. A
// directory, with or without a slash, stands for the Go package in it, and so does a source file in
// C, C++ or Fortran for its program. Relative paths start at the current directory regardless of
// -wdir, so that shell completion works. kind is "program" or "wrapper", for error messages.
func find(kind, name string) (program, error) {
	info, err := os.Stat(name)
	isFile := err == nil && info.Mode().IsRegular()
	if l := languages[filepath.Ext(name)]; l != nil && isFile {
		path, err := filepath.Abs(name)
		base := filepath.Base(name)
		return program{path: path, name: strings.TrimSuffix(base, filepath.Ext(base)), language: l}, err
	}
	if strings.HasSuffix(name, ".go") && isFile {
		dir := filepath.Dir(name)
		if dir != "." && !filepath.IsAbs(dir) {
			dir = "./" + dir
		}
		return program{}, fmt.Errorf("find %s %s: is a Go source file: give the directory of its package, %s, or an executable", kind, name, dir)
	}
	if !strings.Contains(name, "/") {
		path, err := exec.LookPath(name)
		if err == nil {
			path, err = filepath.Abs(path)
			return program{path: path, name: name}, err
		}
		if info, statErr := os.Stat(name); statErr != nil && languages[filepath.Ext(name)] != nil {
			return program{}, fmt.Errorf("find %s %s: %w: check the path", kind, name, reason(statErr))
		} else if statErr != nil {
			return program{}, fmt.Errorf("find %s %s: %w: give its path or add its directory to PATH", kind, name, reason(err))
		} else if !info.IsDir() {
			return program{}, fmt.Errorf("find %s %s: %w: for the file in this directory, use ./%s", kind, name, reason(err), name)
		}
	}
	path, err := filepath.Abs(name)
	if err != nil {
		return program{}, fmt.Errorf("find %s %s: %w", kind, name, err)
	}
	info, err = os.Stat(path)
	if err != nil {
		return program{}, fmt.Errorf("find %s %s: %w: check the path", kind, name, reason(err))
	}
	if info.IsDir() {
		sources, _ := filepath.Glob(filepath.Join(path, "*.go"))
		if len(sources) == 0 {
			return program{}, fmt.Errorf("find %s %s: is a directory without Go files: give an executable or the directory of a Go program", kind, name)
		}
		return program{path: path, name: filepath.Base(path), isPackage: true}, nil
	}
	if err := unix.Access(path, unix.X_OK); err != nil {
		return program{}, fmt.Errorf("run %s %s: not executable (%w): run chmod +x, or put its interpreter before it", kind, name, err)
	}
	return program{path: path, name: name}, nil
}

// reason returns the cause of an error without the path that the message already has.
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
