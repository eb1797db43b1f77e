package launcher

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// jsonReport is the format that report.schema.json describes.
type jsonReport struct {
	Version      int           `json:"version"`
	Began        string        `json:"began"`
	WallSeconds  float64       `json:"wall_seconds"`
	ExitStatus   int           `json:"exit_status"`
	FirstFailure *int          `json:"first_failure"`
	StoppedBy    *string       `json:"stopped_by"`
	TimedOut     bool          `json:"timed_out"`
	Hang         []string      `json:"hang,omitempty"`
	Abort        *jsonAbort    `json:"abort"`
	OnDeath      string        `json:"on_death"`
	Errors       []string      `json:"errors"`
	Faults       any           `json:"faults,omitempty"`
	Ranks        []jsonRank    `json:"ranks"`
	Leftover     []jsonProcess `json:"leftover"`
	Stuck        []jsonProcess `json:"stuck"`
}

type jsonAbort struct {
	Rank   int    `json:"rank"`
	Code   int    `json:"code"`
	Reason string `json:"reason"`
}

type jsonRank struct {
	Rank            int     `json:"rank"`
	Program         string  `json:"program"`
	PID             *int    `json:"pid"`
	End             string  `json:"end"`
	ExitCode        *int    `json:"exit_code"`
	Signal          *string `json:"signal"`
	SignalNumber    *int    `json:"signal_number"`
	Stopped         bool    `json:"stopped"`
	CoreDumped      bool    `json:"core_dumped"`
	CorePath        string  `json:"core_path,omitempty"`
	CoreHandler     string  `json:"core_handler,omitempty"`
	WallSeconds     float64 `json:"wall_seconds"`
	UserSeconds     float64 `json:"user_seconds"`
	SystemSeconds   float64 `json:"system_seconds"`
	PeakMemoryBytes int64   `json:"peak_memory_bytes"`
	StderrTail      string  `json:"last_words,omitempty"`
}

type jsonProcess struct {
	PID  int    `json:"pid"`
	Name string `json:"name"`
}

// WriteJSON writes the report as one JSON object, see launcher/report.schema.json. status is the
// exit status of the calling program. err is the error that [Job.Run] returned.
func (r *Report) WriteJSON(w io.Writer, status int, err error) error {
	began := r.began
	if began.IsZero() { // no process has been started
		began = time.Now()
	}
	j := jsonReport{
		Version:     1,
		Began:       began.UTC().Format(time.RFC3339Nano),
		WallSeconds: r.wall.Seconds(),
		ExitStatus:  status,
		TimedOut:    r.TimedOut,
		OnDeath:     "stop",
		Hang:        r.Hang,
		Errors:      []string{},
		Faults:      r.Faults,
		Ranks:       []jsonRank{},
		Leftover:    processes(r.leftover),
		Stuck:       processes(r.stuck),
	}
	if r.GoesOn {
		j.OnDeath = "continue"
	}
	if first := r.firstToFail(); first >= 0 {
		j.FirstFailure = &first
	}
	if r.Abort != nil {
		j.Abort = &jsonAbort{r.Abort.Rank, r.Abort.exitCode(), r.Abort.Reason}
	}
	if r.Signal != 0 {
		name := shortName(r.Signal)
		j.StoppedBy = &name
	}
	if err != nil {
		j.Errors = strings.Split(err.Error(), "\n")
	}
	for rank := range r.Ranks {
		j.Ranks = append(j.Ranks, r.Ranks[rank].json(rank))
	}
	text, err := json.MarshalIndent(j, "", "\t")
	if err == nil {
		_, err = w.Write(append(text, '\n'))
	}
	if err != nil {
		return fmt.Errorf("write report: %w", err)
	}
	return nil
}

func (r *Result) json(rank int) jsonRank {
	j := jsonRank{
		Rank:            rank,
		Program:         r.Program,
		End:             "not started",
		Stopped:         r.Stopped,
		CorePath:        r.corePath,
		CoreHandler:     r.coreHandler,
		WallSeconds:     r.usage.Wall.Seconds(),
		UserSeconds:     r.usage.User.Seconds(),
		SystemSeconds:   r.usage.System.Seconds(),
		PeakMemoryBytes: r.usage.MaxRSS,
		StderrTail:      r.stderrTail,
	}
	if r.PID != 0 {
		j.PID, j.End = &r.PID, "unknown"
	}
	switch {
	case !r.Ended:
	case r.Status.Signaled():
		name, number := shortName(r.Status.Signal()), int(r.Status.Signal())
		j.End, j.Signal, j.SignalNumber, j.CoreDumped = "killed", &name, &number, r.Status.CoreDump()
	default:
		code := r.Status.ExitStatus()
		j.End, j.ExitCode = "exited", &code
	}
	return j
}

func processes(ps []process) []jsonProcess {
	all := []jsonProcess{}
	for _, p := range ps {
		all = append(all, jsonProcess(p))
	}
	return all
}

// shortName returns a signal's name, or SIG and its number for real-time signals, which have no
// names.
func shortName(sig syscall.Signal) string {
	if name := unix.SignalName(sig); name != "" {
		return name
	}
	return fmt.Sprintf("SIG%d", int(sig))
}
