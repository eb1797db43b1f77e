package bootstrap

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/softnd/softnd/internal/pmi"
	"github.com/softnd/softnd/shm"
)

// Under a launcher other than ndrun, the ranks of a job open a fabric together (see
// [shm.OpenFabric]). From the launcher they need their rank, the size of the job, and a name for
// the fabric that no other job has.

// The keys of PMI's key-value space under which ranks publish what the others need.
const (
	hostKey   = "softnd-host-%d" // of each rank: its hostInfo
	fabricKey = "softnd-fabric"  // of rank 0: the name of the fabric, or why there is none
)

// Prefixes of the value of fabricKey.
const (
	fabricName  = "name"
	fabricError = "error"
)

// finalizeTimeout bounds the call that tells a PMI launcher that this rank ends well.
const finalizeTimeout = 5 * time.Second

// inFabric returns the place of a rank in the fabric of a name.
func inFabric(ctx context.Context, launcher, name string, rank, size int) (*Place, error) {
	fabric, err := shm.OpenFabric(ctx, name, shm.Config{Ranks: size})
	if err != nil {
		return nil, err
	}
	return &Place{launcher: launcher, Rank: rank, Taken: "start each rank once", Arena: fabric.Arena, detach: fabric.Close}, nil
}

// fromPMI agrees with the other ranks on a fabric, over the launcher's PMI.
func fromPMI(ctx context.Context) (*Place, error) {
	client, err := pmi.Dial(ctx)
	if err != nil {
		return nil, err
	}
	name, err := agreeOnFabric(ctx, client)
	if err != nil {
		return nil, errors.Join(err, client.HangUp())
	}
	p, err := inFabric(ctx, fmt.Sprintf("started by a launcher that speaks PMI (job %s), meeting as %s", client.JobName(), name), name, client.Rank, client.Size)
	if err != nil {
		return nil, errors.Join(err, client.HangUp())
	}
	p.leave = func() error {
		ctx, cancel := context.WithTimeout(context.Background(), finalizeTimeout)
		defer cancel()
		return client.Finalize(ctx)
	}
	p.hangUp = client.HangUp
	p.abort = func(code int, _ string) error { return client.Abort(code) }
	p.Mute = true
	return p, nil
}

// agreeOnFabric returns the name of the fabric, which rank 0 chooses. Rank 0 also checks whether all
// ranks can open it, so that all get the same answer.
func agreeOnFabric(ctx context.Context, client *pmi.Client) (string, error) {
	own := thisHost()
	if err := client.Put(ctx, fmt.Sprintf(hostKey, client.Rank), own.String()); err != nil {
		return "", err
	}
	if err := client.Barrier(ctx); err != nil {
		return "", err
	}
	if client.Rank == 0 {
		answer, err := chooseFabric(ctx, client, own)
		if err != nil {
			return "", err
		}
		if err := client.Put(ctx, fabricKey, answer); err != nil {
			return "", err
		}
	}
	if err := client.Barrier(ctx); err != nil {
		return "", err
	}
	answer, err := client.Get(ctx, fabricKey)
	if err != nil {
		return "", err
	}
	kind, text, _ := strings.Cut(answer, ":")
	if text, err = url.QueryUnescape(text); err != nil {
		return "", fmt.Errorf("pmi: value of %s: %w", fabricKey, err)
	}
	if kind != fabricName {
		return "", errors.New(text)
	}
	return text, nil
}

// chooseFabric returns rank 0's value of fabricKey.
func chooseFabric(ctx context.Context, client *pmi.Client, own hostInfo) (string, error) {
	for rank := 1; rank < client.Size; rank++ {
		text, err := client.Get(ctx, fmt.Sprintf(hostKey, rank))
		if err != nil {
			return "", err
		}
		theirs, err := parseHostInfo(text)
		if err != nil {
			return "", fmt.Errorf("pmi: host of rank %d: %w", rank, err)
		}
		if why := own.separated(theirs, rank); why != "" {
			return fabricError + ":" + url.QueryEscape(why), nil
		}
	}
	return fabricName + ":" + url.QueryEscape("pmi-"+digest(client.JobName())+"-"+rand.Text()), nil
}

// hostInfo says where a process runs, as far as that decides whether two processes can open the
// same fabric.
type hostInfo struct {
	boot    string // identity of the kernel's boot; "" if it cannot be read
	network string // network namespace, which holds the names of fabrics
	user    int
	host    string // for people
}

func thisHost() hostInfo {
	boot, _ := os.ReadFile("/proc/sys/kernel/random/boot_id") // a container may hide it
	network, _ := os.Readlink("/proc/self/ns/net")
	host, err := os.Hostname()
	if err != nil {
		host = "?"
	}
	return hostInfo{strings.TrimSpace(string(boot)), network, os.Geteuid(), host}
}

