package main

import (
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/softnd/softnd/internal/testkit/proctest"
)

// These stand for tools, because the tests need no C compiler. The compiler's output is a copy of echo, and it prints its arguments.
const (
	fakeCompiler = `#!/bin/sh
echo "compiler: $*" | sed "s|/proc/.*||" >&2
while [ "$1" != -o ]; do shift; done
cat "$ECHO" >"$2"
`
	fakePkgConfig = `#!/bin/sh
case $* in
"--cflags --libs softnd") echo "-I/there/include -L/there/lib -lsoftnd" ;;
"--variable=libdir softnd") echo /there/lib ;;
"--variable=fortran_module softnd") echo /there/softnd.f90 ;;
*) echo "no package like $*" >&2; exit 1 ;;
esac
`
)

// sourceFile writes a source file, and returns its path and that of a directory with tools.
func sourceFile(t *testing.T, name string, tools map[string]string) (source, bin string) {
	t.Helper()
	bin = t.TempDir()
	source = filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(source, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for tool, text := range tools {
		if err := os.WriteFile(filepath.Join(bin, tool), []byte(text), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	return source, bin
}

// withTools makes cmd find the tools in bin first, and no settings of the user.
func withTools(t *testing.T, cmd *exec.Cmd, bin string, env ...string) {
	t.Helper()
	echo, err := exec.LookPath("echo")
	if err != nil {
		t.Fatal(err)
	}
	cmd.Env = append(cmd.Env, "ECHO="+echo, "PATH="+bin+":"+os.Getenv("PATH"), "PKG_CONFIG=", "CC=", "CXX=", "FC=", "CFLAGS=", "CXXFLAGS=", "FFLAGS=")
	cmd.Env = append(cmd.Env, env...)
}

func TestSourceFileIsCompiledAndRun(t *testing.T) {
	const library = "-I/there/include -L/there/lib -lsoftnd -Wl,-rpath,/there/lib"
	for _, tc := range []struct{ name, tool, variable, before string }{
		{"hello.c", "cc", "", "-O2 SOURCE"},
		{"hello.cpp", "c++", "", "-O2 -std=c++17 SOURCE"},
		{"hello.cc", "mine", "CXX=mine -pipe", "-pipe -O2 -std=c++17 SOURCE"},
		{"hello.c", "mine", "CC=mine", "-O2 SOURCE"},
		{"hello.c", "cc", "CFLAGS=-g -O0", "-g -O0 SOURCE"},
		{"hello.f90", "gfortran", "", "/there/softnd.f90 SOURCE"},
		{"hello.F90", "mine", "FC=mine", "/there/softnd.f90 SOURCE"},
	} {
		t.Run(tc.name+" "+tc.variable, func(t *testing.T) {
			source, bin := sourceFile(t, tc.name, map[string]string{tc.tool: fakeCompiler, "pkg-config": fakePkgConfig})
			cmd := ndrun(t, "-n", "2", source, "to you", ":", "-n", "1", source, "to all")
			inEmptyTemp(t, cmd)
			withTools(t, cmd, bin, tc.variable)
			status, out, errOut := proctest.Run(t, cmd)
			if status != 0 || strings.Count(out, " to you\n") != 2 || strings.Count(out, " to all\n") != 1 {
				t.Errorf("exit status %d, output %q, %s", status, out, errOut)
			}
			want := strings.ReplaceAll(tc.before, "SOURCE", source) + " " + library + " -o"
			if strings.Count(errOut, "compiler: ") != 1 || !strings.Contains(errOut, want) {
				t.Errorf("compiler's arguments %q, want %q, once", errOut, want)
			}
		})
	}
}

func TestSourceFileFails(t *testing.T) {
	tools := map[string]string{"cc": fakeCompiler, "pkg-config": fakePkgConfig}
	for _, tc := range []struct{ name, tool, text, variable, want string }{
		{"no library", "pkg-config", "#!/bin/sh\necho 'no softnd.pc' >&2; exit 1\n", "",
			"pkg-config does not find libsoftnd (exit status 1): install it and set PKG_CONFIG_PATH to the directory of softnd.pc"},
		{"compiler fails", "cc", "#!/bin/sh\necho 'hello.c: undefined' >&2; exit 2\n", "", "cc failed (exit status 2): see its output above"},
		{"no executable", "cc", "#!/bin/sh\nexit 0\n", "", "the compiler wrote no executable: check the options that it got"},
		{"no compiler", "", "", "CC=none", `exec: "none": executable file not found in $PATH: install a compiler for C, set CC, or run an executable`},
		{"no pkg-config", "", "", "PKG_CONFIG=none", `exec: "none": executable file not found in $PATH: install pkg-config, or compile the program and run the executable`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			tools := maps.Clone(tools)
			if tc.tool != "" {
				tools[tc.tool] = tc.text
			}
			source, bin := sourceFile(t, "hello.c", tools)
			cmd := ndrun(t, source)
			inEmptyTemp(t, cmd)
			withTools(t, cmd, bin, tc.variable)
			status, out, errOut := proctest.Run(t, cmd)
			if want := "ndrun: build " + source + ": " + tc.want + "\n"; status != 1 || out != "" || !strings.HasSuffix(errOut, want) {
				t.Errorf("exit status %d, %q, want %q at the end", status, errOut, want)
			}
		})
	}
	t.Run("as a wrapper", func(t *testing.T) {
		source, _ := sourceFile(t, "hello.c", nil)
		status, _, errOut := proctest.Run(t, ndrun(t, "--wrap", "all:"+source, "true"))
		if want := "ndrun: find wrapper " + source + ": is a source file: give an executable\n"; status != 2 || errOut != want {
			t.Errorf("exit status %d, %q, want %q", status, errOut, want)
		}
	})
}
