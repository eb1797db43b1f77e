package suite

import (
	"math"
	"slices"

	"github.com/softnd/softnd/bench/internal/median"
	"github.com/softnd/softnd/bench/measure"
	"github.com/softnd/softnd/bench/report"
)

// minGap is the least ratio of the lines of far minutes to those of near minutes.
const minGap = 1.6

// distance is how far apart the two cores were, by the time of a cache line between them.
type distance struct {
	from, below float64 // ns
	Line        float64 // the median
}

func (d *distance) has(line float64) bool { return line >= d.from && line < d.below }

// distances distinguishes near minutes from far ones, because the host of a virtual machine moves its cores. It divides
// the lines at the greatest gap between two of them. Both results are nil if that gap is small, or if there are too few
// lines on one side.
func distances(rep *report.Report) (near, far *distance) {
	var lines []float64
	for i := range rep.Results {
		r := &rep.Results[i]
		if r.Provider != softnd {
			continue
		}
		for n, line := range r.Lines {
			if n < len(r.Drifts) && r.Drifts[n] <= measure.Steady {
				lines = append(lines, line)
			}
		}
	}
	slices.Sort(lines)
	at, gap := 0, minGap
	for i := minRepeats; i <= len(lines)-minRepeats; i++ {
		if wide := lines[i] / lines[i-1]; wide > gap {
			at, gap = i, wide
		}
	}
	if at == 0 {
		return nil, nil
	}
	border := math.Sqrt(lines[at-1] * lines[at])
	return &distance{0, border, median.Of(lines[:at])}, &distance{border, math.Inf(1), median.Of(lines[at:])}
}
