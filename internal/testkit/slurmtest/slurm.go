// Package slurmtest starts a Slurm for tests, with a slurmd for each node. It needs no privileges for one node; several nodes
// need a network and a UTS namespace each.
package slurmtest

import (
	"bytes"
	"crypto/rand"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/softnd/softnd/internal/testkit/proctest"
)

// Node is a host of a cluster.
type Node struct {
	Name  string   // its host name
	Addr  string   // at which the other nodes reach it
	Enter []string // the beginning of a command that runs at the node: programs that execute the rest; nil for this host
}

// ThisHost returns the node of a cluster of this host alone.
func ThisHost(t testing.TB) Node {
	t.Helper()
	name, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	name, _, _ = strings.Cut(name, ".")
	return Node{Name: name, Addr: "127.0.0.1"}
}

// Namespaces returns a node in a network namespace, which ip netns has made, and in a UTS namespace of its own.
// The command ip netns exec would hide the cgroups from slurmd.
func Namespaces(name, addr, network string) Node {
	return Node{name, addr, []string{"nsenter", "--net=/run/netns/" + network, "unshare", "--uts", "sh", "-c", "hostname " + name + "; exec \"$@\"", "sh"}}
}

// Command returns the words of a command that runs at the node.
func (n Node) Command(words ...string) []string { return append(slices.Clone(n.Enter), words...) }

// slurm.conf of a cluster, all of whose files are in one directory: name and address of the first node, directory, user,
// two ports. The nodes follow.
const slurmConf = `ClusterName=softnd
SlurmctldHost=%[1]s(%[2]s)
SlurmctldPort=%[5]d
SlurmdPort=%[6]d
AuthType=auth/munge
AuthInfo=socket=%[3]s/munge.sock
CredType=cred/munge
SlurmUser=%[4]s
SlurmdUser=%[4]s
StateSaveLocation=%[3]s/state
SlurmdSpoolDir=%[3]s/spool-%%n
SlurmctldPidFile=%[3]s/slurmctld.pid
SlurmdPidFile=%[3]s/slurmd-%%n.pid
SlurmctldLogFile=%[3]s/slurmctld.log
SlurmdLogFile=%[3]s/slurmd-%%n.log
SlurmdParameters=config_overrides
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
MpiDefault=none
ReturnToService=2
`

