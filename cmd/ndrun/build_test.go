package main

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/softnd/softnd/internal/testkit/proctest"
)

// goPackage writes a Go module with one file and returns its directory.
func goPackage(t *testing.T, source string) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "heat")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"go.mod": "module example.com/heat\n\ngo 1.26\n", "main.go": source} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

const heat = `package main

import (
	"fmt"
	"os"
	"time"
)

func main() {
	fmt.Printf("%s %q %s\n", os.Getenv("SOFTND_RANK"), os.Args, os.Getenv("SOFTND_SIZE"))
	if len(os.Args) > 1 && os.Args[1] == "stay" {
		fmt.Println("pid", os.Getpid())
		time.Sleep(time.Hour)
	}
}
`

// inEmptyTemp gives ndrun an empty directory for temporary files, and checks at the end of the
// test that it is still empty.
func inEmptyTemp(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	dir := t.TempDir()
	cmd.Env = append(cmd.Env, "TMPDIR="+dir, "GOFLAGS=")
	t.Cleanup(func() {
		left, err := os.ReadDir(dir)
		if err != nil || len(left) > 0 {
			t.Errorf("left among the temporary files: %v, %v", left, err)
		}
	})
}

func TestGoPackageIsBuiltAndRun(t *testing.T) {
	t.Parallel()
	dir := goPackage(t, heat)
	for _, tc := range []struct{ name, from, program string }{
		{"absolute", "/", dir},
		{"relative", filepath.Dir(dir), "./heat"},
		{"relative without a slash", filepath.Dir(dir), "heat"},
		{"the current directory", dir, "."},
	} {
		t.Run(tc.name, func(t *testing.T) {
			cmd := ndrun(t, "-n", "2", tc.program, "-n", "3")
			cmd.Dir = tc.from
			inEmptyTemp(t, cmd)
			status, out, errOut := proctest.Run(t, cmd)
			if status != 0 || errOut != "" {
				t.Fatalf("exit status %d, %s", status, errOut)
			}
			for r := range 2 {
				if want := fmt.Sprintf("[%d] %d [\"heat\" \"-n\" \"3\"] 2\n", r, r); !strings.Contains(out, want) {
					t.Errorf("no %q in\n%s", want, out)
				}
			}
		})
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 2 {
		t.Errorf("the package's directory now holds %v, %v", left, err)
	}
}

func TestCompilerErrorsAreForwarded(t *testing.T) {
	cmd := ndrun(t, goPackage(t, "package main\n\nfunc main() { one(); two() }\n"))
	inEmptyTemp(t, cmd)
	status, out, errOut := proctest.Run(t, cmd)
	if status != 1 || out != "" {
		t.Errorf("exit status %d, output %q", status, out)
	}
	for _, want := range []string{"main.go:3:15: undefined: one", "main.go:3:22: undefined: two", "ndrun: build ", "go build failed"} {
		if !strings.Contains(errOut, want) {
			t.Errorf("no %q in\n%s", want, errOut)
		}
	}
}

func TestPackageWithoutMainFails(t *testing.T) {
	cmd := ndrun(t, goPackage(t, "package heat\n"))
	inEmptyTemp(t, cmd)
	status, _, errOut := proctest.Run(t, cmd)
	if status != 1 || !strings.Contains(errOut, "not a package main: give the directory of a program") {
		t.Errorf("exit status %d, %s", status, errOut)
	}
}

func TestBuildFailsWithoutGo(t *testing.T) {
	cmd := ndrun(t, goPackage(t, heat))
	cmd.Env = append(cmd.Env, "PATH="+t.TempDir())
	status, _, errOut := proctest.Run(t, cmd)
	if status != 1 || !strings.Contains(errOut, "install Go or run an executable") {
		t.Errorf("exit status %d, %s", status, errOut)
	}
}

// If ndrun is killed while its ranks run, neither ranks nor the built program remain.
func TestKilledNdrunLeavesNothing(t *testing.T) {
	cmd := ndrun(t, "-n", "3", goPackage(t, heat), "stay")
	inEmptyTemp(t, cmd)
	p, lines := startReading(t, cmd)
	var ranks []proctest.Watched
	for lines.Scan() {
		var rank, pid int
		if n, _ := fmt.Sscanf(lines.Text(), "[%d] pid %d", &rank, &pid); n == 2 {
			ranks = append(ranks, proctest.Watch(t, pid))
		}
		if len(ranks) == 3 {
			break
		}
	}
	if len(ranks) != 3 {
		t.Fatalf("only %d ranks run", len(ranks))
	}
	p.Kill()
	for _, w := range ranks {
		w.MustEnd()
	}
}

// A build that hangs ends with ndrun, whether ndrun gets SIGTERM or is killed.
func TestBuildEndsWithNdrun(t *testing.T) {
	for _, tc := range []struct {
		sig    syscall.Signal
		status int
		text   string
	}{
		{syscall.SIGINT, 128 + 2, "stopped by signal SIGINT\n"},
		{syscall.SIGTERM, 128 + 15, "stopped by signal SIGTERM\n"},
		{syscall.SIGKILL, -1, ""},
	} {
		t.Run(tc.sig.String(), func(t *testing.T) {
			bin := t.TempDir()
			// In place of the go command: tells its number and goes on for ever.
			fake := "#!/bin/sh\necho compiling $$\nexec sleep 100000\n"
			if err := os.WriteFile(filepath.Join(bin, "go"), []byte(fake), 0o700); err != nil {
				t.Fatal(err)
			}
			cmd := ndrun(t, goPackage(t, heat))
			cmd.Env = append(cmd.Env, "PATH="+bin+":"+os.Getenv("PATH"))
			inEmptyTemp(t, cmd)
			r, w, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			defer r.Close()
			cmd.Stderr = w
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			w.Close()
			lines := bufio.NewReader(r)
			first, err := lines.ReadString('\n')
			var pid int
			if _, err := fmt.Sscanf(first, "compiling %d", &pid); err != nil {
				t.Fatalf("%q: %v", first, err)
			}
			compiler := proctest.Watch(t, pid)
			proctest.Watch(t, cmd.Process.Pid).Signal(tc.sig)
			compiler.MustEnd()
			_ = cmd.Wait()
			if err != nil || cmd.ProcessState.ExitCode() != tc.status {
				t.Errorf("exit status %d, want %d; %v", cmd.ProcessState.ExitCode(), tc.status, err)
			}
			if rest, _ := lines.ReadString('\n'); !strings.HasSuffix(rest, tc.text) || tc.text != "" && !strings.HasPrefix(rest, "ndrun: build ") {
				t.Errorf("message %q, want one that ends in %q", rest, tc.text)
			}
		})
	}
}

// startReading starts cmd and returns the lines of its standard output.
func startReading(t *testing.T, cmd *exec.Cmd) (*proctest.Process, *bufio.Scanner) {
	t.Helper()
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	return proctest.Start(t, cmd), bufio.NewScanner(out)
}
