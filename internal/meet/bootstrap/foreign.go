package bootstrap

// TWIN c/src/meet/foreign.c.

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/softnd/softnd/internal/meet/pmi"
	"github.com/softnd/softnd/shm"
)

// Under a launcher other than ndrun, the ranks of a job open a fabric together (see
// [shm.OpenFabric]). From the launcher they need their rank, the size of the job, and a name for
// the fabric that no other job has.

// finalizeTimeout bounds the call that tells a PMI launcher that this rank ends well.
const finalizeTimeout = 5 * time.Second

// hydraName is the beginning of Hydra's names of jobs. Hydra ends a job when a rank dies, and reports how the rank has ended. It
// notices that by the end of the rank's connection, of which another process must have no duplicate.
const hydraName = "kvs_"

const takenNext = "start each rank once"

// inFabric returns the place of a rank in the fabric of a name.
func inFabric(ctx context.Context, launcher, name string, rank, size int) (*Place, error) {
	arena, err := shm.OpenFabric(ctx, name, shm.Config{Ranks: size})
	if err != nil {
		return nil, err
	}
	return &Place{launcher: launcher + ", meeting as " + name, Rank: rank, Size: size, Local: rank, RankTakenHint: takenNext, Arena: arena}, nil
}

// placeOverPMI agrees with the other ranks on a fabric, over the launcher's PMI.
func placeOverPMI(ctx context.Context) (*Place, error) {
	client, err := pmi.Dial(ctx)
	if err != nil {
		return nil, err
	}
	p, err := meet(ctx, client, fmt.Sprintf("started by a launcher that speaks PMI (job %s)", client.JobName()), client.Rank, client.Size, nil)
	if err != nil {
		return nil, errors.Join(err, hangUp(client, err))
	}
	if p.Hosts != nil && !strings.HasPrefix(client.JobName(), hydraName) {
		p.Hosts.Launcher = client.Dup
	}
	p.leave = func() error {
		if p.Hosts != nil && p.Hosts.RelayFinalizes {
			return client.HangUp()
		}
		ctx, cancel := context.WithTimeout(context.Background(), finalizeTimeout)
		defer cancel()
		return client.Finalize(ctx)
	}
	p.hangUp = func(cause error) error { return hangUp(client, cause) }
	p.abort = func(code int, _ string) error { return client.Abort(code) }
	p.LauncherHidesReason = true
	return p, nil
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
		return nil, fmt.Errorf("%s runs the job on several hosts (%s is %d, not %d), but its ranks cannot meet through it: start the job with %s for one host, or set %s and %s", e.name, e.local, local, all, e.oneHost, EnvRoot, EnvSecret)
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
	return inFabric(ctx, "started by "+e.name, name, rank, size)
}

// digest returns a short hash of text that can be part of a fabric's name.
func digest(text string) string {
	return fullDigest(text)[:24]
}

func fullDigest(text string) string {
	return fmt.Sprintf("%x", sha256.Sum256([]byte(text)))
}
