package jobtest

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/softnd/softnd/internal/testkit/proctest"
)

func TestMain(m *testing.M) {
	proctest.Main()
	os.Exit(withPrograms(m.Run))
}

var programs string // the directory of what buildIn builds

func withPrograms(run func() int) int {
	var err error
	if programs, err = os.MkdirTemp("", "softnd-programs"); err != nil {
		panic(err)
	}
	defer os.RemoveAll(programs)
	return run()
}

const (
	addressA, addressB = "10.79.0.1", "10.79.0.2" // as addressOf has them
	marker             = "SOFTND_TEST_HOSTS"      // a variable of all processes of a cluster
)

// addressOf returns the address of a host.
func addressOf(host int) string { return fmt.Sprintf("10.79.0.%d", 1+host) }

// cluster is two or more hosts.
type cluster struct {
	t     *testing.T
	dir   string
	names []string // of the network namespaces
	env   []string
}

// newCluster makes two hosts.
func newCluster(t *testing.T) *cluster {
	t.Helper()
	return newClusterOf(t, 2)
}

// newClusterOf makes network namespaces with a link between them, and builds ndrelay. Two have a veth pair, more have a bridge.
// When the test ends, nothing is left of it.
func newClusterOf(t *testing.T, hosts int) *cluster {
	t.Helper()
	if _, err := exec.LookPath("ip"); err != nil {
		t.Skipf("ip is not installed (Debian: iproute2): %v", err)
	}
	c := &cluster{t: t, dir: t.TempDir()}
	id := fmt.Sprintf("softnd-%d-%d", os.Getpid(), time.Now().UnixNano())
	for i := range hosts {
		c.names = append(c.names, fmt.Sprintf("%s-%d", id, i))
		if out, err := exec.Command("ip", "netns", "add", c.names[i]).CombinedOutput(); err != nil {
			t.Skipf("no network namespaces, which need root with CAP_SYS_ADMIN: %v: %s", err, out)
		}
		t.Cleanup(func() { c.ip("netns", "delete", c.names[i]) })
	}
	near := "eth0" // at the first host
	if hosts > 2 {
		c.ip("-n", c.names[0], "link", "add", "eth0", "type", "bridge")
	}
	for i := 1; i < hosts; i++ {
		if hosts > 2 {
			near = fmt.Sprint("port", i)
		}
		if out, err := exec.Command("ip", "link", "add", near, "netns", c.names[0], "type", "veth", "peer", "name", "eth0", "netns", c.names[i]).CombinedOutput(); err != nil {
			t.Skipf("no veth pair, which needs CAP_NET_ADMIN: %v: %s", err, out)
		}
		if hosts > 2 {
			c.ip("-n", c.names[0], "link", "set", near, "master", "eth0", "up")
		}
	}
	for i := range hosts {
		c.ip("-n", c.names[i], "addr", "add", addressOf(i)+"/24", "dev", "eth0")
		c.ip("-n", c.names[i], "link", "set", "eth0", "up")
		c.ip("-n", c.names[i], "link", "set", "lo", "up")
	}
	c.env = append(os.Environ(), "SOFTND_RELAY_KEEPALIVE=30s", marker+"="+id, "SOFTND_RELAY="+c.build("github.com/softnd/softnd/relay/cmd/ndrelay"))
	t.Cleanup(c.mustBeEmpty)
	return c
}

func (c *cluster) ip(args ...string) {
	c.t.Helper()
	if out, err := exec.Command("ip", args...).CombinedOutput(); err != nil {
		c.t.Errorf("ip %s: %v: %s", strings.Join(args, " "), err, out)
	}
}

// build builds a program of this module, or of one that it requires.
func (c *cluster) build(pkg string) string {
	c.t.Helper()
	return c.buildIn(".", pkg)
}

// buildIn builds a program of the module in a directory. All tests use the same one, under names of their own.
func (c *cluster) buildIn(module, pkg string) string {
	c.t.Helper()
	built, program := filepath.Join(programs, filepath.Base(pkg)), filepath.Join(c.dir, filepath.Base(pkg))
	if _, err := os.Stat(built); err != nil {
		if out, err := exec.CommandContext(c.t.Context(), "go", "build", "-C", module, "-o", built, pkg).CombinedOutput(); err != nil {
			c.t.Fatalf("%v: %s", err, out)
		}
	}
	if err := os.Link(built, program); err != nil && !errors.Is(err, fs.ErrExist) {
		c.t.Fatal(err)
	}
	return program
}

