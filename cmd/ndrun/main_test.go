package main

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/softnd/softnd/internal/testkit/proctest"
	"github.com/softnd/softnd/launcher"
)

func TestMain(m *testing.M) {
	launcher.Serve()
	proctest.Main()
	proctest.SideBySide(8)
	proctest.IgnoreNoSignal()
	code := m.Run()
	if builtDir != "" {
		os.RemoveAll(builtDir)
	}
	os.Exit(code)
}

var roleNdrun = proctest.Role("ndrun", func(self *proctest.Self) error {
	os.Setenv(proctest.RoleEnv, "rank") // for the ranks
	os.Exit(run(self.Args, os.Stdin, os.Stdout, os.Stderr))
	return nil
})

func init() {
	for name, play := range map[string]func() error{"rank": rank, "pmi": runPMI, "job": runJob, "cause": runCause, "hang": runHang, "wrapper": runWrapper, "faulty": runFaulty, "mistaken": runMistaken} {
		proctest.Role(name, func(*proctest.Self) error { return play() })
	}
}

// plays are further roles of ranks.
var plays = map[string]func(args []string) error{
	"lines":   runLines,
	"hash":    runHash,
	"working": runWorking,
	"shared":  runShared,
}

// rank prints its job's variables and ends as its first argument says.
func rank() error {
	if len(os.Args) > 1 {
		if play, ok := plays[os.Args[1]]; ok {
			return play(os.Args[2:])
		}
	}
	fmt.Println("rank", os.Getenv("SOFTND_RANK"), "of", os.Getenv("SOFTND_SIZE"))
	dir, err := os.Getwd()
	if err != nil {
		return err
	}
	fmt.Println("dir", dir, "PWD", os.Getenv("PWD"), "X", os.Getenv("X"))
	arena, err := os.Readlink("/proc/self/fd/" + os.Getenv("SOFTND_ARENA_FD"))
	if err != nil {
		return err
	}
	fmt.Println("arena", arena)
	fmt.Printf("args %q\n", os.Args[1:])
	if len(os.Args) > 1 && os.Args[1] == "fail" && os.Getenv("SOFTND_RANK") == "1" {
		os.Exit(42)
	}
	return nil
}

// ndrun returns a command that runs ndrun.
func ndrun(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), testBinary(t), args...)
	cmd.Env = append(os.Environ(), proctest.RoleEnv+"="+roleNdrun)
	cmd.WaitDelay = 2 * proctest.Timeout
	return cmd
}

// startReadingErrors starts cmd and returns the lines of its standard error.
func startReadingErrors(t *testing.T, cmd *exec.Cmd) (*proctest.Process, *bufio.Scanner) {
	t.Helper()
	errOut, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	return proctest.Start(t, cmd), bufio.NewScanner(errOut)
}

func testBinary(t testing.TB) string {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return exe
}

func TestRanksGetJobVariables(t *testing.T) {
	dir := t.TempDir()
	status, out, errOut := proctest.Run(t, ndrun(t, "-np", "2", "--wdir", dir, "-env", "X=a", "-env=X=b=c", testBinary(t), "-n", "7", "--", "-wdir"))
	if status != 0 || errOut != "" {
		t.Fatalf("exit status %d, %s", status, errOut)
	}
	for r := range 2 {
		for _, want := range []string{
			fmt.Sprintf("rank %d of 2", r),
			fmt.Sprintf("dir %s PWD %s X b=c", dir, dir),
			"arena /memfd:",
			`args ["-n" "7" "--" "-wdir"]`,
		} {
			if !strings.Contains(out, fmt.Sprintf("[%d] %s", r, want)) {
				t.Errorf("rank %d does not say %q:\n%s", r, want, out)
			}
		}
	}
}

func TestDefaultIsOneRank(t *testing.T) {
	status, out, _ := proctest.Run(t, ndrun(t, testBinary(t)))
	if status != 0 || !strings.Contains(out, "[0] rank 0 of 1\n") || strings.Contains(out, "[1]") {
		t.Errorf("exit status %d, output\n%s", status, out)
	}
}

func TestFailureIsReported(t *testing.T) {
	status, _, errOut := proctest.Run(t, ndrun(t, "-n", "3", testBinary(t), "fail"))
	if status != 42 || !strings.HasPrefix(errOut, fmt.Sprintf("ndrun: rank 1 (%s, pid ", filepath.Base(testBinary(t)))) || !strings.Contains(errOut, "exited with code 42") {
		t.Errorf("exit status %d, %s", status, errOut)
	}
}

