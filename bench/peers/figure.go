package peers

import (
	"fmt"
	"slices"
)

// small is the size of the messages of rates.
const small = 8

// Figure names a measurement: one test with one size or number of ranks.
type Figure struct {
	Test  string
	Size  int // bytes; 0 where there are none
	Ranks int
}

func (f Figure) String() string {
	if f.Test == "barrier" {
		return fmt.Sprintf("%s of %d", f.Test, f.Ranks)
	}
	return fmt.Sprintf("%s of %d B", f.Test, f.Size)
}

// Figures returns the figures that o asks for, in the order of the table. A peer may lack some of them.
func Figures(o Options) ([]Figure, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	return figures(o), nil
}

func figures(o Options) []Figure {
	var all []Figure
	wanted := func(test string) bool { return o.Tests == nil || slices.Contains(o.Tests, test) }
	add := func(test string, sizes ...int) {
		if !wanted(test) {
			return
		}
		for _, size := range sizes {
			all = append(all, Figure{test, size, 2})
		}
	}
	add("write_lat", o.Sizes...)
	add("posted", small)
	add("write_bw", o.Sizes...)
	add("send_lat", o.Sizes...)
	add("send_bw", o.Sizes...)
	add("msg_rate", small)
	if wanted("barrier") {
		for _, n := range o.ranks {
			all = append(all, Figure{"barrier", 0, n})
		}
	}
	return all
}

// unit returns the unit of the figure, and whether less or more of it is better.
func (f Figure) unit() (name, better string) {
	switch f.Test {
	case "write_bw", "send_bw":
		return "MB/s", "more"
	case "msg_rate":
		return "msg/s", "more"
	default:
		return "ns", "less"
	}
}

// in converts the time of one operation to the unit of the figure.
func (f Figure) in(ns float64) float64 {
	switch name, _ := f.unit(); name {
	case "MB/s":
		return float64(f.Size) / ns * 1e3
	case "msg/s":
		return 1e9 / ns
	default:
		return ns
	}
}
