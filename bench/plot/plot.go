// Package plot draws reports: latency, bandwidth and message rate by size, a line
// for each provider.
package plot

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgimg"
	"gonum.org/v1/plot/vg/vgsvg"

	"github.com/softnd/softnd/bench/report"
)

const (
	width       = 9.5 * vg.Inch
	panelHeight = 4.2 * vg.Inch
	dotsPerInch = 144
)

// Save draws the reports into a file, a PNG or an SVG by the ending of its name.
// The same reports make the same file.
//
// Each test gets a panel, one below the other, if it was measured at two sizes or
// more and in a unit that is one of time, bandwidth or rate; the others have no
// curve to show and are left out. Each point has its 95 % confidence interval, where
// that is longer than the mark is high. Latencies have a logarithmic axis. Lines are
// named by provider, and by those settings in which the lines of a panel differ.
// The limit of the machine is a line without marks, where the results name one in
// their own unit; on a linear axis it leaves the panel where it is more than twice
// the best of the others. With several reports each line says which it comes from.
func Save(path string, reports ...*report.Report) error {
	panels := panelsOf(reports)
	if len(panels) == 0 {
		return errors.New("plot: no test to draw: want results of two or more sizes, in ns, MB/s or msg/s")
	}
	head := heading(panels, reports)
	high := vg.Length(len(panels))*panelHeight + head.height()
	ending := strings.ToLower(filepath.Ext(path))
	var canvas vg.CanvasWriterTo
	switch ending {
	case ".png":
		canvas = vgimg.PngCanvas{Canvas: vgimg.NewWith(vgimg.UseWH(width, high), vgimg.UseDPI(dotsPerInch))}
	case ".svg":
		canvas = vgsvg.New(width, high)
	default:
		return fmt.Errorf("plot: %s: unknown format: want a name that ends with .png or .svg", path)
	}
	paint(draw.NewCanvas(canvas, width, high), head, panels)
	var file bytes.Buffer
	if _, err := canvas.WriteTo(&file); err != nil {
		return fmt.Errorf("plot: %s: %w", path, err)
	}
	picture := file.Bytes()
	if ending == ".svg" {
		picture = anyFont(picture)
	}
	return os.WriteFile(path, picture, 0o666)
}

// anyFont lets a viewer that lacks the font of an SVG take one of the same widths.
func anyFont(picture []byte) []byte {
	return bytes.ReplaceAll(picture, []byte("font-family:Liberation Sans;"),
		[]byte("font-family:Liberation Sans,Arial,Helvetica,sans-serif;"))
}
