package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
)

// language is a language other than Go, whose source files ndrun compiles with libsoftnd. Compiler and options are those
// of the variables that make uses.
type language struct {
	name            string
	compilerVar     string
	compiler        string // if compilerVar is not set
	optionsVar      string
	options         string // if optionsVar is not set
	compilesBinding bool   // the interface of the library is compiled together with the program
}

var (
	langC       = &language{name: "C", compilerVar: "CC", compiler: "cc", optionsVar: "CFLAGS", options: "-O2"}
	langCPP     = &language{name: "C++", compilerVar: "CXX", compiler: "c++", optionsVar: "CXXFLAGS", options: "-O2 -std=c++17"}
	langFortran = &language{name: "Fortran", compilerVar: "FC", compiler: "gfortran", optionsVar: "FFLAGS", options: "-O2", compilesBinding: true}

	// languages is by the suffix of source files.
	languages = map[string]*language{".c": langC, ".cc": langCPP, ".cpp": langCPP, ".cxx": langCPP, ".f90": langFortran, ".F90": langFortran}
)

// build compiles a source file into the file program.
func (l *language) build(source, program string, stderr io.Writer, signals <-chan os.Signal) error {
	flags, err := pkgConfig(stderr, "--cflags", "--libs", "softnd")
	if err != nil {
		return err
	}
	libdir, err := pkgConfig(stderr, "--variable=libdir", "softnd")
	if err != nil {
		return err
	}
	compiler := words(l.compilerVar, l.compiler)
	args := append(compiler[1:], words(l.optionsVar, l.options)...)
	if l.compilesBinding {
		module, err := pkgConfig(stderr, "--variable=fortran_module", "softnd")
		if err != nil {
			return err
		}
		modules, err := os.MkdirTemp("", "ndrun-modules") // for the compiled module
		if err != nil {
			return err
		}
		defer os.RemoveAll(modules)
		args = append(args, "-J", modules)
		args = append(args, module...)
	}
	args = append(args, source)
	args = append(args, flags...)
	for _, dir := range libdir {
		args = append(args, "-Wl,-rpath,"+dir)
	}
	args = append(args, "-o", program)
	return runCompiler(exec.Command(compiler[0], args...), compiler[0],
		fmt.Sprintf("install a compiler for %s, set %s, or run an executable", l.name, l.compilerVar), stderr, signals)
}

// words returns the words of a variable, or of a default if the variable is not set.
func words(variable, otherwise string) []string {
	if w := strings.Fields(os.Getenv(variable)); len(w) > 0 {
		return w
	}
	return strings.Fields(otherwise)
}

// pkgConfig returns the words that pkg-config prints. Its errors go to stderr.
func pkgConfig(stderr io.Writer, args ...string) ([]string, error) {
	command := words("PKG_CONFIG", "pkg-config")
	cmd := exec.Command(command[0], append(command[1:], args...)...)
	cmd.Stderr = stderr
	out, err := cmd.Output()
	switch {
	case errors.Is(err, exec.ErrNotFound):
		return nil, fmt.Errorf("%w: install pkg-config, or compile the program and run the executable", err)
	case err != nil:
		return nil, fmt.Errorf("pkg-config does not find libsoftnd (%w): install it and set PKG_CONFIG_PATH to the directory of softnd.pc", err)
	}
	return strings.Fields(string(out)), nil
}
