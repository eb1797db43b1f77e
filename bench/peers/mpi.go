package peers

import (
	"context"
	"fmt"
	"strconv"
	"strings"
)

// mpiCalls are the calls of the MPI program in each test.
var mpiCalls = map[string]string{
	"write_lat": "MPI_Put, MPI_Win_flush",
	"posted":    "MPI_Put, MPI_Win_flush",
	"write_bw":  "64 MPI_Put, MPI_Win_flush",
	"send_lat":  "MPI_Send, MPI_Recv",
	"send_bw":   "64 MPI_Isend, MPI_Irecv",
	"msg_rate":  "64 MPI_Isend, MPI_Irecv",
	"barrier":   "MPI_Barrier",
}

// openMPI measures with Open MPI. With fewer ranks than slots it spins, with more it yields. A slot is a core, but two
// ranks always spin, as those of the other peers do. An option keeps Open MPI from searching other hosts, for which it
// needs ssh.
func openMPI(s *session, f Figure) []*way {
	slots := max(2, len(s.cores))
	launch := program{argv: []string{"mpiexec.openmpi", "--allow-run-as-root", "--bind-to", "none",
		"--host", "localhost:" + strconv.Itoa(slots)}}
	if f.Ranks > slots {
		launch.argv = append(launch.argv, "--oversubscribe")
	}
	launch.env = []string{"OMPI_MCA_plm=isolated"}
	if s.shared != "" {
		launch.env = append(launch.env, "OMPI_MCA_btl_vader_backing_directory="+s.shared,
			"OMPI_MCA_osc_sm_backing_directory="+s.shared)
	}
	return s.mpi(launch, f)
}

func mpich(s *session, f Figure) []*way {
	return s.mpi(program{argv: []string{"mpiexec.mpich", "-launcher", "fork", "-bind-to", "none"}}, f)
}

// mpi runs the MPI program by this launcher. The program binds itself to its cores, because the options of launchers
// differ, and depend on the numbers of the cores.
func (s *session) mpi(launch program, f Figure) []*way {
	mode := f.Test
	if mode == "msg_rate" {
		mode = "send_bw"
	}
	run := func(ctx context.Context) (sample, error) {
		ctx, cancel := s.limit(ctx)
		defer cancel()
		defer s.sweep()
		p := launch
		p.argv = append(p.argv[:len(p.argv):len(p.argv)], "-n", strconv.Itoa(f.Ranks), s.mpiProgram(), mode,
			strconv.Itoa(f.Size), strconv.Itoa(s.o.iterations), fmt.Sprint(s.o.Duration.Seconds()), "1")
		if s.o.Pinned {
			p.argv = append(p.argv, strings.Trim(strings.ReplaceAll(fmt.Sprint(s.cores), " ", ","), "[]"))
		}
		r, err := s.start(ctx, p)
		if err != nil {
			return sample{}, err
		}
		text, err := r.wait()
		if err != nil {
			return sample{}, err
		}
		return parseMPI(launch.argv[0], text)
	}
	return []*way{{name: mpiCalls[f.Test], run: run}}
}

// parseMPI reads the line "figure,ITERATIONS,NANOSECONDS". Other lines are messages of the launcher.
func parseMPI(launcher, output string) (found sample, err error) {
	const form = "figure,ITERATIONS,NANOSECONDS"
	for line := range strings.Lines(output) {
		line = strings.TrimSpace(line)
		if !strings.HasPrefix(line, "figure,") {
			continue
		}
		if _, err := fmt.Sscanf(line, "figure,%d,%g", &found.iterations, &found.ns); err != nil || !(found.ns > 0) {
			return found, fmt.Errorf("%s: line %q: expected %s", launcher, line, form)
		}
		return found, nil
	}
	return found, fmt.Errorf("%s: line %q: expected %s", launcher, firstLine(output), form)
}
