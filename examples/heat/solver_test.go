package main

import (
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"
)

func randomCells(n int) []float64 {
	rng := rand.New(rand.NewPCG(1, 2))
	cells := make([]float64, n)
	for i := range cells {
		cells[i] = hottest * rng.Float64()
	}
	return cells
}

func TestRowsOf(t *testing.T) {
	for height := 1; height < 40; height++ {
		for ranks := 1; ranks <= height; ranks++ {
			next := 0
			for rank := range ranks {
				first, end := rowsOf(rank, ranks, height)
				if first != next || end <= first || end-first > height/ranks+1 {
					t.Fatalf("rank %d of %d owns rows %d to %d of %d", rank, ranks, first, end, height)
				}
				next = end
			}
			if next != height {
				t.Fatalf("%d ranks own %d rows of %d", ranks, next, height)
			}
		}
	}
}

func TestSerialKnownValues(t *testing.T) {
	got := serial([]float64{
		0, 0, 0, 0,
		0, 100, 0, 0,
		0, 0, 0, 0,
	}, 4, 3, 1)
	for i, want := range map[int]float64{5: 20, 6: 20, 1: 0, 4: 0, 9: 0, 7: 0} {
		if math.Abs(got[i]-want) > 1e-12 {
			t.Errorf("cell %d has %v degrees after one step, want %v", i, got[i], want)
		}
	}
}

func TestSerialKeepsUniformGrid(t *testing.T) {
	cells := make([]float64, 30*20)
	for i := range cells {
		cells[i] = 37.5
	}
	for i, v := range serial(cells, 30, 20, 50) {
		if v != 37.5 {
			t.Fatalf("cell %d has %v degrees", i, v)
		}
	}
}

func TestSerialKeepsTheRim(t *testing.T) {
	for _, s := range []size{{1, 1}, {1, 9}, {9, 1}, {2, 5}, {5, 2}, {6, 7}} {
		before := randomCells(s.Width * s.Height)
		after := serial(append([]float64(nil), before...), s.Width, s.Height, 7)
		for i := range before {
			x, y := i%s.Width, i/s.Width
			rim := x == 0 || y == 0 || x == s.Width-1 || y == s.Height-1
			if rim != (before[i] == after[i]) {
				t.Errorf("%v: cell %d,%d went from %v to %v", s, x, y, before[i], after[i])
			}
		}
	}
}

// Nothing becomes hotter than the hottest or colder than the coldest cell, and in the end the
// rim decides.
func TestSerialConverges(t *testing.T) {
	const w, h = 17, 13
	cells := randomCells(w * h)
	for i := range cells {
		x, y := i%w, i/w
		if x == 0 || y == 0 || x == w-1 || y == h-1 {
			cells[i] = 10
		}
	}
	cells = serial(cells, w, h, 40)
	for i, v := range cells {
		if v < 0 || v > hottest {
			t.Fatalf("cell %d has %v degrees", i, v)
		}
	}
	for i, v := range serial(cells, w, h, 5000) {
		if math.Abs(v-10) > 1e-9 {
			t.Fatalf("cell %d still has %v degrees, and the rim 10", i, v)
		}
	}
}

// A grid that is turned over gives the result turned over, to the last bit.
func TestSerialIsSymmetric(t *testing.T) {
	const w, h = 12, 9
	cells := randomCells(w * h)
	turned := make([]float64, w*h)
	for i, v := range cells {
		turned[len(turned)-1-i] = v
	}
	cells, turned = serial(cells, w, h, 30), serial(turned, w, h, 30)
	for i, v := range cells {
		if math.Float64bits(v) != math.Float64bits(turned[len(turned)-1-i]) {
			t.Fatalf("cell %d: %v and %v", i, v, turned[len(turned)-1-i])
		}
	}
}

