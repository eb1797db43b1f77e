// Package plot draws reports: latency, bandwidth and message rate by size, with a line for each provider.
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

// Save draws the reports into a file, as PNG or SVG according to the ending of its name. The same reports make the same
// file.
//
// Each test has a panel if it was measured at two or more sizes, in a unit of time, bandwidth or rate. Save omits other
// tests, which have no curve. Each point has its 95 % confidence interval, unless the mark would hide it. Latencies
// have a logarithmic axis. The name of a line is its provider, and the settings in which the lines of a panel differ.
// If there are several reports, it also names the report.
//
// The limit of the machine is a line without marks, if the results have one in their own unit. On a linear axis it
// leaves the panel where it is more than twice the best of the others.
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

// anyFont lets a viewer without the font of an SVG use another one of the same widths.
func anyFont(picture []byte) []byte {
	return bytes.ReplaceAll(picture, []byte("font-family:Liberation Sans;"),
		[]byte("font-family:Liberation Sans,Arial,Helvetica,sans-serif;"))
}
