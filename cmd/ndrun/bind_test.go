package main

import (
	"fmt"
	"os/exec"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/softnd/softnd/internal/linux"
	"github.com/softnd/softnd/internal/testkit/proctest"
)

const cpusAllowed = "echo cpus $(grep Cpus_allowed_list: /proc/self/status)"

// Every rank runs where --report-bindings says and where --bind-to wants it.
func TestBinding(t *testing.T) {
	allowed, err := linux.CPUs()
	if err != nil {
		t.Fatal(err)
	}
	first, last := fmt.Sprint(allowed[0]), fmt.Sprint(allowed[len(allowed)-1])
	const ranks = 3
	for _, tc := range []struct {
		option string
		want   func(rank int) string // the processors; nil: one of several
	}{
		{"none", func(int) string { return linux.FormatList(allowed) }},
		{"list:" + last + "," + first, func(rank int) string { return []string{last, first}[rank%2] }},
		{"core", nil},
		{"socket", nil},
	} {
		t.Run(tc.option, func(t *testing.T) {
			status, out, errOut := proctest.Run(t, ndrun(t, "-n", fmt.Sprint(ranks), "--bind-to", tc.option, "--report-bindings", "sh", "-c", cpusAllowed))
			if status != 0 {
				t.Fatalf("exit status %d, %s", status, errOut)
			}
			if n := strings.Count(errOut, "\n"); n != ranks {
				t.Errorf("%d lines of report, want %d:\n%s", n, ranks, errOut)
			}
			for rank := range ranks {
				var cpus string
				for line := range strings.Lines(out) {
					if rest, ok := strings.CutPrefix(line, fmt.Sprintf("[%d] cpus Cpus_allowed_list: ", rank)); ok {
						cpus = strings.TrimSpace(rest)
					}
				}
				if tc.want != nil && cpus != tc.want(rank) {
					t.Errorf("rank %d may run on %q, want %q", rank, cpus, tc.want(rank))
				}
				if tc.want == nil && cpus == "" {
					t.Errorf("nothing of rank %d in\n%s", rank, out)
				}
				verb := "bound to"
				if tc.option == "none" {
					verb = "not bound, may run on"
				}
				found := false
				for line := range strings.Lines(errOut) {
					after, ok := strings.CutPrefix(line, fmt.Sprintf("ndrun: rank %d: %s processor", rank, verb))
					fields := strings.Fields(strings.TrimPrefix(after, "s"))
					found = found || ok && len(fields) > 0 && fields[0] == cpus
				}
				if !found {
					t.Errorf("rank %d may run on %s, and the report says\n%s", rank, cpus, errOut)
				}
			}
		})
	}
}

// If ndrun may use one processor, it binds its ranks to no other.
func TestBindingUsesAllowedProcessorsOnly(t *testing.T) {
	allowed, err := linux.CPUs()
	if err != nil {
		t.Fatal(err)
	}
	last := fmt.Sprint(allowed[len(allowed)-1])
	cmd := ndrun(t, "-c", last, testBinary(t), "-n", "2", "-bind-to", "core", "sh", "-c", cpusAllowed)
	taskset(t, cmd)
	status, out, errOut := proctest.Run(t, cmd)
	if status != 0 || strings.Count(out, "cpus Cpus_allowed_list: "+last+"\n") != 2 {
		t.Errorf("exit status %d, %s%s", status, out, errOut)
	}
	if len(allowed) < 2 {
		return
	}
	cmd = ndrun(t, "-c", last, testBinary(t), "-bind-to", fmt.Sprintf("list:%s,%d", last, allowed[0]), "true")
	taskset(t, cmd)
	status, _, errOut = proctest.Run(t, cmd)
	want := fmt.Sprintf("ndrun: bind ranks: processor %d is not available: want some of %s\n", allowed[0], last)
	if status != 2 || errOut != want {
		t.Errorf("exit status %d, %s want\n%s", status, errOut, want)
	}
}

func TestInvalidBindings(t *testing.T) {
	allowed, err := linux.CPUs()
	if err != nil {
		t.Fatal(err)
	}
	for option, want := range map[string]string{
		"list:1023": fmt.Sprintf("ndrun: bind ranks: processor 1023 is not available: want some of %s", linux.FormatList(allowed)),
		"list:":     `option --bind-to: invalid value "list:": "" is not a number or range: want a list such as 0-3,5`,
		"list:1-0":  `option --bind-to: invalid value "list:1-0": range 1-0 is descending: want 0-1`,
		"list:-1":   `"-1" is not a number or range`,
		"list:5000": "number 5000 is too large: want at most 1023",
		"hwthread":  "want none, core, socket or list:CPUS",
		"core:2":    "want none, core, socket or list:CPUS",
	} {
		status, out, errOut := proctest.Run(t, ndrun(t, "--bind-to", option, "true"))
		if status != 2 || out != "" || !strings.Contains(errOut, want) {
			t.Errorf("%s: exit status %d, output %q, message\n%s want\n%s", option, status, out, errOut, want)
		}
	}
}

// The machine has two sockets of two cores with two hardware threads each, numbered as by Linux.
func TestGroups(t *testing.T) {
	sys := fstest.MapFS{}
	for cpu := range 8 {
		core, socket := cpu%4, cpu%4/2
		for file, list := range map[string]string{
			"core_cpus_list":    fmt.Sprintf("%d,%d\n", core, core+4),
			"package_cpus_list": fmt.Sprintf("%d-%d,%d-%d\n", 2*socket, 2*socket+1, 2*socket+4, 2*socket+5),
		} {
			sys[fmt.Sprintf("cpu%d/topology/%s", cpu, file)] = &fstest.MapFile{Data: []byte(list)}
		}
	}
	for _, tc := range []struct {
		by      string
		allowed string
		want    string
	}{
		{"core", "0-7", "0,4 1,5 2,6 3,7"},
		{"core", "1-2,4-5", "1,5 2 4"},
		{"socket", "0-7", "0-1,4-5 2-3,6-7"},
		{"socket", "3,6-7", "3,6-7"},
	} {
		allowed, err := linux.ParseList(tc.allowed, linux.MaxCPU)
		if err != nil {
			t.Fatal(err)
		}
		places, err := groups(sys, tc.by, allowed)
		var got []string
		for i, p := range places {
			got = append(got, linux.FormatList(p.cpus))
			if want := fmt.Sprintf("%s %d of %d", tc.by, i, len(places)); p.name != want {
				t.Errorf("%s of %s: the name is %q, want %q", tc.by, tc.allowed, p.name, want)
			}
		}
		if err != nil || strings.Join(got, " ") != tc.want {
			t.Errorf("%s of %s: %v, %v; want %s", tc.by, tc.allowed, got, err, tc.want)
		}
	}
	if _, err := groups(fstest.MapFS{}, "core", []int{0}); err == nil {
		t.Error("no error where nothing tells the cores")
	}
	sys["cpu0/topology/core_cpus_list"] = &fstest.MapFile{Data: []byte("4\n")}
	if _, err := groups(sys, "core", []int{0, 4}); err == nil {
		t.Error("no error for a processor that is in no core")
	}
}

// taskset makes cmd run under taskset. The first arguments of cmd are those of taskset.
func taskset(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	path, err := exec.LookPath("taskset")
	if err != nil {
		t.Skip("taskset is not installed (Debian: util-linux): ", err)
	}
	cmd.Path, cmd.Args[0] = path, "taskset"
}