// script writes an executable file.
func (c *cluster) script(name, text string) string {
	c.t.Helper()
	path := filepath.Join(c.dir, name)
	if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
		c.t.Fatal(err)
	}
	return path
}

// hydra returns the command by which MPICH's launcher starts ranks on all hosts.
func (c *cluster) hydra(eachHost int, program ...string) *exec.Cmd {
	c.t.Helper()
	if _, err := exec.LookPath("mpiexec.hydra"); err != nil {
		c.t.Skipf("mpiexec.hydra is not installed (Debian: mpich): %v", err)
	}
	var addresses, cases []string
	for i, name := range c.names {
		addresses = append(addresses, addressOf(i))
		cases = append(cases, fmt.Sprintf("%s) host=%s;;", addressOf(i), name))
	}
	rsh := c.script("rsh", fmt.Sprintf(`#!/bin/sh
while [ "${1#-}" != "$1" ]; do shift; done
case $1 in %s esac
shift
exec ip netns exec $host sh -c "$*"
`, strings.Join(cases, " ")))
	args := []string{"netns", "exec", c.names[0], "mpiexec.hydra", "-launcher", "ssh", "-launcher-exec", rsh, "-iface", "eth0",
		"-hosts", strings.Join(addresses, ","), "-ppn", strconv.Itoa(eachHost), "-n", strconv.Itoa(len(c.names) * eachHost)}
	cmd := exec.Command("ip", append(args, program...)...)
	cmd.Env = c.env
	return cmd
}

// atRoot starts ranks without a launcher, the first ones on the first host.
func (c *cluster) atRoot(eachHost int, env []string, program ...string) (all []*proctest.Process) {
	c.t.Helper()
	size := len(c.names) * eachHost
	for rank := range size {
		all = append(all, c.rank(rank, size, env, program...))
	}
	return all
}

// rank starts one rank without a launcher.
func (c *cluster) rank(rank, size int, env []string, program ...string) *proctest.Process {
	c.t.Helper()
	cmd := exec.Command("ip", append([]string{"netns", "exec", c.names[len(c.names)*rank/size]}, program...)...)
	cmd.Env = append(c.env[:len(c.env):len(c.env)], "SOFTND_ROOT="+addressA+":7000", "SOFTND_SECRET=a secret of the tests",
		fmt.Sprint("SOFTND_RANK=", rank), fmt.Sprint("SOFTND_SIZE=", size))
	cmd.Env = append(cmd.Env, env...)
	return proctest.Start(c.t, cmd)
}

// role returns the command of a role of this test binary.
func role(name string, args ...string) []string {
	return append([]string{"env", proctest.RoleEnv + "=" + name, "/proc/" + strconv.Itoa(os.Getpid()) + "/exe"}, args...)
}

// processes returns the processes of the cluster whose command line contains a word.
func (c *cluster) processes(word string) (pids []int) {
	all, err := filepath.Glob("/proc/[0-9]*/environ")
	if err != nil {
		c.t.Fatal(err)
	}
	mark := []byte(c.env[len(c.env)-2])
	for _, name := range all {
		environ, err := os.ReadFile(name)
		if err != nil || !bytes.Contains(environ, mark) {
			continue
		}
		line, err := os.ReadFile(filepath.Join(filepath.Dir(name), "cmdline"))
		if err == nil && bytes.Contains(line, []byte(word)) {
			pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(name)))
			pids = append(pids, pid)
		}
	}
	return pids
}

// processesAt returns those at one host.
func (c *cluster) processesAt(host int, word string) (pids []int) {
	c.t.Helper()
	out, err := exec.Command("ip", "netns", "pids", c.names[host]).Output()
	if err != nil {
		c.t.Fatal(err)
	}
	there := strings.Fields(string(out))
	for _, pid := range c.processes(word) {
		if slices.Contains(there, strconv.Itoa(pid)) {
			pids = append(pids, pid)
		}
	}
	return pids
}

// mustBeEmpty fails the test if a process of the cluster is left.
func (c *cluster) mustBeEmpty() {
	proctest.Eventually(c.t, "no process of the hosts is left", func() bool {
		time.Sleep(20 * time.Millisecond)
		return len(c.processes("")) == 0
	})
}
