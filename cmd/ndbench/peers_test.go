package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/softnd/softnd/bench/report"
	"github.com/softnd/softnd/internal/testkit/proctest"
)

// amongPeers runs "ndbench peers" with a PATH that contains only these scripts. Its directory of temporary files must
// be empty at the end.
func amongPeers(t *testing.T, scripts map[string]string, args ...string) *exec.Cmd {
	t.Helper()
	dir, tmp := t.TempDir(), t.TempDir()
	for name, text := range scripts {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"+text), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	cmd := command(t, "ndbench", append([]string{"peers", "-D", "1ms", "-r", "3", "--no-pin"}, args...)...)
	cmd.Env = append(os.Environ(), "PATH="+dir, "TMPDIR="+tmp, perfEnv+"=")
	t.Cleanup(func() {
		if names, _ := filepath.Glob(tmp + "/*"); len(names) > 0 {
			t.Errorf("left behind: %v", names)
		}
	})
	return cmd
}

// mpi returns a peer whose launcher is the script.
func mpi(name, script string) map[string]string {
	return map[string]string{"mpicc." + name: "", "mpiexec." + name: script}
}

func both(openmpi, mpich string) map[string]string {
	all := mpi("openmpi", openmpi)
	for name, script := range mpi("mpich", mpich) {
		all[name] = script
	}
	return all
}

const aNanosecond = "echo figure,10,1.0"

func TestPeersInOneTable(t *testing.T) {
	status, out, errOut := proctest.Run(t, amongPeers(t, mpi("mpich", aNanosecond), "--tests", "send_lat,msg_rate", "-s", "8"))
	if status != 0 || errOut != "" {
		t.Fatalf("exit status %d\n%s", status, errOut)
	}
	for _, want := range []string{
		`(?m)^test +size +softnd +95 % +of limit +mpich +95 % +of limit +better$`,
		`(?m)^send_lat +8 B +\S+ [nµm]?s +\S+( [nµm]?s)?–\S+ [nµm]?s +\S+ × +1\.00 ns  \* +1\.00–1\.00 ns +\S+ × +less$`,
		`(?m)^msg_rate +8 B +\S+ ([kM] )?msg/s .* 1\.00 G msg/s  \* .* more$`,
		`(?m)^  ranks in C build it with "cmake `,
		`(?s)not installed:\n.*UCX +apt-get install ucx-utils\n.*libfabric +apt-get install libfabric-bin\n.*Open MPI +apt-get install openmpi-bin libopenmpi-dev\n$`,
	} {
		if !regexp.MustCompile(want).MatchString(out) {
			t.Errorf("no %s in\n%s", want, out)
		}
	}
	if strings.Contains(out, "install mpich") {
		t.Errorf("MPICH is not missing:\n%s", out)
	}
}

// TestPeersTakeTurns: every round has one repeat of each provider.
func TestPeersTakeTurns(t *testing.T) {
	file := filepath.Join(t.TempDir(), "order")
	say := func(name string) string { return "echo " + name + " >>" + file + "\n" + aNanosecond }
	status, _, errOut := proctest.Run(t, amongPeers(t, both(say("openmpi"), say("mpich")), "--tests", "msg_rate"))
	text, err := os.ReadFile(file)
	if status != 0 || err != nil {
		t.Fatalf("exit status %d, %v\n%s", status, err, errOut)
	}
	if want := "openmpi mpich mpich openmpi openmpi mpich"; strings.Join(strings.Fields(string(text)), " ") != want {
		t.Errorf("the order of the repeats is %q, want %q", text, want)
	}
}

// TestPeersInOneReport: one report contains all providers, with every round of softnd.
func TestPeersInOneReport(t *testing.T) {
	dir := t.TempDir()
	file := func(form string) string { return filepath.Join(dir, "r."+form) }
	status, out, errOut := proctest.Run(t, amongPeers(t, both(aNanosecond, aNanosecond), "--tests", "send_lat", "-s", "8,16",
		"--json", file("json"), "--csv", file("csv"), "--plot", file("svg"), "--quiet"))
	if status != 0 || out != "" || errOut != "" {
		t.Fatalf("exit status %d, %s%s", status, out, errOut)
	}
	text, err := os.ReadFile(file("json"))
	if err != nil {
		t.Fatal(err)
	}
	r, err := report.ReadJSON(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, x := range r.Results {
		got = append(got, fmt.Sprintf("%s %d: %d", x.Provider, x.Size, len(x.Repeats)))
		if x.Limit == nil || x.Limit.Name != "raw_line" || !(x.Limit.Ratio > 0) {
			t.Errorf("the limit of %s: %+v", x.Provider, x.Limit)
		}
		if len(x.Limit.Ratios) != len(x.Repeats) {
			t.Errorf("%s has %d ratios for %d repeats", x.Provider, len(x.Limit.Ratios), len(x.Repeats))
		}
		if x.Pinned {
			t.Errorf("%s was pinned", x.Provider)
		}
	}
	if want := []string{"softnd 8: 4", "openmpi 8: 3", "mpich 8: 3", "softnd 16: 4", "openmpi 16: 3", "mpich 16: 3"}; !slices.Equal(got, want) {
		t.Errorf("providers, sizes and repeats %v, want %v", got, want)
	}
	for form, want := range map[string]string{"csv": "\nsend_lat,mpich,16,", "svg": ">openmpi<"} {
		if text, err := os.ReadFile(file(form)); err != nil || !strings.Contains(string(text), want) {
			t.Errorf("%s: %v, no %q", form, err, want)
		}
	}
}

func TestFailingPeerDoesNotStopOthers(t *testing.T) {
	status, out, errOut := proctest.Run(t, amongPeers(t, both("echo oil on the road", aNanosecond), "--tests", "msg_rate,posted"))
	if status != exitPeers {
		t.Errorf("exit status %d, want %d", status, exitPeers)
	}
	if n := strings.Count(errOut, "oil on the road"); n != 2 || !strings.Contains(errOut, "Open MPI: posted of 8 B") {
		t.Errorf("the errors of Open MPI:\n%s", errOut)
	}
	if !regexp.MustCompile(`(?m)^posted .* 1\.00 ns  \* `).MatchString(out) || strings.Contains(out, "openmpi") {
		t.Errorf("want the figures of softnd and MPICH:\n%s", out)
	}
}

func TestPeersThatAreNotInstalled(t *testing.T) {
	for only, want := range map[string]int{"": 0, "ucx": exitPeers} {
		args := []string{"--tests", "posted"}
		if only != "" {
			args = append(args, "--only", only)
		}
		status, out, errOut := proctest.Run(t, amongPeers(t, nil, args...))
		if status != want {
			t.Errorf("--only %q: exit status %d, want %d\n%s", only, status, want, errOut)
		}
		if !strings.Contains(out, "apt-get install ucx-utils") || strings.Contains(out, "mpich") != (only == "") {
			t.Errorf("--only %q: not what is missing:\n%s", only, out)
		}
		if !regexp.MustCompile(`(?m)^posted +8 B +\S+ [nµm]?s `).MatchString(out) {
			t.Errorf("--only %q: no figure of softnd:\n%s", only, out)
		}
	}
}

func TestPeersUnderNdrun(t *testing.T) {
	status, _, errOut := proctest.Run(t, command(t, "ndrun", "-n", "2", filepath.Join(must(t), "ndbench"), "peers"))
	if status == 0 || !strings.Contains(errOut, "start it without a launcher") {
		t.Errorf("exit status %d, %s", status, errOut)
	}
}

// TestPeersInterrupted: SIGINT also ends the programs of a peer.
func TestPeersInterrupted(t *testing.T) {
	file := filepath.Join(t.TempDir(), "pid")
	cmd := amongPeers(t, mpi("mpich", "echo $$ >"+file+".new; /bin/mv "+file+".new "+file+"; exec /bin/sleep 1000"), "--tests", "msg_rate")
	var errOut bytes.Buffer
	cmd.Stderr = &errOut
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	program := proctest.Watch(t, numberIn(t, file))
	if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	if cmd.Wait(); cmd.ProcessState.ExitCode() != exitFailure || !strings.Contains(errOut.String(), "interrupted") {
		t.Errorf("%v, %s", cmd.ProcessState, &errOut)
	}
	program.MustEnd()
}

// numberIn waits for a file that contains a number.
func numberIn(t *testing.T, file string) int {
	t.Helper()
	n := 0
	proctest.Eventually(t, "the peer is started", func() bool {
		text, err := os.ReadFile(file)
		if err != nil {
			return false
		}
		if n, err = strconv.Atoi(strings.TrimSpace(string(text))); err != nil {
			t.Fatal(err)
		}
		return true
	})
	return n
}
