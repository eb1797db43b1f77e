package main

import (
	"bytes"
	"fmt"
	"os/exec"
	"slices"
	"testing"
	"time"

	"github.com/softnd/softnd/internal/testkit/proctest"
)

// BenchmarkStart64 starts and ends 64 ranks of true. If MPICH's launcher is installed, it does
// the same alternately. It reports the median and minimum times in milliseconds and the CPU time.
func BenchmarkStart64(b *testing.B) {
	const ranks = "64"
	type launcher struct {
		name    string
		command func() *exec.Cmd
		took    []time.Duration
		cores   []time.Duration
	}
	launchers := []*launcher{{name: "ndrun", command: func() *exec.Cmd { return built(b, nil, "-n", ranks, "true") }}}
	if hydra, err := exec.LookPath("mpiexec.hydra"); err == nil {
		launchers = append(launchers, &launcher{name: "hydra", command: func() *exec.Cmd { return exec.Command(hydra, "-n", ranks, "true") }})
	}
	launchers[0].command() // builds it
	for b.Loop() {
		for _, l := range launchers {
			cmd := l.command()
			begin := time.Now()
			if err := cmd.Run(); err != nil {
				b.Fatalf("%s: %v", l.name, err)
			}
			l.took = append(l.took, time.Since(begin))
			l.cores = append(l.cores, cmd.ProcessState.UserTime()+cmd.ProcessState.SystemTime())
		}
	}
	ms := func(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
	for _, l := range launchers {
		slices.Sort(l.took)
		slices.Sort(l.cores)
		b.ReportMetric(ms(l.took[len(l.took)/2]), l.name+"-ms")
		b.ReportMetric(ms(l.took[0]), l.name+"-min-ms")
		b.ReportMetric(ms(l.cores[len(l.cores)/2]), l.name+"-core-ms")
	}
	b.ReportMetric(0, "ns/op") // suppresses the meaningless total of both
}

// BenchmarkStart256 starts 256 ranks that join their job, enter a barrier and leave. It reports
// the median time in milliseconds, and the memory of the arena while all ranks are in it.
func BenchmarkStart256(b *testing.B) {
	var took []time.Duration
	var arena int
	for b.Loop() {
		cmd := built(b, []string{proctest.RoleEnv + "=job"}, "-n", "256", "--no-label", testBinary(b), "measure")
		begin := time.Now()
		out, err := cmd.Output()
		if err != nil {
			b.Fatal(err)
		}
		took = append(took, time.Since(begin))
		_, line, found := bytes.Cut(out, []byte("arena takes "))
		if _, err := fmt.Sscan(string(line), &arena); err != nil || !found || bytes.Count(out, []byte("met 256\n")) != 256 {
			b.Fatalf("%v: %s", err, out)
		}
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2])/float64(time.Millisecond), "median-ms")
	b.ReportMetric(float64(arena)/(1<<20), "arena-MiB")
	b.ReportMetric(0, "ns/op")
}
