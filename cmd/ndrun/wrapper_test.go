package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/softnd/softnd/internal/testkit/proctest"
)

// Only the given ranks run under the wrapper, whose words are split as by a shell. The first of
// two wrappers is the outer one.
func TestWrap(t *testing.T) {
	status, out, errOut := proctest.Run(t, ndrun(t, "-n", "3",
		"--wrap", `0,2:env 'A=a "b"' C=c\ d`, "--wrap=2:env A=inner",
		"sh", "-c", `echo A $A C $C args $0 $*`, "x", "-y z"))
	if status != 0 || errOut != "" {
		t.Fatalf("exit status %d, %s", status, errOut)
	}
	for _, want := range []string{`[0] A a "b" C c d args x -y z`, `[1] A C args x -y z`, `[2] A inner C c d args x -y z`} {
		if !strings.Contains(out, want+"\n") {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
}

// A wrapper gets a path of the program that it can pass on to other processes, also for a package
// that was built in memory.
func TestWrapperGetsUsablePath(t *testing.T) {
	bin := t.TempDir()
	script := filepath.Join(bin, "program")
	if err := os.WriteFile(script, []byte("#!/bin/sh\necho program \"$@\"\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct{ name, from, program, want string }{
		{"along PATH", "/", "program", "program a b"},
		{"relative, in another directory", bin, "./program", "program a b"},
		{"package", "/", goPackage(t, heat), `0 ["/proc/`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			cmd := ndrun(t, "-wdir", "/", "--wrap", `all:sh -c '"$@"; echo it ended with $?' sh`, tc.program, "a", "b")
			cmd.Dir = tc.from
			cmd.Env = append(cmd.Env, "PATH="+os.Getenv("PATH")+":"+bin)
			inEmptyTemp(t, cmd)
			status, out, errOut := proctest.Run(t, cmd)
			if status != 0 || !strings.Contains(out, "[0] "+tc.want) || !strings.Contains(out, "[0] it ended with 0\n") {
				t.Errorf("exit status %d, %s%s want %q", status, out, errOut, tc.want)
			}
		})
	}
}

// The gdb command in the documentation keeps the exit status of a rank that exits, and prints the
// stack of one that crashes.
func TestWrapInDebuggerAsDocumented(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("gdb"); err != nil {
		t.Skip("gdb is not installed: ", err)
	}
	page, err := os.ReadFile("../../docs/ndrun.md")
	if err != nil {
		t.Fatal(err)
	}
	_, line, ok := strings.Cut(string(page), "ndrun -n 4 --wrap 2:'gdb ")
	line, _, ended := strings.Cut(line, "' ./heat\n")
	if !ok || !ended {
		t.Fatal("the line is not there")
	}
	for _, tc := range []struct {
		script string
		status int
	}{{"exit 0", 0}, {"exit 3", 3}, {"kill -SEGV $$", 255}} {
		status, out, errOut := proctest.Run(t, ndrun(t, "-n", "1", "--wrap", "0:gdb -nx "+line, "sh", "-c", tc.script))
		if status != tc.status || strings.Contains(out, "[0] #0 ") != (tc.status == 255) {
			t.Errorf("%s: exit status %d, want %d: %s%s", tc.script, status, tc.status, out, errOut)
		}
	}
}

// gdb runs a package that was built in memory and prints source lines.
func TestWrapInDebugger(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("gdb"); err != nil {
		t.Skip("gdb is not installed: ", err)
	}
	dir := goPackage(t, heat)
	cmd := ndrun(t, "-n", "2", "--wrap", "1:gdb -nx -batch -ex 'break main.main' -ex run -ex backtrace -ex kill --args", dir)
	inEmptyTemp(t, cmd)
	status, out, errOut := proctest.Run(t, cmd)
	if status != 0 || !strings.Contains(out, "[1] #0  main.main ()") || !strings.Contains(out, `[0] 0 ["heat"] 2`) {
		t.Errorf("exit status %d, %s%s", status, out, errOut)
	}
}

func TestInvalidWraps(t *testing.T) {
	dir := t.TempDir()
	const read, find, options = "ndrun: parse command line: ", "ndrun: find wrapper ", `; "ndrun -h" lists the options`
	for _, tc := range []struct{ value, want string }{
		{"gdb --args", read + `option --wrap: invalid value "gdb --args": want RANKS:COMMAND, such as 0:'gdb --args' or all:valgrind` + options},
		{"0:", read + `option --wrap: invalid value "0:": no command after the colon: want RANKS:COMMAND` + options},
		{"x:gdb", read + `option --wrap: invalid value "x:gdb": "x" is not a number or range: want a list such as 0-3,5` + options},
		{"1-0:gdb", read + `option --wrap: invalid value "1-0:gdb": range 1-0 is descending: want 0-1` + options},
		{"0:gdb 'x", read + `option --wrap: invalid value "0:gdb 'x": split "gdb 'x" into words: Unterminated single-quoted string` + options},
		{"0-4:env", read + `option --wrap 0-4:env: rank 2 does not exist: want some of 0-1` + options},
		{"0:no-such-wrapper", find + "no-such-wrapper: executable file not found in $PATH: give its path or add its directory to PATH"},
		{"0:./none -x", find + "./none: no such file or directory: check the path"},
		{"0:" + dir, find + dir + ": is a directory without Go files: give an executable or the directory of a Go program"},
	} {
		t.Run(tc.value, func(t *testing.T) {
			status, out, errOut := proctest.Run(t, ndrun(t, "-n", "2", "--wrap", "all:env", "--wrap", tc.value, "true"))
			if status != 2 || out != "" || errOut != tc.want+"\n" {
				t.Errorf("exit status %d, output %q, message\n%s want\n%s", status, out, errOut, tc.want)
			}
		})
	}
}
