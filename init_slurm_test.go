package softnd

import (
	"bytes"
	"crypto/rand"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/softnd/softnd/internal/proctest"
)

// slurm.conf of a cluster of this host alone, all of whose files are in one directory:
// host, directory, user, two ports.
const slurmConf = `ClusterName=softnd
SlurmctldHost=%[1]s(127.0.0.1)
SlurmctldPort=%[4]d
SlurmdPort=%[5]d
AuthType=auth/munge
AuthInfo=socket=%[2]s/munge.sock
CredType=cred/munge
SlurmUser=%[3]s
SlurmdUser=%[3]s
StateSaveLocation=%[2]s/state
SlurmdSpoolDir=%[2]s/spool
SlurmctldPidFile=%[2]s/slurmctld.pid
SlurmdPidFile=%[2]s/slurmd.pid
SlurmctldLogFile=%[2]s/slurmctld.log
SlurmdLogFile=%[2]s/slurmd.log
SlurmdParameters=config_overrides
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
MpiDefault=none
ReturnToService=2
NodeName=%[1]s NodeAddr=127.0.0.1 CPUs=4 State=UNKNOWN
PartitionName=all Nodes=%[1]s Default=YES MaxTime=INFINITE State=UP
`

// startSlurm starts a Slurm of one node in a directory of its own, and returns the
// variable that leads its commands there. It skips the test where Slurm is not
// installed or slurmd does not start. When the test ends, no process of it is left.
func startSlurm(t *testing.T) (env string) {
	t.Helper()
	daemons := []string{installed(t, "munged", "munge"), installed(t, "slurmctld", "slurm-wlm"), installed(t, "slurmd", "slurm-wlm")}
	installed(t, "srun", "slurm-wlm")
	dir := t.TempDir()
	me, err := user.Current()
	if err != nil {
		t.Fatal(err)
	}
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	host, _, _ = strings.Cut(host, ".")
	key := make([]byte, 128)
	rand.Read(key)
	write := func(name string, content []byte, mode os.FileMode) {
		if err := os.WriteFile(filepath.Join(dir, name), content, mode); err != nil {
			t.Fatal(err)
		}
	}
	write("munge.key", key, 0o400)
	write("slurm.conf", fmt.Appendf(nil, slurmConf, host, dir, me.Username, freePort(t), freePort(t)), 0o644)
	for _, name := range []string{"state", "spool"} {
		if err := os.Mkdir(filepath.Join(dir, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	env = "SLURM_CONF=" + dir + "/slurm.conf"
	t.Cleanup(func() { noProcess(t, env) }) // after the daemons have been ended
	socket := dir + "/munge.sock"
	startDaemon(t, env, daemons[0], "--foreground", "--force", "--socket="+socket, "--key-file="+dir+"/munge.key",
		"--pid-file="+dir+"/munge.pid", "--seed-file="+dir+"/munge.seed", "--log-file="+dir+"/munge.log")
	wait(t, "munged", func() bool { return exec.Command("munge", "--no-input", "--socket="+socket).Run() == nil })
	startDaemon(t, env, daemons[1], "-D")
	slurmd := startDaemon(t, env, daemons[2], "-D")
	wait(t, "slurmd", func() bool {
		select {
		case <-slurmd.ended:
			t.Skipf("slurmd cannot start here: %s", slurmd.out.Bytes())
		default:
		}
		_, out, _ := launch(t, []string{env}, "sinfo", "--noheader", "--format=%T")
		return out == "idle\n"
	})
	return env
}

func freePort(t *testing.T) int {
	t.Helper()
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

// wait calls ready until it returns true: daemons do not report that they are ready.
func wait(t *testing.T, what string, ready func() bool) {
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

func startDaemon(t *testing.T, env, path string, args ...string) *daemon {
	t.Helper()
	d := &daemon{ended: make(chan struct{})}
	cmd := proctest.Command(roleReaper, append([]string{path}, args...)...)
	cmd.Env = append(cmd.Env, env)
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
			t.Errorf("%s does not end", path)
			_ = cmd.Process.Kill()
			<-d.ended
		}
		if t.Failed() {
			t.Logf("%s: %s", path, &d.out)
		}
	})
	return d
}

// noProcess fails the test if a process that has variable in its environment stays.
func noProcess(t *testing.T, variable string) {
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

func TestInitUnderSlurm(t *testing.T) {
	env := []string{startSlurm(t)}
	t.Run("heat", func(t *testing.T) {
		computes(t, env, []string{"srun", "--mpi=pmi2"}, "a launcher that speaks PMI (job 1.0)")
	})
	t.Run("heat without PMI", func(t *testing.T) {
		computes(t, env, []string{"srun", "--mpi=none"}, "Slurm's srun, ")
	})
	t.Run("abort", func(t *testing.T) {
		if status := aborts(t, env, []string{"srun", "--mpi=pmi2"}); status == 0 {
			t.Error("exit status 0")
		}
	})
}
