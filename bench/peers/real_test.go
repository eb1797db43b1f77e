package peers

import (
	"slices"
	"strings"
	"testing"
)

// TestInstalledPeersGiveFigures runs the installed peers, too briefly for meaningful figures.
func TestInstalledPeersGiveFigures(t *testing.T) {
	if testing.Short() {
		t.Skip("the programs of others take seconds")
	}
	installed := runnable()
	if len(installed) == 0 {
		t.Skip("no peer is installed on this machine")
	}
	for _, p := range All() {
		if pkg := p.Missing(); pkg != "" {
			t.Logf("%s is not measured: it takes package %s", p.Title, pkg)
		}
	}
	for _, p := range installed {
		t.Run(p.Name, func(t *testing.T) {
			nothingLeft(t)
			o := Options{Sizes: []int{8}, ranks: []int{2}, iterations: 100, Repeats: 2, Pinned: true}
			results, err := measureAll(t.Context(), p, o)
			if err != nil && strings.Contains(err.Error(), "#include <mpi.h>") {
				t.Skipf("the headers of %s are not installed: %v", p.Title, err)
			}
			if err != nil {
				t.Error(err)
			}
			want := map[string]int{"ucx": 6, "libfabric": 1, "openmpi": 7, "mpich": 7}[p.Name]
			if len(results) != want {
				t.Errorf("%d figures, want %d", len(results), want)
			}
			for _, r := range results {
				t.Logf("%s of %d B: %.1f %s (%s)", r.Test, r.Size, r.Value, r.Unit, r.Note)
				if r.Provider != p.Name || !(r.Value > 0) || len(r.Repeats) != 2 || r.Iterations != 100 {
					t.Errorf("%+v", r)
				}
			}
		})
	}
}

// runnable returns the peers that can be run on this machine.
func runnable() []Peer {
	return slices.DeleteFunc(All(), func(p Peer) bool { return p.Missing() != "" })
}
