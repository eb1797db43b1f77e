// Package nstest makes two hosts for tests: two network namespaces that a veth pair joins. Everything ends with the
// processes in them.
package nstest

import (
	"fmt"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// Addresses of the two hosts.
const (
	A = "10.77.0.1"
	B = "10.77.0.2"
)

// Need skips a test on a machine where it cannot have two network namespaces and a veth pair.
func Need(t testing.TB) {
	t.Helper()
	if why := Missing(); why != "" {
		t.Skip(why)
	}
}

// Missing returns why this machine cannot have two network namespaces and a veth pair, "" if it can.
func Missing() string {
	for _, program := range []string{"ip", "nsenter"} {
		if _, err := exec.LookPath(program); err != nil {
			return program + " is not installed"
		}
	}
	try := exec.Command("ip", "link", "add", "veth-a", "type", "veth", "peer", "name", "veth-b")
	try.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
	if out, err := try.CombinedOutput(); err != nil {
		return fmt.Sprintf("no veth pair in a network namespace of its own, which needs root with CAP_SYS_ADMIN and CAP_NET_ADMIN: %v: %s", err, out)
	}
	return ""
}

// Join joins the network namespaces of two processes. Both were started with CLONE_NEWNET.
func Join(t testing.TB, a, b int) {
	t.Helper()
	run(t, exec.Command("ip", "link", "add", "veth-a", "netns", strconv.Itoa(a), "type", "veth", "peer", "name", "veth-b", "netns", strconv.Itoa(b)))
	for _, x := range []struct {
		pid           int
		link, address string
	}{{a, "veth-a", A}, {b, "veth-b", B}} {
		run(t, Command(x.pid, "ip", "addr", "add", x.address+"/24", "dev", x.link))
		run(t, Command(x.pid, "ip", "link", "set", x.link, "up"))
		run(t, Command(x.pid, "ip", "link", "set", "lo", "up"))
	}
}

// Command returns a command that runs in the network namespace of a process.
func Command(pid int, name string, args ...string) *exec.Cmd {
	return exec.Command("nsenter", append([]string{"-t", strconv.Itoa(pid), "-n", name}, args...)...)
}

func run(t testing.TB, cmd *exec.Cmd) {
	t.Helper()
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v: %s", strings.Join(cmd.Args, " "), err, out)
	}
}
