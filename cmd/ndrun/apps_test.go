package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/softnd/softnd/internal/testkit/proctest"
)

// say is a program that prints its rank, directory, variables and arguments.
var say = []string{"/bin/sh", "-c", `echo "$SOFTND_RANK/$SOFTND_SIZE app $SOFTND_APPNUM dir $(pwd) PWD $PWD A $A B $B args $0 $*"`}

// saying returns a command line of ndrun with options before say and arguments after it.
func saying(options []string, args ...string) []string { return slices.Concat(options, say, args) }

// mustSay runs ndrun and checks that the output has exactly the wanted lines, in any order.
func mustSay(t *testing.T, dir string, args []string, want ...string) {
	t.Helper()
	cmd := ndrun(t, args...)
	cmd.Dir = dir
	cmd.Env = append(cmd.Env, "A=outer", "B=outer")
	status, out, errOut := proctest.Run(t, cmd)
	if status != 0 || errOut != "" {
		t.Fatalf("exit status %d, %s", status, errOut)
	}
	got := slices.Sorted(strings.Lines(out))
	for i := range want {
		want[i] += "\n"
	}
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("output\n%s want\n%s", strings.Join(got, ""), strings.Join(want, ""))
	}
}

// Each program has its own number of ranks, directory, variables and arguments. Its options take
// precedence over those of the job.
func TestSeveralPrograms(t *testing.T) {
	here, one := t.TempDir(), t.TempDir()
	mustSay(t, here, slices.Concat(
		saying([]string{"-n", "2", "-wdir", one, "-env", "A", "x y"}, "first", "-n", "7"), []string{":"},
		saying([]string{"-genv", "B", "all", "--env", "A=b=c", "--env=A=c"}, "second"), []string{":"},
		saying([]string{"-np=2", "-x", "B=mine", "-x", "A", "-x", "UNSET_VARIABLE"}, "third", "-env"), []string{":"},
		saying([]string{"-wd", ".", "--"}, "fourth", "-genv")),
		fmt.Sprintf("[0] 0/6 app 0 dir %s PWD %[1]s A x y B all args first -n 7", one),
		fmt.Sprintf("[1] 1/6 app 0 dir %s PWD %[1]s A x y B all args first -n 7", one),
		fmt.Sprintf("[2] 2/6 app 1 dir %s PWD %[1]s A c B all args second ", here),
		fmt.Sprintf("[3] 3/6 app 2 dir %s PWD %[1]s A outer B mine args third -env", here),
		fmt.Sprintf("[4] 4/6 app 2 dir %s PWD %[1]s A outer B mine args third -env", here),
		fmt.Sprintf("[5] 5/6 app 3 dir %s PWD %[1]s A outer B all args fourth -genv", here),
	)
}

func TestFailureNamesProgram(t *testing.T) {
	status, _, errOut := proctest.Run(t, ndrun(t, "sleep", "600", ":", "sh", "-c", "exit 9"))
	if status != 9 || !strings.HasPrefix(errOut, "ndrun: rank 1 (sh, pid ") {
		t.Errorf("exit status %d, %s", status, errOut)
	}
}