func TestUsageErrors(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "some-text")
	if err := os.WriteFile(file, []byte("text"), 0o600); err != nil {
		t.Fatal(err)
	}
	sourceDir := t.TempDir()
	source := filepath.Join(sourceDir, "main.go")
	if err := os.WriteFile(source, []byte("package main"), 0o600); err != nil {
		t.Fatal(err)
	}
	const read, find, options = "ndrun: parse command line: ", "ndrun: find program ", `; "ndrun -h" lists the options` + "\n"
	for _, tc := range []struct {
		args []string
		want string
	}{
		{nil, read + "no program given: name it after the options" + options},
		{[]string{"-n", "2"}, read + "no program given: name it after the options" + options},
		{[]string{"-n"}, read + "option -n: value missing: want -n N" + options},
		{[]string{"-n", "0", "true"}, read + `option -n: invalid value "0": want 1 to 1024 ranks` + options},
		{[]string{"-n", "1025", "true"}, read + `option -n: invalid value "1025": want 1 to 1024 ranks` + options},
		{[]string{"-np", "two", "true"}, read + `option -np: invalid value "two": want 1 to 1024 ranks` + options},
		{[]string{"-n", "-wdir", "/", "true"}, read + `option -n: invalid value "-wdir": want 1 to 1024 ranks` + options},
		{[]string{"-bogus", "true"}, read + "unknown option -bogus" + options},
		{[]string{"--nope", "true"}, read + "unknown option --nope" + options},
		{[]string{"-nq", "4", "true"}, read + "unknown option -nq: did you mean -np?" + options},
		{[]string{"---n", "2", "true"}, read + "unknown option ---n: did you mean -n?" + options},
		{[]string{"-n4", "true"}, read + "unknown option -n4: did you mean -n 4?" + options},
		{[]string{"--ranks", "4", "true"}, read + "unknown option --ranks: did you mean -n?" + options},
		{[]string{"--time", "4", "true"}, read + "unknown option --time: did you mean --timeout?" + options},
		{[]string{"--arena", "4", "true"}, read + "unknown option --arena: did you mean --arena-size?" + options},
		{[]string{source}, find + source + ": is a Go source file: give the directory of its package, " + sourceDir + ", or an executable\n"},
		{[]string{"--timout", "2", "true"}, read + "unknown option --timout: did you mean --timeout?" + options},
		{[]string{"-wdri=/", "true"}, read + "unknown option -wdri: did you mean -wdir?" + options},
		{[]string{"--dry-run=yes", "true"}, read + `option --dry-run: unexpected value "yes": remove it` + options},
		{[]string{"-env", "X"}, read + "option -env: value missing: want -env NAME VALUE or -env NAME=VALUE" + options},
		{[]string{"-env", "=X", "true"}, read + `option -env: invalid value "=X": name missing: want NAME=VALUE` + options},
		{[]string{"-genv", "", "X", "true"}, read + `option -genv: invalid value "=X": name missing: want NAME=VALUE` + options},
		{[]string{"-x", "", "true"}, read + `option -x: invalid value "": name missing: want NAME=VALUE` + options},
		{[]string{"-wdir", "", "true"}, read + `option -wdir: invalid value "": want a directory` + options},
		{[]string{"-wdir", dir + "/none", "true"}, read + "option -wdir: invalid value \"" + dir + "/none\": no such file or directory: give an existing directory" + options},
		{[]string{"-wdir", file, "true"}, read + "option -wdir: invalid value \"" + file + "\": not a directory: give an existing directory" + options},
		{[]string{"no-such-program"}, find + "no-such-program: executable file not found in $PATH: give its path or add its directory to PATH\n"},
		{[]string{"no-such-source.c"}, find + "no-such-source.c: no such file or directory: check the path\n"},
		{[]string{"some-text"}, find + "some-text: executable file not found in $PATH: for the file in this directory, use ./some-text\n"},
		{[]string{"./none", "-n", "2"}, find + "./none: no such file or directory: check the path\n"},
		{[]string{file}, "ndrun: run program " + file + ": not executable (permission denied): run chmod +x, or put its interpreter before it\n"},
		{[]string{dir}, find + dir + ": is a directory without Go files: give an executable or the directory of a Go program\n"},
	} {
		t.Run(strings.Join(tc.args, " "), func(t *testing.T) {
			cmd := ndrun(t, tc.args...)
			cmd.Dir = dir
			status, out, errOut := proctest.Run(t, cmd)
			if status != 2 || out != "" || errOut != tc.want {
				t.Errorf("exit status %d, output %q, message\n%s want\n%s", status, out, errOut, tc.want)
			}
		})
	}
}

// If the output is a closed pipe, the job ends.
func TestClosedOutput(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	r.Close()
	cmd := ndrun(t, "-n", "2", "yes")
	var errOut bytes.Buffer
	cmd.Stdout, cmd.Stderr = w, &errOut
	_ = cmd.Run()
	w.Close()
	if status := cmd.ProcessState.ExitCode(); status != 1 || !strings.Contains(errOut.String(), "write ranks' output: write /dev/stdout: broken pipe: the job was stopped") {
		t.Errorf("exit status %d, %s", status, errOut.String())
	}
}

// forever waits to be killed. An empty select would be a deadlock for the Go runtime.
func forever() {
	for {
		time.Sleep(time.Hour)
	}
}
