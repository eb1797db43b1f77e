package launcher

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/softnd/softnd/internal/testkit/proctest"
)

func TestExitStatusIsThatOfTheFirstFailure(t *testing.T) {
	for _, tc := range []struct {
		name    string
		plans   []string
		want    int
		first   int
		message string // %d is the failed rank's number in the process table
	}{
		{"all exit 0", []string{"exit 0", "exit 0", "exit 0"}, 0, -1, ""},
		{"one rank exits 0", []string{"exit 0"}, 0, -1, ""},
		{"one rank alone", []string{"exit 5"}, 5, 0, "rank 0 (plan, pid %d) exited with code 5"},
		{"code, the others wait", []string{"", "", "exit 3"}, 3, 2, "rank 2 (plan, pid %d) exited with code 3; the other 2 ranks were stopped"},
		{"the other waits", []string{"exit 255", ""}, 255, 0, "rank 0 (plan, pid %d) exited with code 255; the other rank was stopped"},
		{"killed", []string{"", "signal 9", "", ""}, 137, 1, "rank 1 (plan, pid %d) was killed by signal SIGKILL (killed); the other 3 ranks were stopped"},
		{"terminated from elsewhere", []string{"signal 15", ""}, 143, 0, "rank 0 (plan, pid %d) was killed by signal SIGTERM (terminated); the other rank was stopped"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			// The failure waits until every rank runs, so that "the others" is exact.
			r, open := gate(t)
			var env []string
			for rank, plan := range tc.plans {
				if plan != "" && !strings.HasPrefix(plan, "exit 0") {
					plan = "gate " + plan
				}
				env = append(env, fmt.Sprintf("PLAN_%d=%s", rank, plan))
			}
			cfg := config("plan", len(tc.plans), env...)
			cfg.Files = []*os.File{r}
			j := start(t, cfg)
			j.out.await(len(tc.plans), "ready")
			open('x')
			report := j.wait()
			if got := report.ExitStatus(); got != tc.want {
				t.Errorf("exit status %d, want %d", got, tc.want)
			}
			if report.First != tc.first {
				t.Errorf("rank %d failed first, want %d", report.First, tc.first)
			}
			want := ""
			if tc.first >= 0 {
				want = fmt.Sprintf(tc.message, report.Ranks[tc.first].PID)
			}
			if got := strings.Join(report.Messages(), "\n"); got != want {
				t.Errorf("message %q\n   want %q", got, want)
			}
		})
	}
}

// Rank 2 fails, then rank 0, while the supervisor is stopped: wait4 would return rank 0 first.
func TestFirstFailureWithLateSupervisor(t *testing.T) {
	var gates []*os.File
	var open []func(byte)
	for range 3 {
		r, o := gate(t)
		gates, open = append(gates, r), append(open, o)
	}
	cfg := config("plan", 3, "PLAN_0=gate exit 4", "PLAN_2=gate exit 6")
	cfg.Files = gates
	rankEnv := cfg.RankEnv
	cfg.RankEnv = func(rank int) []string {
		return append(rankEnv(rank), fmt.Sprintf("GATE=%d", FirstFile+rank))
	}
	j := start(t, cfg)
	var pids, parent [3]int
	for rank, rest := range j.out.await(3, "ready") {
		fmt.Sscan(rest, &pids[rank], &parent[rank])
	}
	supervisor := proctest.Watch(t, parent[0])
	supervisor.Signal(syscall.SIGSTOP)
	for _, rank := range []int{2, 0} {
		w := proctest.Watch(t, pids[rank])
		open[rank]('x')
		w.MustEnd()
	}
	supervisor.Signal(syscall.SIGCONT)
	if report := j.wait(); report.First != 2 || report.ExitStatus() != 6 {
		t.Errorf("rank %d failed first and the exit status is %d, want 2 and 6", report.First, report.ExitStatus())
	}
}

// Some ranks have succeeded before another fails.
func TestMessageCountsRunningRanks(t *testing.T) {
	r, open := gate(t)
	cfg := config("plan", 4, "PLAN_0=exit 0", "PLAN_1=exit 0", "PLAN_3=gate exit 1")
	cfg.Files = []*os.File{r}
	j := start(t, cfg)
	for rank, rest := range j.out.await(4, "ready") {
		if rank < 2 {
			var pid, supervisor int
			fmt.Sscan(rest, &pid, &supervisor)
			// It is a zombie until it is reaped.
			proctest.Eventually(t, fmt.Sprintf("rank %d ends", rank), func() bool { return syscall.Kill(pid, 0) == syscall.ESRCH })
		}
	}
	open('x')
	want := fmt.Sprintf("rank 3 (plan, pid %d) exited with code 1; 1 rank that still ran was stopped", j.wait().Ranks[3].PID)
	if got := strings.Join(j.report.Messages(), "\n"); got != want {
		t.Errorf("message %q, want %q", got, want)
	}
}

