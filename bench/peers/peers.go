package peers

import (
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"time"
)

// Peer is a transport that Run can measure.
type Peer struct {
	Name    string // as in report.Result.Provider: ucx, libfabric, openmpi or mpich
	Title   string // for people
	program string
	debian  string // the Debian package with the program

	compiler need                              // what else it needs; empty if program is enough
	ways     func(s *session, f Figure) []*way // to measure f; none if it cannot
}

// need is a program, and the Debian package that has it.
type need struct{ program, pkg string }

// All returns the peers that this package knows, installed or not.
func All() []Peer {
	return []Peer{
		{Name: "ucx", Title: "UCX", program: "ucx_perftest", debian: "ucx-utils", ways: ucx},
		{Name: "libfabric", Title: "libfabric", program: "fi_pingpong", debian: "libfabric-bin", ways: libfabric},
		{
			Name: "openmpi", Title: "Open MPI", program: "mpiexec.openmpi", debian: "openmpi-bin",
			compiler: need{"mpicc.openmpi", "libopenmpi-dev"}, ways: openMPI,
		},
		{
			Name: "mpich", Title: "MPICH", program: "mpiexec.mpich", debian: "mpich",
			compiler: need{"mpicc.mpich", "libmpich-dev"}, ways: mpich,
		},
	}
}

// Missing returns the Debian packages to install before the peer can run, separated by spaces. It returns "" if none is
// missing.
func (p Peer) Missing() string {
	var packages []string
	for _, n := range p.needs() {
		if _, err := exec.LookPath(n.program); err != nil {
			packages = append(packages, n.pkg)
		}
	}
	return strings.Join(packages, " ")
}

func (p Peer) needs() []need {
	needs := []need{{p.program, p.debian}}
	if p.compiler != (need{}) {
		needs = append(needs, p.compiler)
	}
	return needs
}

// Options are the choices of a user. Zero values mean the default.
type Options struct {
	Tests      []string      // names of tests; nil = all that the peer has
	Sizes      []int         // bytes, from 1, for latencies and bandwidths; nil = 8, 64 KiB, 1 MiB
	ranks      []int         // of barriers, from 2; nil = 2, 8, 16
	iterations int           // of one repeat; 0 = as many as Duration takes
	Duration   time.Duration // of one repeat; 0 = 200 ms
	Repeats    int           // 0 = 5
	Pinned     bool          // each process is bound to a core, as package bench does
	timeout    time.Duration // after which one program is ended; 0 = 20 s and five times what its repeats should take
}

func (o Options) withDefaults() (Options, error) {
	if o.Sizes == nil {
		o.Sizes = []int{8, 64 << 10, 1 << 20}
	}
	if o.ranks == nil {
		o.ranks = []int{2, 8, 16}
	}
	if o.Duration == 0 {
		o.Duration = 200 * time.Millisecond
	}
	if o.Repeats == 0 {
		o.Repeats = 5
	}
	if o.timeout == 0 {
		o.timeout = 20*time.Second + time.Duration(5*o.Repeats)*o.Duration
	}
	switch {
	case slices.ContainsFunc(o.Sizes, func(n int) bool { return n < 1 }):
		return o, fmt.Errorf("peers: sizes %v: want 1 byte or more", o.Sizes)
	case slices.ContainsFunc(o.ranks, func(n int) bool { return n < 2 }):
		return o, fmt.Errorf("peers: barrier of %v ranks: want 2 or more", o.ranks)
	case o.iterations < 0 || o.Duration < 0 || o.Repeats < 0 || o.timeout < 0:
		return o, errors.New("peers: iterations, duration, repeats or timeout is negative: want 0 or more")
	}
	return o, nil
}