// Blocks that hand each other their edge rows compute what the whole grid does, bit for bit.
func TestBlocksMatchSerial(t *testing.T) {
	const steps = 25
	for _, s := range []size{{1, 6}, {2, 2}, {5, 4}, {16, 11}} {
		for ranks := 1; ranks <= s.Height; ranks++ {
			start := randomCells(s.Width * s.Height)
			blocks := make([]*block, ranks)
			for rank := range blocks {
				first, end := rowsOf(rank, ranks, s.Height)
				b := &block{size: s, first: first, rows: end - first}
				if err := b.setMemory(make([]byte, b.memorySize())); err != nil {
					t.Fatal(err)
				}
				for y := max(first-1, 0); y < min(end+1, s.Height); y++ {
					copy(b.row(0, y-first), start[y*s.Width:])
				}
				blocks[rank] = b
			}
			for g := range steps {
				for _, b := range blocks {
					for y := range b.rows {
						b.spread(g, y)
					}
				}
				for i := 1; i < ranks; i++ {
					above, below := blocks[i-1], blocks[i]
					copy(above.row(g+1, above.rows), below.row(g+1, 0))
					copy(below.row(g+1, -1), above.row(g+1, above.rows-1))
				}
			}
			var got []float64
			for _, b := range blocks {
				for y := range b.rows {
					got = append(got, b.row(steps, y)...)
				}
			}
			if err := compare(got, serial(start, s.Width, s.Height, steps), s.Width); err != nil {
				t.Errorf("%v, %d ranks: %v", s, ranks, err)
			}
		}
	}
}

// The places of a block's rows are all different, but for those beyond the edges, and fill the
// memory.
func TestRowIndex(t *testing.T) {
	b := &block{size: size{3, 50}, rows: 5}
	seen := map[int]bool{}
	for generation := range 2 {
		for y := -1; y <= b.rows; y++ {
			p := b.rowIndex(generation, y)
			if seen[p] || p != b.rowIndex(generation+2, y) {
				t.Errorf("row %d of generation %d lies at %d", y, generation, p)
			}
			seen[p] = true
		}
	}
	if len(seen)*b.rowSize() != b.memorySize() || !seen[0] || !seen[len(seen)-1] {
		t.Errorf("the rows take the places %v", seen)
	}
}

func TestCompare(t *testing.T) {
	want := []float64{1, 2, 3, 4, 5, 0}
	if err := compare(want, want, 3); err != nil {
		t.Error(err)
	}
	got := []float64{1, 2, 3, 4, math.Nextafter(5, 6), 0}
	if err := compare(got, want, 3); err == nil || !strings.Contains(err.Error(), "column 1 of row 1, 5.000000000000001 (0x4014000000000001) instead of 5 (0x4014000000000000)") {
		t.Errorf("one bit differs: %v", err)
	}
	if err := compare([]float64{1, 2, 3, 4, 5, math.Copysign(0, -1)}, want, 3); err == nil {
		t.Error("the sign of zero is not compared")
	}
}

func TestClosingLine(t *testing.T) {
	for _, tc := range []struct{ got, want string }{
		{closingLine(size{150, 103}, 4, 2000, 610*time.Millisecond, 12_300_000),
			"heat: 150x103, 4 ranks, 2000 steps in 0.61 s: 3279 steps/s, 12.3 MB moved through windows"},
		{closingLine(size{1, 1}, 1, 0, 0, 0),
			"heat: 1x1, 1 rank, 0 steps in 0.00 s: 0 steps/s, 0 bytes moved through windows"},
		{bytesText(999), "999 bytes"},
		{bytesText(1000), "1.0 kB"},
		{bytesText(999_960_000), "1.0 GB"},
	} {
		if tc.got != tc.want {
			t.Errorf("%q, want %q", tc.got, tc.want)
		}
	}
}

func TestParse(t *testing.T) {
	for _, tc := range []struct {
		args, wrong string // part of the error, none if empty
	}{
		{"", ""},
		{"-in a.png -out b.png -steps 0 -verify -progress", ""},
		{"-steps -1", "-steps -1: want 0 or more"},
		{"-steps many", "-h lists the flags"},
		{"-size 3x3", "-h lists the flags"},
		{"a.png", `"a.png" is not a flag: give the picture with -in`},
	} {
		_, err := parse(strings.Fields(tc.args))
		if tc.wrong == "" && err != nil || tc.wrong != "" && (err == nil || !strings.Contains(err.Error(), tc.wrong)) {
			t.Errorf("%q: error %v, want %q", tc.args, err, tc.wrong)
		}
	}
	if _, err := parse([]string{"-h"}); err == nil || !strings.Contains(err.Error(), "-verify") {
		t.Errorf("-h: %v", err)
	}
}
