package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/softnd/softnd"
	"github.com/softnd/softnd/internal/meet/controlchannel"
	"github.com/softnd/softnd/launcher"
	"github.com/softnd/softnd/nd"
	"github.com/softnd/softnd/shm"
)

// trialRanks is the number of ranks of the job that ndinfo tries.
const trialRanks = 2

// trialTimeout limits the trial job. It takes well under a second on a working machine.
var trialTimeout = 20 * time.Second // tests change it

// rankName is argv[0] of the ranks, which run this executable.
const rankName = "ndinfo-rank"

const jobCheck = "job"

// findings is the JSON object that a rank prints.
type findings struct {
	Failed  *check   `json:"failed,omitempty"`
	Adapter *adapter `json:"adapter,omitempty"`
}

// tryJob runs a job as ndrun does. Its ranks connect, and one writes through a window of the other.
func tryJob() (check, []adapter) {
	ctx, cancel := context.WithTimeoutCause(context.Background(), trialTimeout,
		fmt.Errorf("the job has not ended in %v: if the machine is busy, try again later", trialTimeout))
	defer cancel()
	var out, errOut bytes.Buffer
	report, err := runJob(ctx, &out, &errOut)
	var adapters []adapter
	var failures []check
	for d := json.NewDecoder(&out); ; {
		var f findings
		if d.Decode(&f) != nil {
			break
		}
		if f.Failed != nil {
			failures = append(failures, *f.Failed)
		}
		if f.Adapter != nil {
			adapters = append(adapters, *f.Adapter)
		}
	}
	switch {
	case report != nil && len(report.LimitsReached) > 0:
		return failed(errors.New(report.LimitsReached[0])), adapters
	case len(failures) > 0:
		return failures[0], adapters
	case err != nil:
		return failed(err), adapters
	case report.ExitStatus() != 0:
		firstLine, _, _ := strings.Cut(errOut.String(), "\n")
		return failed(errors.New(strings.Join(append(report.Messages(), firstLine), ", "))), adapters
	}
	return good(jobCheck, "%d ranks started, connected and wrote %d bytes through a window", trialRanks, trialBytes), adapters
}

// runJob runs the job with the environment and descriptors of ndrun, but without PMI.
func runJob(ctx context.Context, out, errOut io.Writer) (*launcher.Report, error) {
	job := launcher.Prepare(trialRanks)
	defer job.Close()
	arena, err := shm.Create(shm.Config{Ranks: trialRanks})
	if err != nil {
		return nil, err
	}
	defer arena.Close()
	channel, err := controlchannel.Listen(trialRanks, arena.File(), nil, arena.Info().ID, func(int, int, string) {})
	if err != nil {
		return nil, err
	}
	defer channel.Close()
	return job.Run(ctx, launcher.Config{
		Apps:  []launcher.App{{Ranks: trialRanks, Path: "/proc/self/exe", Args: []string{rankName}, Env: ownEnvironment()}},
		Files: []*os.File{arena.File()},
		RankSocket: func(_ int, file *os.File) error {
			return file.Close() // the ranks do not use PMI
		},
		RankEnv: func(rank int) []string {
			return []string{
				softnd.EnvRank + "=" + strconv.Itoa(rank),
				softnd.EnvSize + "=" + strconv.Itoa(trialRanks),
				softnd.EnvArenaFD + "=" + strconv.Itoa(launcher.FirstFile),
				softnd.EnvControl + "=" + channel.Address().String(),
			}
		},
		Stdout: out,
		Stderr: errOut,
		Output: launcher.Output{Raw: true},
	})
}

// ownEnvironment returns the environment without the variables that a launcher has set for ndinfo.
// Those that users set remain, so that the ranks check them.
func ownEnvironment() (env []string) {
	setByUsers := []string{softnd.EnvExec, softnd.EnvReceiveTimeout, softnd.EnvIntegrity, softnd.EnvWeakOrder, softnd.EnvCheck, softnd.EnvCheckIgnore,
		softnd.EnvDebug}
	for _, entry := range os.Environ() {
		name, _, _ := strings.Cut(entry, "=")
		if !strings.HasPrefix(name, "SOFTND_") || slices.Contains(setByUsers, name) {
			env = append(env, entry)
		}
	}
	return env
}

// failed returns a failed check of the job. The advice of an error that has a field for it becomes
// the remedy, and is removed from the text. Other errors end with their advice.
func failed(err error) check {
	var next string
	text := err.Error()
	if s, ok := errors.AsType[*shm.NoMemoryError](err); ok {
		next = s.Hint
	} else if o, ok := errors.AsType[*nd.OpError](err); ok {
		next = o.Next
	}
	if next != "" {
		text = strings.Replace(text, ": "+next, "", 1)
	}
	return bad(fail, jobCheck, text, next)
}