func TestRankInheritsOnlyItsFiles(t *testing.T) {
	// A descriptor that a careless parent left open to us must stop here.
	stray, err := unix.FcntlInt(2, unix.F_DUPFD, 200)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(stray)
	files := []*os.File{os.Stdin, os.Stderr}
	dir := t.TempDir()
	cfg := config("tell", 2, "TELL_A=1", "TELL_B=1", "TELL_A=2", "TELL_RAW=\xff\xfe")
	cfg.Apps[0].Args = []string{"/some/where/teller", "-n", "--", "\xff"}
	cfg.Apps[0].Dir = dir
	cfg.Files = files
	rankEnv := cfg.RankEnv
	cfg.RankEnv = func(rank int) []string {
		return append(rankEnv(rank), fmt.Sprintf("TELL_B=rank %d", rank))
	}
	j := start(t, cfg)
	if status := j.wait().ExitStatus(); status != 0 {
		t.Fatalf("exit status %d:\n%s%s", status, j.out, j.err)
	}
	for rank := range 2 {
		for _, line := range []string{
			"args /some/where/teller|-n|--|\xff",
			"dir " + dir,
			"fds 0 1 2 3 4",
			"group true",
			"env TELL_A=2",
			fmt.Sprintf("env TELL_B=rank %d", rank),
			"env TELL_RAW=\xff\xfe",
		} {
			if want := fmt.Sprintf("[%d] %s\n", rank, line); strings.Count(j.out.String(), want) != 1 {
				t.Errorf("rank %d does not say %q once:\n%s", rank, line, j.out)
			}
		}
	}
	if n := strings.Count(j.out.String(), "env TELL_"); n != 6 {
		t.Errorf("%d variables instead of 3 per rank:\n%s", n, j.out)
	}
}

func TestStandardInputGoesToRank0(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	cfg := config("reader", 2)
	cfg.Stdin = r
	j := start(t, cfg)
	io.WriteString(w, "for rank 0")
	w.Close()
	j.wait()
	for rank, want := range []string{"for rank 0", ""} {
		if line := fmt.Sprintf("[%d] read %q\n", rank, want); !strings.Contains(j.out.String(), line) {
			t.Errorf("no %q in\n%s", line, j.out)
		}
	}
}

// The program may be an open file without a name.
func TestProgramAsDescriptor(t *testing.T) {
	cfg := config("tell", 2)
	cfg.Apps[0].Path = ""
	exe, err := os.Open("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	defer exe.Close()
	cfg.Apps[0].Program = exe
	j := start(t, cfg)
	if status := j.wait().ExitStatus(); status != 0 || strings.Count(j.out.String(), "fds 0 1 2\n") != 2 {
		t.Errorf("exit status %d, output\n%s%s", status, j.out, j.err)
	}
}

// Ranks are numbered through the programs, and each has the settings of its program. Two programs
// may share an open file.
func TestApps(t *testing.T) {
	exe, err := os.Open("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	defer exe.Close()
	cfg := config("tell", 2, "TELL_A=1")
	dir := t.TempDir()
	env := append(cfg.Apps[0].Env, "TELL_A=2")
	cfg.Apps = append(cfg.Apps,
		App{Ranks: 1, Program: exe, Args: []string{"second", "x"}, Dir: dir, Env: env},
		App{Ranks: 2, Program: exe, Args: []string{"third"}, Dir: "/", Env: env})
	cfg.Files = []*os.File{os.Stdin}
	j := start(t, cfg)
	if status := j.wait().ExitStatus(); status != 0 {
		t.Fatalf("exit status %d:\n%s%s", status, j.out, j.err)
	}
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for rank, want := range [][3]string{
		{"/somewhere/tell", here, "1"}, {"/somewhere/tell", here, "1"}, {"second|x", dir, "2"}, {"third", "/", "2"}, {"third", "/", "2"},
	} {
		for _, line := range []string{"args " + want[0], "dir " + want[1], "env TELL_A=" + want[2], "fds 0 1 2 3"} {
			if line := fmt.Sprintf("[%d] %s\n", rank, line); !strings.Contains(j.out.String(), line) {
				t.Errorf("no %q in\n%s", line, j.out)
			}
		}
		if got := j.report.Ranks[rank].Program; got != strings.Split(filepath.Base(want[0]), "|")[0] {
			t.Errorf("rank %d is called %s in messages", rank, got)
		}
	}
}

// program creates an executable file.
func program(t *testing.T, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "program")
	if err := os.WriteFile(path, []byte(content), 0o700); err != nil {
		t.Fatal(err)
	}
	return path
}

// loadedBy returns an ELF file for this machine with the given dynamic loader.
func loadedBy(t *testing.T, loader string) string {
	t.Helper()
	const headers, name = 64, 64 + 56
	machine := map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64}[runtime.GOARCH]
	head := elf.Header64{Type: uint16(elf.ET_DYN), Machine: uint16(machine), Version: 1, Phoff: headers, Ehsize: headers, Phentsize: 56, Phnum: 1}
	copy(head.Ident[:], "\x7fELF\x02\x01\x01")
	part := elf.Prog64{Type: uint32(elf.PT_INTERP), Off: name, Filesz: uint64(len(loader)) + 1}
	var b bytes.Buffer
	if err := errors.Join(binary.Write(&b, binary.LittleEndian, head), binary.Write(&b, binary.LittleEndian, part)); err != nil {
		t.Fatal(err)
	}
	return b.String() + loader + "\x00"
}

