package measure

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/softnd/softnd"
	"github.com/softnd/softnd/bench/report"
	"github.com/softnd/softnd/shm"
)

// orderVariable is an environment variable. If it contains an order, the test binary plays the ranks of a job and runs
// no tests.
const orderVariable = "MEASURE_TEST_ORDER"

// order is the work of the ranks of a job.
type order struct {
	Test    string
	Options Options
}

// watchdog ends what hangs.
const watchdog = 2 * time.Minute

func TestMain(m *testing.M) {
	if text, ok := os.LookupEnv(orderVariable); ok {
		if err := obey(text); err != nil {
			fmt.Fprintln(os.Stderr, "rank", os.Getenv(softnd.EnvRank)+":", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func obey(text string) (err error) {
	var o order
	if err := json.Unmarshal([]byte(text), &o); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), watchdog)
	defer cancel()
	job, err := softnd.Init(ctx)
	if err != nil {
		return err
	}
	defer job.Close()
	w, err := NewWorld(ctx, job, o.Options.Pinned)
	if err != nil {
		return err
	}
	for _, t := range Tests() {
		if t.Name != o.Test {
			continue
		}
		results, err := t.Run(ctx, w, o.Options)
		if err == nil && job.Rank() == 0 {
			err = json.NewEncoder(os.Stdout).Encode(results)
		}
		if err != nil {
			return err
		}
		return job.Barrier(ctx)
	}
	return fmt.Errorf("no test %q", o.Test)
}

// runJob runs a test with this many ranks, each a process, and returns the results of rank 0.
func runJob(t *testing.T, ranks int, test string, o Options) []report.Result {
	t.Helper()
	arena, err := shm.Create(shm.Config{Ranks: ranks})
	if err != nil {
		t.Fatal(err)
	}
	defer arena.Close()
	text, err := json.Marshal(order{test, o})
	if err != nil {
		t.Fatal(err)
	}
	var out, errs bytes.Buffer
	var all []*exec.Cmd
	for rank := range ranks {
		cmd := exec.Command(os.Args[0])
		cmd.SysProcAttr = &unix.SysProcAttr{Pdeathsig: unix.SIGKILL}
		cmd.Env = append(os.Environ(), orderVariable+"="+string(text), softnd.EnvRank+"="+strconv.Itoa(rank),
			softnd.EnvSize+"="+strconv.Itoa(ranks), softnd.EnvArenaFD+"=3", softnd.EnvExec+"="+o.Executor)
		cmd.ExtraFiles = []*os.File{arena.File()}
		cmd.Stderr = os.Stderr
		if rank == 0 {
			cmd.Stdout, cmd.Stderr = &out, &errs
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		all = append(all, cmd)
	}
	for rank, cmd := range all {
		if err := cmd.Wait(); err != nil {
			t.Errorf("rank %d: %v %s", rank, err, errs.String())
		}
	}
	var found []report.Result
	if err := json.Unmarshal(out.Bytes(), &found); err != nil && !t.Failed() {
		t.Error(err)
	}
	if t.Failed() {
		t.FailNow()
	}
	return found
}
