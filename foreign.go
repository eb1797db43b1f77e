package softnd

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

// Under a launcher that knows nothing of softnd, the ranks of a job meet under the name
// of a fabric (see [shm.OpenFabric]). All that they need of the launcher is their rank,
// the size of the job, and a word for that name that no other job has.

// The keys under which ranks tell each other about themselves through PMI.
const (
	cardKey    = "softnd-card-%d" // of each rank: where it is
	verdictKey = "softnd-verdict" // of rank 0: whether all can meet, and under which name
)

// patience bounds what a rank tells its launcher at its end.
const patience = 5 * time.Second

// meet makes the place of a rank in the fabric of a name.
func meet(ctx context.Context, found, name string, rank, size int) (*place, error) {
	fabric, err := shm.OpenFabric(ctx, name, shm.Config{Ranks: size})
	if err != nil {
		return nil, err
	}
	return &place{found: found, rank: rank, twice: "start each rank once", arena: fabric.Arena(), detach: fabric.Close}, nil
}

// placeByPMI asks the launcher by PMI for a name, which rank 0 makes up.
func placeByPMI(ctx context.Context) (*place, error) {
	client, err := pmi.Dial(ctx)
	if err != nil {
		return nil, err
	}
	name, err := agree(ctx, client)
	if err != nil {
		return nil, errors.Join(err, client.HangUp())
	}
	p, err := meet(ctx, fmt.Sprintf("started by a launcher that speaks PMI (job %s), meeting as %s", client.JobName(), name), name, client.Rank, client.Size)
	if err != nil {
		return nil, errors.Join(err, client.HangUp())
	}
	p.leave = func() error {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		return client.Finalize(ctx)
	}
	p.hangUp = client.HangUp
	p.abort = func(code int, _ string) error { return client.Abort(code) }
	p.mute = true
	return p, nil
}

// agree returns the name under which the ranks meet. Rank 0 looks whether they can, so
// that all get the same answer at the price of one look at each.
func agree(ctx context.Context, client *pmi.Client) (string, error) {
	own := ownCard()
	if err := client.Put(ctx, fmt.Sprintf(cardKey, client.Rank), own.String()); err != nil {
		return "", err
	}
	if err := client.Barrier(ctx); err != nil {
		return "", err
	}
	if client.Rank == 0 {
		verdict, err := judge(ctx, client, own)
		if err != nil {
			return "", err
		}
		if err := client.Put(ctx, verdictKey, verdict); err != nil {
			return "", err
		}
	}
	if err := client.Barrier(ctx); err != nil {
		return "", err
	}
	verdict, err := client.Get(ctx, verdictKey)
	if err != nil {
		return "", err
	}
	kind, text, _ := strings.Cut(verdict, ":")
	if text, err = url.QueryUnescape(text); err != nil {
		return "", fmt.Errorf("what rank 0 has found: %w", err)
	}
	if kind != "meet" {
		return "", errors.New(text)
	}
	return text, nil
}

// judge is rank 0's look at the others.
func judge(ctx context.Context, client *pmi.Client, own card) (verdict string, err error) {
	for rank := 1; rank < client.Size; rank++ {
		text, err := client.Get(ctx, fmt.Sprintf(cardKey, rank))
		if err != nil {
			return "", err
		}
		theirs, err := parseCard(text)
		if err != nil {
			return "", fmt.Errorf("where rank %d is: %w", rank, err)
		}
		if why := own.apart(theirs, rank); why != "" {
			return "apart:" + url.QueryEscape(why), nil
		}
	}
	return "meet:" + url.QueryEscape("pmi-"+digest(client.JobName())+"-"+rand.Text()), nil
}

// card tells where a process is, as far as that decides whether it can meet others.
type card struct {
	boot    string // of the kernel; "" if it cannot be told
	network string // namespace of the network, in which names of fabrics hold
	user    int
	host    string // for people
}

func ownCard() card {
	boot, _ := os.ReadFile("/proc/sys/kernel/random/boot_id") // a container may hide it
	network, _ := os.Readlink("/proc/self/ns/net")
	host, err := os.Hostname()
	if err != nil {
		host = "?"
	}
	return card{strings.TrimSpace(string(boot)), network, os.Geteuid(), host}
}

// String is the card as a value of PMI: without spaces.
func (c card) String() string {
	return url.Values{"boot": {c.boot}, "network": {c.network}, "user": {strconv.Itoa(c.user)}, "host": {c.host}}.Encode()
}

func parseCard(s string) (card, error) {
	v, err := url.ParseQuery(s)
	if err != nil {
		return card{}, err
	}
	user, err := strconv.Atoi(v.Get("user"))
	return card{v.Get("boot"), v.Get("network"), user, v.Get("host")}, err
}

// apart says why the process of own, rank 0, cannot meet another rank's; "" if it can.
func (own card) apart(c card, rank int) string {
	switch {
	case c.boot != own.boot:
		return fmt.Sprintf("rank %d runs on host %s, rank 0 on host %s; softnd's ranks share the memory of one host: ask the launcher for one (mpiexec without -hosts, srun -N 1)", rank, c.host, own.host)
	case c.network != own.network:
		return fmt.Sprintf("rank %d is in another network namespace (%s) than rank 0 (%s), where they cannot meet; run both in the same, or start the job with ndrun inside", rank, c.network, own.network)
	case c.user != own.user:
		return fmt.Sprintf("rank %d runs as user %d, rank 0 as user %d; run all as one", rank, c.user, own.user)
	}
	return ""
}

// environment is a launcher that tells ranks in variables all that they need.
type environment struct {
	name       string
	rank, size string   // names of variables
	local, all string   // the same number in both if the job is on one host
	job        []string // the first is the job's number; together no other job has them
	oneHost    string   // how to ask for one host
	prefix     string   // of the name under which the ranks meet
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

// place makes the place of a rank out of variables.
func (e environment) place(ctx context.Context) (*place, error) {
	number := func(name string) (int, error) {
		if name == "one" {
			return 1, nil
		}
		n, err := strconv.ParseUint(os.Getenv(name), 10, 31)
		if err != nil {
			return 0, fmt.Errorf("%s=%q, as %s should have set it, is no number", name, os.Getenv(name), e.name)
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
		return nil, fmt.Errorf("%s=%d of %s=%d is no rank", e.rank, rank, e.size, size)
	}
	if local != all {
		return nil, fmt.Errorf("%s has put the job on several hosts (%s is %d, not %d); softnd's ranks share the memory of one: start it with %s", e.name, e.local, local, all, e.oneHost)
	}
	var of strings.Builder
	known := false
	for _, name := range e.job {
		value := os.Getenv(name)
		known = known || value != ""
		fmt.Fprintf(&of, "%s=%s\n", name, value)
	}
	if !known {
		return nil, fmt.Errorf("%s has set %s, but none of %s, which would tell one job from another; start the program with it, or unset %s",
			e.name, e.rank, strings.Join(e.job, ", "), e.rank)
	}
	name := e.prefix + "-" + digest(of.String())
	return meet(ctx, fmt.Sprintf("started by %s, meeting as %s", e.name, name), name, rank, size)
}

// digest makes a short word, fit for a name, of a text.
func digest(text string) string {
	sum := sha256.Sum256([]byte(text))
	return fmt.Sprintf("%x", sum[:12])
}