// A package that is given several times is built once.
func TestGoPackageIsBuiltOnce(t *testing.T) {
	dir := goPackage(t, heat)
	compiler, err := exec.LookPath("go")
	if err != nil {
		t.Fatal(err)
	}
	bin, log := t.TempDir(), filepath.Join(t.TempDir(), "log")
	counting := fmt.Sprintf("#!/bin/sh\necho build >>%s\nexec %s \"$@\"\n", log, compiler)
	if err := os.WriteFile(filepath.Join(bin, "go"), []byte(counting), 0o700); err != nil {
		t.Fatal(err)
	}
	cmd := ndrun(t, dir, "a", ":", "echo", "between", ":", "-n", "2", dir, "b")
	cmd.Env = append(cmd.Env, "PATH="+bin+":"+os.Getenv("PATH"))
	inEmptyTemp(t, cmd)
	status, out, errOut := proctest.Run(t, cmd)
	if status != 0 || errOut != "" {
		t.Fatalf("exit status %d, %s", status, errOut)
	}
	if builds, err := os.ReadFile(log); err != nil || string(builds) != "build\n" {
		t.Errorf("the builds are %q, %v; want one", builds, err)
	}
	for _, want := range []string{`[0] 0 ["heat" "a"] 4`, "[1] between", `[2] 2 ["heat" "b"] 4`, `[3] 3 ["heat" "b"] 4`} {
		if !strings.Contains(out, want+"\n") {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
}

// configFile writes a file for -configfile and returns its path.
func configFile(t *testing.T, lines ...string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "job")
	if err := os.WriteFile(path, []byte(strings.Join(lines, "\n")), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestConfigFile(t *testing.T) {
	here := t.TempDir()
	file := configFile(t,
		"# A comment, and options for all:",
		"-genv B all",
		"",
		`-n 2 -env A "x y" /bin/sh -c '`+say[2]+`' first a\ b : "" \`,
		"   continued",
		"  # and",
		`/bin/sh -c '`+say[2]+"' second\r",
		"")
	mustSay(t, here, []string{"--genv", "A", "everywhere", "-configfile", file},
		fmt.Sprintf("[0] 0/3 app 0 dir %s PWD %[1]s A x y B all args first a b :  continued", here),
		fmt.Sprintf("[1] 1/3 app 0 dir %s PWD %[1]s A x y B all args first a b :  continued", here),
		fmt.Sprintf("[2] 2/3 app 1 dir %s PWD %[1]s A everywhere B all args second ", here),
	)
}

func TestInvalidPrograms(t *testing.T) {
	dir := t.TempDir()
	for _, tc := range []struct {
		args []string
		file []string // lines of the file that replaces FILE in args
		want string   // behind "ndrun: parse command line: "
	}{
		{[]string{"true", ":"}, nil, "program 2 of 2: no program given: name it after its options or remove a colon"},
		{[]string{":", "true"}, nil, "program 1 of 2: no program given: name it after its options or remove a colon"},
		{[]string{"true", ":", "-n", "2", ":", "true"}, nil, "program 2 of 3: no program given: name it after its options or remove a colon"},
		{[]string{"true", ":", "-n", "0", "true"}, nil, `option -n: invalid value "0": want 1 to 1024 ranks`},
		{[]string{"-n", "1000", "true", ":", "-n", "25", "true"}, nil, "invalid number of ranks 1025 (in 2 programs): want 1 to 1024"},
		{[]string{"-configfile", dir + "/none"}, nil, "option -configfile: open " + dir + "/none: no such file or directory: check the path"},
		{[]string{"-configfile", dir}, nil, "option -configfile: read " + dir + ": is a directory: check the path"},
		{[]string{"-configfile", ""}, nil, `option -configfile: invalid value "": want a file`},
		{[]string{"-configfile", "FILE"}, []string{"true", "-n x true"}, `FILE:2: option -n: invalid value "x": want 1 to 1024 ranks`},
		{[]string{"-configfile", "FILE"}, []string{"# one", "true a \\", " b", "-bogus true"}, `FILE:4: unknown option -bogus`},
		{[]string{"-configfile", "FILE"}, []string{"true \\", "'a"}, `FILE:1: Unterminated single-quoted string`},
		{[]string{"-configfile", "FILE"}, []string{"-n 2"}, `FILE:1: no program given: name it after -n`},
		{[]string{"-configfile", "FILE"}, []string{"-configfile other true"}, `FILE:1: option -configfile: invalid value "other": configuration file FILE is already given: give one, and none inside of it`},
		{[]string{"-configfile", "FILE"}, []string{"", "# nothing"}, `FILE: no program given: write one per line, such as -n 2 ./heat`},
		{[]string{"-n", "2", "-configfile", "FILE"}, []string{"true"}, `option -n: belongs to a program: move it to a line of FILE`},
		{[]string{"-configfile", "FILE", "true"}, []string{"true"}, `option -configfile: programs are given both in FILE and on the command line: remove one of them`},
		{[]string{"true", ":", "-configfile", "FILE"}, []string{"true"}, `option -configfile: programs are given both in FILE and on the command line: remove one of them`},
		{[]string{"-host", "localhost,node7", "true"}, nil, `host "node7" is not the local host: want localhost or `},
	} {
		t.Run(strings.Join(append(tc.args, tc.file...), " "), func(t *testing.T) {
			args, file := slices.Clone(tc.args), ""
			if tc.file != nil {
				file = configFile(t, tc.file...)
				args[slices.Index(args, "FILE")] = file
			}
			status, out, errOut := proctest.Run(t, ndrun(t, args...))
			want := strings.ReplaceAll(tc.want, "FILE", file)
			if status != 2 || out != "" || !strings.HasPrefix(errOut, "ndrun: parse command line: ") || !strings.Contains(errOut, want) {
				t.Errorf("exit status %d, output %q, message\n%s want\n%s", status, out, errOut, want)
			}
		})
	}
}

func TestLocalHostIsAccepted(t *testing.T) {
	t.Parallel()
	own, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{
		{"-host", "localhost"}, {"-hosts", "localhost:4," + own}, {"--host=127.0.0.1"}, {"-host", "::1"},
		{"-host", strings.ToUpper(own)}, {"-host", "LocalHost"},
	} {
		if status, _, errOut := proctest.Run(t, ndrun(t, append(args, "true")...)); status != 0 || errOut != "" {
			t.Errorf("%q: exit status %d, %s", args, status, errOut)
		}
	}
}

// A name with a domain may be that of another host.
func TestHostWithUnknownDomainIsRefused(t *testing.T) {
	own, err := os.Hostname()
	if err != nil || strings.Contains(own, ".") {
		t.Skipf("the name of this host, %q, has a domain: %v", own, err)
	}
	status, _, errOut := proctest.Run(t, ndrun(t, "-host", own+".elsewhere.test", "true"))
	if want := "the name of this host is " + own + " without a domain, so " + own + ".elsewhere.test may be another"; status != 2 || !strings.Contains(errOut, want) {
		t.Errorf("exit status %d, %s, want %s", status, errOut, want)
	}
}

// Some editors begin a file with a byte order mark.
func TestByteOrderMarkIsSkipped(t *testing.T) {
	file := configFile(t, "\ufeff-n 2 true")
	if status, _, errOut := proctest.Run(t, ndrun(t, "-configfile", file)); status != 0 || errOut != "" {
		t.Errorf("exit status %d, %s", status, errOut)
	}
	plan := configFile(t, "\ufeffrules: [{operation: write, rank: 7, action: kill}]")
	if _, _, errOut := proctest.Run(t, ndrun(t, "--faults", plan, "-n", "8", "true")); !strings.Contains(errOut, "never acted") {
		t.Errorf("plan: %s", errOut)
	}
}

func TestCompatibilityOptionsAreAccepted(t *testing.T) {
	mustSay(t, "/", saying([]string{"--oversubscribe", "-allow-run-as-root"}, "x"), "[0] 0/1 app 0 dir / PWD / A outer B outer args x ")
}
