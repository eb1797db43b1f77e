package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/softnd/softnd/internal/goruntime"
	"github.com/softnd/softnd/internal/testkit/proctest"
)

func TestHelp(t *testing.T) {
	for _, form := range []string{"-h", "-help", "--help"} {
		status, out, errOut := proctest.Run(t, ndrun(t, "-n", "2", form, "false"))
		if status != 0 || errOut != "" {
			t.Fatalf("exit status %d, %q, %q", status, out, errOut)
		}
		if lines := strings.Count(out, "\n"); lines > 53 {
			t.Errorf("%d lines, which is more than two screens", lines)
		}
		for line := range strings.Lines(out) {
			if len(line) > 101 {
				t.Errorf("%d columns: %s", len(line)-1, line)
			}
		}
		eachOption(func(o *option) {
			if !strings.Contains(out, o.usage()+" ") {
				t.Errorf("nothing about %s", o.names)
			}
		})
	}
}

func TestVersion(t *testing.T) {
	for _, form := range []string{"-V", "--version"} {
		status, out, errOut := proctest.Run(t, ndrun(t, form))
		if want := "ndrun (softnd) " + goruntime.BuildName() + "\n"; status != 0 || out != want || errOut != "" {
			t.Errorf("%s: exit status %d, %q, %q; want %q", form, status, out, errOut, want)
		}
	}
}

// docs/ndrun.1 is the output of ndrun --man, and man prints no warnings for it.
func TestManualPage(t *testing.T) {
	status, out, errOut := proctest.Run(t, ndrun(t, "--man"))
	if status != 0 || errOut != "" {
		t.Fatalf("exit status %d, %s", status, errOut)
	}
	page, err := os.ReadFile("../../docs/ndrun.1")
	if err != nil || string(page) != out {
		t.Errorf("docs/ndrun.1 is not what ndrun --man prints (%v): run go generate ./cmd/ndrun", err)
	}
	eachOption(func(o *option) {
		if !strings.Contains(out, "\n.B "+roff(o.usage())+"\n"+roff(o.help)+"\n") {
			t.Errorf("nothing about %s", o.names)
		}
	})
	man, err := exec.LookPath("man")
	if err != nil {
		t.Skip("man is not installed: ", err)
	}
	cmd := exec.Command(man, "--warnings", "-l", "-")
	cmd.Stdin = strings.NewReader(out)
	cmd.Env = append(os.Environ(), "LC_ALL=C", "MANWIDTH=80")
	text, err := cmd.CombinedOutput()
	if err != nil || strings.Contains(string(text), "warning") || !strings.Contains(string(text), "--stop-at-start RANKS") {
		t.Errorf("%v\n%s", err, text)
	}
}

// The text about the exit status is the same everywhere.
func TestExitStatusIsDocumented(t *testing.T) {
	bare := strings.NewReplacer("//", " ", "`", "")
	words := func(s string) string { return strings.Join(strings.Fields(bare.Replace(s)), " ") }
	for _, file := range []string{"main.go", "../../docs/ndrun.md"} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(words(string(text)), words(exitStatus)) {
			t.Errorf("%s does not say: %s", file, exitStatus)
		}
	}
}

// docs/ndrun.md describes every option.
func TestOptionsAreDocumented(t *testing.T) {
	page, err := os.ReadFile("../../docs/ndrun.md")
	if err != nil {
		t.Fatal(err)
	}
	eachOption(func(o *option) {
		for name := range strings.SplitSeq(o.names, ", ") {
			if !strings.Contains(string(page), "`"+name+"`") && !strings.Contains(string(page), "`"+name+" ") {
				t.Errorf("nothing about %s", name)
			}
		}
	})
}

// Each script works in its shell.
func TestCompletion(t *testing.T) {
	for _, tc := range []struct{ shell, test, want string }{
		{"bash", `. "$1"
			t() { COMP_WORDS=(ndrun "$@"); COMP_CWORD=$#; COMPREPLY=(); _ndrun; echo "${COMPREPLY[*]}."; }
			t --timeo; t -bind-to s; t --completion ""; t -n ""; t -stop; complete -p ndrun`,
			"--timeout.\nsocket.\nbash zsh fish.\n.\n-stop-at-start.\ncomplete -o filenames -F _ndrun ndrun\n"},
		{"fish", `source "$argv[1]"
			for line in "--timeo" "-bind-to s" "--completion b" "-stop"; complete -C "ndrun $line" | string split -f 1 \t; end`,
			"--timeout\nsocket\nbash\n-stop-at-start\n"},
		{"zsh", `autoload -U compinit; compinit -D; . "$1"; whence -w _ndrun; echo $_comps[ndrun]`, "_ndrun: function\n_ndrun\n"},
	} {
		t.Run(tc.shell, func(t *testing.T) {
			status, script, errOut := proctest.Run(t, ndrun(t, "--completion", tc.shell))
			if status != 0 || errOut != "" {
				t.Fatalf("exit status %d, %s", status, errOut)
			}
			eachOption(func(o *option) {
				for _, name := range o.allNames() {
					if !strings.Contains(script, name) {
						t.Errorf("nothing about %s", name)
					}
				}
			})
			shell, err := exec.LookPath(tc.shell)
			if err != nil {
				t.Skip(tc.shell, " is not installed: ", err)
			}
			file := filepath.Join(t.TempDir(), "script")
			if err := os.WriteFile(file, []byte(script), 0o600); err != nil {
				t.Fatal(err)
			}
			args := map[string][]string{"bash": {"-c", tc.test, "bash", file}, "fish": {"--no-config", "-c", tc.test, file}, "zsh": {"-f", "-c", tc.test, "zsh", file}}[tc.shell]
			cmd := exec.Command(shell, args...)
			cmd.Env = append(os.Environ(), "HOME="+t.TempDir())
			out, err := cmd.CombinedOutput()
			if err != nil || string(out) != tc.want {
				t.Errorf("%v, output\n%s want\n%s", err, out, tc.want)
			}
		})
	}
	status, _, errOut := proctest.Run(t, ndrun(t, "--completion", "tcsh"))
	if status != 2 || !strings.Contains(errOut, "want bash, zsh or fish") {
		t.Errorf("exit status %d, %s", status, errOut)
	}
}
