package measure

import (
	"context"
	"slices"
	"testing"

	"github.com/softnd/softnd/bench/report"
	"github.com/softnd/softnd/nd"
)

// TestWidth: independent instructions take less time than a chain of as many, also on a core that is shared.
func TestWidth(t *testing.T) {
	if got := coreWidth(); got < 1.3 || got > 16 {
		t.Errorf("the core executes %.2f instructions at once", got)
	}
}

// TestWidths: a repeat has the less of the widths before and after it.
func TestWidths(t *testing.T) {
	w, widths := alone(t), []float64{3.8, 2, 3.6, 3.7}
	asked := 0
	l := &loop{limitName: lockedExchangeLimit, limitUnit: "ns",
		run:   func(context.Context, int) (float64, error) { return 1, nil },
		limit: func(float64) (float64, error) { return 1, nil },
		width: func() (float64, error) { asked++; return widths[asked-1], nil },
	}
	made, err := l.repeats(t.Context(), w, 3, 1)
	if err != nil {
		t.Fatal(err)
	}
	var res report.Result
	l.fillResult(&res, steadiest(made, 3), nil)
	if want := []float64{2, 2, 3.6}; !slices.Equal(res.Widths, want) {
		t.Errorf("widths %v, want %v", res.Widths, want)
	}
}

// TestCopyPlaces: copies have several places unless these are large, and release the places of another size.
func TestCopyPlaces(t *testing.T) {
	w := alone(t)
	open := 0
	l := &limits{allocate: func(size int) (nd.MemoryRegion, error) {
		mr, err := w.Job.Adapter().Allocate(t.Context(), size, nd.AllowLocalWrite)
		open++
		return closing{mr, &open}, err
	}}
	for _, c := range []struct{ size, places int }{{1 << 20, 8}, {16 << 20, 2}, {8, 8}, {64 << 20, 1}, {64 << 20, 1}} {
		if err := l.makePlaces(c.size); err != nil {
			t.Fatal(err)
		}
		if len(l.places) != c.places || open != c.places {
			t.Errorf("copies of %d bytes: %d places and %d regions, want %d", c.size, len(l.places), open, c.places)
		}
		for _, p := range l.places {
			if len(p.from) != c.size || len(p.to) != c.size {
				t.Errorf("copies of %d bytes: from %d bytes to %d", c.size, len(p.from), len(p.to))
			}
		}
	}
}

// closing counts a region as long as it is open.
type closing struct {
	nd.MemoryRegion
	open *int
}

func (c closing) Close(ctx context.Context) error {
	*c.open--
	return c.MemoryRegion.Close(ctx)
}
