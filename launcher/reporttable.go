package launcher

import (
	"fmt"
	"strings"
	"text/tabwriter"
)

// tableRows is the maximum number of ranks in the table. More would scroll the ranks' own output
// away.
const tableRows = 32

// Table returns lines with the end and the resource usage of each rank. The rank that failed
// first is marked. With more than 32 ranks, the table has only those that failed by themselves,
// and the number of the others.
func (r *Report) Table() []string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "rank\tend\twall\tcpu\tmemory")
	hidden := make(map[string]int)
	var kinds []string
	listed := 0
	for rank := range r.Ranks {
		one := &r.Ranks[rank]
		interesting := one.failed() && !one.Stopped
		if len(r.Ranks) > tableRows && rank != r.firstToFail() && (!interesting || listed >= tableRows-1) {
			kind := one.kind()
			if hidden[kind]++; hidden[kind] == 1 {
				kinds = append(kinds, kind)
			}
			continue
		}
		listed++
		u := one.usage
		fmt.Fprintf(w, "%d\t%s\t%.3f s\t%.3f s\t%.1f MiB\n", rank, r.end(rank),
			u.Wall.Seconds(), (u.User + u.System).Seconds(), float64(u.MaxRSS)/(1<<20))
	}
	w.Flush()
	lines := strings.Split(strings.TrimSuffix(b.String(), "\n"), "\n")
	for i, line := range lines {
		lines[i] = strings.TrimRight(line, " ")
	}
	if len(kinds) > 0 {
		for i, kind := range kinds {
			kinds[i] = fmt.Sprintf("%s %s", count(hidden[kind], "rank", "ranks"), kind)
		}
		lines = append(lines, "not listed: "+strings.Join(kinds, ", "))
	}
	return lines
}

// end returns a short text about how a rank ended, and whether it was the first to fail.
func (r *Report) end(rank int) string {
	switch {
	case r.Abort != nil && rank == r.Abort.Rank && !r.Abort.exited:
		return fmt.Sprintf("code %d, aborted the job", r.Abort.exitCode())
	case rank == r.firstToFail():
		return r.Ranks[rank].end() + ", first to fail"
	}
	return r.Ranks[rank].end()
}

// kind returns a word for a rank that is not in the table.
func (r *Result) kind() string {
	switch {
	case r.PID == 0:
		return "not started"
	case r.Stopped || !r.Ended:
		return "stopped"
	case r.failed():
		return "failed"
	}
	return "succeeded"
}

// end returns a short text about how a rank ended.
func (r *Result) end() string {
	var s string
	switch {
	case r.PID == 0:
		return "not started"
	case !r.Ended:
		return "unknown"
	case r.Status.Signaled():
		s = shortName(r.Status.Signal())
		if r.Status.CoreDump() {
			s += ", core dumped"
		}
	default:
		s = fmt.Sprintf("code %d", r.Status.ExitStatus())
	}
	if r.Stopped {
		s += ", stopped"
	}
	return s
}
