package main

import (
	"fmt"
	"math"
)

// rate is the part of the difference to its neighbours that a cell takes over in one step; up
// to 1/4 the computation is stable.
const rate = 0.2

// spread returns the next temperature of the cell with temperature here. The conversion keeps
// compilers from fusing the multiplication with the addition in some places only. So each cell is
// computed with the same roundings, however the grid is divided.
func spread(here, north, south, west, east float64) float64 {
	return here + float64(rate*(((north+south)+(west+east))-float64(4*here)))
}

// spreadRow computes one row of the next generation from three rows of this one. The cells at
// both ends belong to the rim and keep their temperature.
func spreadRow(next, north, here, south []float64) {
	n := len(here)
	next, north, south = next[:n], north[:n], south[:n]
	next[0], next[n-1] = here[0], here[n-1]
	for x := 1; x < n-1; x++ {
		next[x] = spread(here[x], north[x], south[x], here[x-1], here[x+1])
	}
}

// serial computes steps steps on a whole grid and returns the last generation. It overwrites
// cells. It is the reference for the divided computation, so it shares only spread with it.
func serial(cells []float64, width, height, steps int) []float64 {
	now, next := cells, make([]float64, len(cells))
	copy(next, now) // the rim
	for range steps {
		for y := 1; y < height-1; y++ {
			for x := 1; x < width-1; x++ {
				i := y*width + x
				next[i] = spread(now[i], now[i-width], now[i+width], now[i-1], now[i+1])
			}
		}
		now, next = next, now
	}
	return now
}

// compare returns an error that names the first cell of got that differs from want in any bit.
func compare(got, want []float64, width int) error {
	for i := range want {
		if math.Float64bits(got[i]) != math.Float64bits(want[i]) {
			return fmt.Errorf("not the serial result: the first cell that differs is column %d of row %d, %v (%#x) instead of %v (%#x)",
				i%width, i/width, got[i], math.Float64bits(got[i]), want[i], math.Float64bits(want[i]))
		}
	}
	return nil
}

// rowsOf returns the rows that a rank owns: first up to, not including, end. The blocks differ
// by one row at most.
func rowsOf(rank, ranks, height int) (first, end int) {
	return rank * height / ranks, (rank + 1) * height / ranks
}