// String returns h as a value of PMI, which has no spaces.
func (h hostInfo) String() string {
	return url.Values{"boot": {h.boot}, "network": {h.network}, "user": {strconv.Itoa(h.user)}, "host": {h.host}}.Encode()
}

func parseHostInfo(s string) (hostInfo, error) {
	v, err := url.ParseQuery(s)
	if err != nil {
		return hostInfo{}, err
	}
	user, err := strconv.Atoi(v.Get("user"))
	return hostInfo{v.Get("boot"), v.Get("network"), user, v.Get("host")}, err
}

// separated returns why rank 0, on h, cannot open a fabric together with another rank, and "" if
// it can.
func (h hostInfo) separated(other hostInfo, rank int) string {
	switch {
	case other.boot != h.boot:
		return fmt.Sprintf("rank %d runs on host %s, rank 0 on host %s; softnd's ranks share the memory of one host: ask the launcher for one (mpiexec without -hosts, srun -N 1)", rank, other.host, h.host)
	case other.network != h.network:
		return fmt.Sprintf("rank %d is in another network namespace (%s) than rank 0 (%s): run both in the same, or start the job with ndrun inside", rank, other.network, h.network)
	case other.user != h.user:
		return fmt.Sprintf("rank %d runs as user %d, rank 0 as user %d: run all as one", rank, other.user, h.user)
	}
	return ""
}

// environment describes a launcher that tells its ranks all that they need in variables.
type environment struct {
	name       string
	rank, size string   // names of variables
	local, all string   // the same number in both if the job is on one host
	job        []string // the first is the job's number; no other job has the same values of all
	oneHost    string   // how to ask for one host
	prefix     string   // of the fabric's name
}

var openMPI = environment{
	name: "Open MPI's mpirun",
	rank: "OMPI_COMM_WORLD_RANK", size: "OMPI_COMM_WORLD_SIZE",
	local: "OMPI_COMM_WORLD_LOCAL_SIZE", all: "OMPI_COMM_WORLD_SIZE",
	job:     []string{"PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid", "PMIX_SERVER_URI2", "OMPI_MCA_orte_precondition_transports"},
	oneHost: "mpirun --host localhost:N", prefix: "openmpi",
}

// slurm is for steps without the pmi2 plugin (--mpi=none).
var slurm = environment{
	name: "Slurm's srun",
	rank: "SLURM_PROCID", size: "SLURM_STEP_NUM_TASKS",
	local: "SLURM_STEP_NUM_NODES", all: "one",
	job:     []string{"SLURM_STEP_ID", "SLURM_JOB_ID", "SLURM_CLUSTER_NAME", "SLURM_SRUN_COMM_PORT"},
	oneHost: "srun -N 1", prefix: "slurm",
}

// place reads the variables and returns the place that they name.
func (e environment) place(ctx context.Context) (*Place, error) {
	number := func(name string) (int, error) {
		if name == "one" {
			return 1, nil
		}
		n, err := strconv.ParseUint(os.Getenv(name), 10, 31)
		if err != nil {
			return 0, fmt.Errorf("%s=%q, set by %s: want a number", name, os.Getenv(name), e.name)
		}
		return int(n), nil
	}
	rank, err1 := number(e.rank)
	size, err2 := number(e.size)
	local, err3 := number(e.local)
	all, err4 := number(e.all)
	if err := errors.Join(err1, err2, err3, err4); err != nil {
		return nil, err
	}
	if rank >= size {
		return nil, fmt.Errorf("%s=%d is not a rank of %s=%d: want a rank from 0 to size-1", e.rank, rank, e.size, size)
	}
	if local != all {
		return nil, fmt.Errorf("%s runs the job on several hosts (%s is %d, not %d), but softnd's ranks share the memory of one host: start the job with %s", e.name, e.local, local, all, e.oneHost)
	}
	var of strings.Builder
	known := false
	for _, name := range e.job {
		value := os.Getenv(name)
		known = known || value != ""
		fmt.Fprintf(&of, "%s=%s\n", name, value)
	}
	if !known {
		return nil, fmt.Errorf("%[1]s has set %[2]s, but none of %[3]s, which identify the job: start the program with %[1]s, or unset %[2]s",
			e.name, e.rank, strings.Join(e.job, ", "))
	}
	name := e.prefix + "-" + digest(of.String())
	return inFabric(ctx, fmt.Sprintf("started by %s, meeting as %s", e.name, name), name, rank, size)
}

// digest returns a short hash of text that can be part of a fabric's name.
func digest(text string) string {
	sum := sha256.Sum256([]byte(text))
	return fmt.Sprintf("%x", sum[:12])
}