func dirWithLinkToNowhere(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.Symlink("/nowhere/file", filepath.Join(dir, "rank.0.out")); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestRunRefuses(t *testing.T) {
	for _, tc := range []struct {
		name   string
		change func(*Config)
		want   error
		text   string
	}{
		{"no program", func(c *Config) { c.Apps = nil }, nil, "invalid number of ranks 0: want 1 to 1024"},
		{"a program without ranks", func(c *Config) { c.Apps = append(c.Apps, App{Args: c.Apps[0].Args}) }, nil, "program 1: invalid number of ranks 0: want 1 or more"},
		{"too many ranks", func(c *Config) { c.Apps[0].Ranks = 1025 }, nil, "invalid number of ranks 1025: want 1 to 1024"},
		{"too many ranks in sum", func(c *Config) { c.Apps[0].Ranks = 1024; c.Apps = append(c.Apps, c.Apps[0]) }, nil, "invalid number of ranks 2048: want 1 to 1024"},
		{"no arguments", func(c *Config) { c.Apps[0].Args = nil }, nil, "program 0: no arguments"},
		{"a program that is gone", func(c *Config) { c.Apps[0].Path = "/nowhere/at all" }, syscall.ENOENT, "start rank 0 of 2 (plan): no such file or directory: program /nowhere/at all does not exist: check the path"},
		{"a directory that is gone", func(c *Config) { c.Apps[0].Dir = "/nowhere" }, syscall.ENOENT, "working directory /nowhere does not exist: create it"},
		{"no interpreter", func(c *Config) { c.Apps[0].Path = program(t, "#! /bin/nowhere\r -x\n") }, syscall.ENOENT, `interpreter "/bin/nowhere\r" of the script's #! line does not exist: install it`},
		{"no dynamic loader", func(c *Config) { c.Apps[0].Path = program(t, loadedBy(t, "/lib/ld-nowhere.so.1")) }, syscall.ENOENT, "dynamic loader /lib/ld-nowhere.so.1 of the program does not exist: install the C library"},
		{"files that cannot be made", func(c *Config) { c.Output.Dir = dirWithLinkToNowhere(t) }, syscall.ENOENT, "no such file or directory: change the output directory"},
		{"no executable", func(c *Config) { c.Apps[0].Path = "/etc/passwd" }, syscall.EACCES, "start rank 0 of 2 (plan): permission denied: check the permissions"},
		{"arguments too long", func(c *Config) { c.Apps[0].Args = append(c.Apps[0].Args, strings.Repeat("x", 1<<20)) }, syscall.E2BIG, "shorten the arguments"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			cfg := config("plan", 2)
			tc.change(&cfg)
			j := start(t, cfg)
			report, err := j.result()
			if err == nil || !strings.Contains(err.Error(), tc.text) || tc.want != nil && !errors.Is(err, tc.want) {
				t.Errorf("error %v, want one with %q", err, tc.text)
			}
			if report != nil && report.ExitStatus() == 0 {
				t.Error("the report claims success")
			}
		})
	}
	t.Run("without Serve", func(t *testing.T) {
		served = false
		defer func() { served = true }()
		if _, err := start(t, config("plan", 1)).result(); !errors.Is(err, errNotServed) {
			t.Errorf("error %v, want %v", err, errNotServed)
		}
	})
}

func TestContextStopsJob(t *testing.T) {
	j := start(t, config("plan", 2))
	j.out.await(2, "ready")
	j.cancel()
	report, err := j.result()
	if err == nil || report.First != -1 || report.ExitStatus() != 1 {
		t.Errorf("error %v, first failure %d, exit status %d; want an error, -1, 1", err, report.First, report.ExitStatus())
	}
	for rank, r := range report.Ranks {
		if !r.Ended || !r.Stopped {
			t.Errorf("rank %d: %+v, want it stopped", rank, r)
		}
	}
}
