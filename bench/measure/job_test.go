package measure

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strconv"
	"testing"

	"github.com/softnd/softnd"
	"github.com/softnd/softnd/bench/report"
	"github.com/softnd/softnd/internal/testkit/proctest"
	"github.com/softnd/softnd/shm"
)

// order is the work of the ranks of a job.
type order struct {
	Test    string
	Options Options
}

func TestMain(m *testing.M) {
	proctest.Main()
	os.Exit(m.Run())
}

// roleRank executes the order in its argument.
var roleRank = proctest.Role("rank", runOrder)

func runOrder(self *proctest.Self) error {
	var o order
	if err := json.Unmarshal([]byte(self.Args[0]), &o); err != nil {
		return err
	}
	ctx := self.Ctx
	job, err := softnd.Init(ctx)
	if err != nil {
		return err
	}
	defer job.Close()
	w, err := NewWorld(ctx, job, o.Options.Pinned, [2]io.ReadWriter{}, nil)
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
	var all []*proctest.Process
	for rank := range ranks {
		cmd := proctest.Command(roleRank, string(text))
		cmd.Env = append(cmd.Env, softnd.EnvRank+"="+strconv.Itoa(rank), softnd.EnvSize+"="+strconv.Itoa(ranks),
			softnd.EnvArenaFD+"=3", softnd.EnvExec+"="+o.Executor)
		cmd.ExtraFiles = []*os.File{arena.File()}
		all = append(all, proctest.Start(t, cmd))
	}
	for _, p := range all {
		p.Wait()
	}
	var found []report.Result
	if err := json.Unmarshal([]byte(all[0].Out.String()), &found); err != nil && !t.Failed() {
		t.Error(err)
	}
	if t.Failed() {
		t.FailNow()
	}
	return found
}