// Start starts a Slurm in a directory of its own, whose controller runs at the first node. It returns the variable that leads
// Slurm's commands there. They have to run at the first node. Start skips the test where Slurm is not installed or slurmd
// does not start. When the test ends, no process of it is left.
func Start(t testing.TB, nodes ...Node) (env string) {
	t.Helper()
	munged, slurmctld, slurmd := installed(t, "munged", "munge"), installed(t, "slurmctld", "slurm-wlm"), installed(t, "slurmd", "slurm-wlm")
	installed(t, "srun", "slurm-wlm")
	dir := t.TempDir()
	me, err := user.Current()
	if err != nil {
		t.Fatal(err)
	}
	key := make([]byte, 128)
	rand.Read(key)
	write := func(name string, content []byte, mode os.FileMode) {
		if err := os.WriteFile(filepath.Join(dir, name), content, mode); err != nil {
			t.Fatal(err)
		}
	}
	first := nodes[0]
	controller, node := proctest.FreePort(t), proctest.FreePort(t)
	conf := fmt.Appendf(nil, slurmConf, first.Name, first.Addr, dir, me.Username, controller, node)
	directories := []string{"state"}
	for _, n := range nodes {
		conf = fmt.Appendf(conf, "NodeName=%s NodeAddr=%s CPUs=4 State=UNKNOWN\n", n.Name, n.Addr)
		directories = append(directories, "spool-"+n.Name)
	}
	conf = append(conf, "PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP\n"...)
	write("munge.key", key, 0o400)
	write("slurm.conf", conf, 0o644)
	for _, name := range directories {
		if err := os.Mkdir(filepath.Join(dir, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	env = "SLURM_CONF=" + dir + "/slurm.conf"
	t.Cleanup(func() { noProcess(t, env) }) // after the daemons have been ended
	socket := dir + "/munge.sock"
	startDaemon(t, env, munged, "--foreground", "--force", "--socket="+socket, "--key-file="+dir+"/munge.key",
		"--pid-file="+dir+"/munge.pid", "--seed-file="+dir+"/munge.seed", "--log-file="+dir+"/munge.log")
	wait(t, "munged", func() bool { return exec.Command("munge", "--no-input", "--socket="+socket).Run() == nil })
	startDaemon(t, env, first.Command(slurmctld, "-D")...)
	var daemons []*daemon
	for _, n := range nodes {
		daemons = append(daemons, startDaemon(t, env, n.Command(slurmd, "-D")...))
	}
	idle := fmt.Sprintf("%d idle\n", len(nodes))
	wait(t, "slurmd", func() bool {
		for _, d := range daemons {
			select {
			case <-d.ended:
				t.Skipf("slurmd cannot start here: %s", d.out.Bytes())
			default:
			}
		}
		_, out, _ := Launch(t, []string{env}, first.Command("sinfo", "--noheader", "--format=%D %T")...)
		return out == idle
	})
	return env
}

// installed returns the path of a program, or skips the test.
func installed(t testing.TB, name, debian string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		t.Skipf("%s is not installed (Debian: %s): %v", name, debian, err)
	}
	return path
}

// Launch runs a command until nothing is left of it, and returns its exit status and its output.
func Launch(t testing.TB, env []string, args ...string) (status int, stdout, stderr string) {
	t.Helper()
	path, err := exec.LookPath(args[0])
	if err != nil {
		t.Fatal(err)
	}
	return proctest.Run(t, Command(env, path, args[1:]...))
}

// queueLine is what srun prints while the nodes of an earlier job are not free again.
var queueLine = regexp.MustCompile(`(?m)^srun: job \d+ (queued and waiting for resources|has been allocated resources)\n`)

// WithoutQueue returns the standard error of srun without its lines about waiting for nodes.
func WithoutQueue(stderr string) string { return queueLine.ReplaceAllString(stderr, "") }

// wait calls ready until it returns true: daemons do not report that they are ready.
func wait(t testing.TB, what string, ready func() bool) {
	t.Helper()
	proctest.Eventually(t, what+" is ready", func() bool {
		time.Sleep(50 * time.Millisecond)
		return ready()
	})
}

type daemon struct {
	out   bytes.Buffer // to be read when it has ended
	ended chan struct{}
}

func startDaemon(t testing.TB, env string, args ...string) *daemon {
	t.Helper()
	d := &daemon{ended: make(chan struct{})}
	path, err := exec.LookPath(args[0])
	if err != nil {
		t.Fatal(err)
	}
	cmd := Command([]string{env}, path, args[1:]...)
	cmd.Stdout, cmd.Stderr = &d.out, &d.out
	cmd.WaitDelay = proctest.Timeout
	cmd.SysProcAttr.Pdeathsig = syscall.SIGTERM // the reaper then ends the daemon
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(d.ended)
		_ = cmd.Wait()
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		select {
		case <-d.ended:
		case <-time.After(proctest.Timeout):
			t.Errorf("%s does not end", args)
			_ = cmd.Process.Kill()
			<-d.ended
		}
		if t.Failed() {
			t.Logf("%s: %s", args, &d.out)
		}
	})
	return d
}

// noProcess fails the test if a process that has variable in its environment stays.
func noProcess(t testing.TB, variable string) {
	t.Helper()
	var left []string
	proctest.Eventually(t, "no process of the daemons is left", func() bool {
		time.Sleep(50 * time.Millisecond)
		left = left[:0]
		all, err := filepath.Glob("/proc/[0-9]*/environ")
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range all {
			environ, err := os.ReadFile(name)
			if err == nil && bytes.Contains(environ, []byte(variable)) {
				left = append(left, name)
			}
		}
		return len(left) == 0
	}, &left)
}
