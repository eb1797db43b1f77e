package suite

import (
	"slices"

	"github.com/softnd/softnd/bench/report"
)

// minShare is the least share of the greatest width that a core has which is not shared. A core whose other thread is used
// has 0.5 to 0.75 of it.
const minShare = 0.85

// wholeCores returns the least width of a repeat whose cores were not shared, 0 if the report has too few widths to say so. If
// the cores were shared all the time, every repeat counts.
func wholeCores(rep *report.Report) float64 {
	all := widths(rep)
	if len(all) < minRepeats {
		return 0
	}
	slices.Sort(all)
	return minShare * all[len(all)-minRepeats] // a greater one may be due to chance
}

// shared returns how many repeats had shared cores, and of how many that is known.
func shared(rep *report.Report) (n, of int) {
	least := wholeCores(rep)
	for _, width := range widths(rep) {
		of++
		if width < least {
			n++
		}
	}
	return n, of
}

func widths(rep *report.Report) (all []float64) {
	for i := range rep.Results {
		if r := &rep.Results[i]; r.Provider == softnd {
			all = append(all, r.Widths...)
		}
	}
	return all
}
