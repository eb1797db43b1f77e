package main

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// The messages about stopped ranks have commands that work when they are pasted.
func TestStopAtStart(t *testing.T) {
	cmd := ndrun(t, "-n", "3", "--stop-at-start", "0-1", "sh", "-c", "echo runs")
	p, errOut := startReadingErrors(t, cmd)
	var ranks []string
	for errOut.Scan() {
		var rank, pid int
		line := errOut.Text()
		if n, _ := fmt.Sscanf(line, "ndrun: rank %d (pid %d) is stopped before its first instruction:", &rank, &pid); n == 2 {
			ranks = append(ranks, fmt.Sprint(rank))
			continue
		}
		command, ok := strings.CutPrefix(line, "    kill -CONT ")
		if !ok {
			continue
		}
		// The shell's own kill, as a user would have it.
		if out, err := exec.Command("sh", "-c", "kill -CONT "+command).CombinedOutput(); err != nil {
			t.Errorf("%s: %v, %s", line, err, out)
		}
	}
	if err := p.End(); err != nil {
		t.Error(err)
	}
	if got := strings.Join(ranks, " "); got != "0 1" {
		t.Errorf("ranks %s were stopped, want 0 and 1", got)
	}
	for rank := range 3 {
		if out := p.Out.String(); !strings.Contains(out, fmt.Sprintf("[%d] runs\n", rank)) {
			t.Errorf("rank %d has not run:\n%s", rank, out)
		}
	}
}

// The printed command attaches gdb at the program's first instruction.
func TestAttachToStoppedRank(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("gdb"); err != nil {
		t.Skip("gdb is not installed: ", err)
	}
	cmd := ndrun(t, "--stop-at-start", "all", "sh", "-c", "echo runs")
	p, errOut := startReadingErrors(t, cmd)
	for errOut.Scan() {
		gdb := strings.TrimSpace(errOut.Text())
		if !strings.HasPrefix(gdb, "gdb -p ") {
			continue
		}
		out, err := exec.Command("sh", "-c", gdb+" -nx -batch -ex 'info symbol $pc' -ex continue").CombinedOutput()
		if err != nil || !strings.Contains(string(out), "_start in section .text") {
			t.Errorf("%v, %s", err, out)
		}
		_ = cmd.Process.Signal(os.Interrupt) // if it is still stopped
	}
	_ = p.End()
	if out := p.Out.String(); out != "[0] runs\n" {
		t.Errorf("output %q", out)
	}
}
