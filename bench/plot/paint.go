package plot

import (
	"fmt"
	"image/color"
	"slices"
	"strings"

	gonum "gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"github.com/softnd/softnd/bench/report"
)

const margin = 14 // points

var titles = letters(12, ink, true)

// head is the text above the panels.
type head struct {
	title string
	lines []string
}

// heading names the drawn figures and the machines.
func heading(panels []panel, reports []*report.Report) head {
	var what []string
	for _, p := range panels {
		place(&what, kinds[p.unit].title)
	}
	last := len(what) - 1
	title := what[last] + " by size"
	if last > 0 {
		title = strings.Join(what[:last], ", ") + " and " + title
	}
	h := head{title: strings.ToUpper(title[:1]) + title[1:]}
	for i, r := range reports {
		text := r.Machine.String() + ", softnd " + short(r.Machine.Softnd)
		if len(reports) > 1 {
			text = fmt.Sprintf("%s: %s", nameOf(reports, i), text)
		}
		h.lines = append(h.lines, text)
	}
	return h
}

// short abbreviates a revision.
func short(revision string) string {
	hash, modified, _ := strings.Cut(revision, "+")
	if len(hash) != 40 || strings.Trim(hash, "0123456789abcdef") != "" {
		return revision
	}
	if modified != "" {
		modified = "+" + modified
	}
	return hash[:12] + modified
}

func (h head) height() vg.Length { return margin + 24 + 15*vg.Length(len(h.lines)) }

func paint(c draw.Canvas, h head, panels []panel) {
	c.SetColor(color.White)
	c.Fill(c.Rectangle.Path())
	c = draw.Crop(c, margin, -margin, margin, -margin)

	at := vg.Point{X: c.Min.X, Y: c.Max.Y - 14}
	c.FillText(letters(16, ink, true), at, h.title)
	for _, text := range h.lines {
		at.Y -= 15
		c.FillText(letters(10, faint, false), at, text)
	}
	c = draw.Crop(c, 0, 0, 0, -h.height()+margin)

	var style looks
	plots := make([][]*gonum.Plot, len(panels))
	legends := make([]gonum.Legend, len(panels))
	var side vg.Length
	for i := range panels {
		p, legend := build(&panels[i], &style)
		plots[i], legends[i] = []*gonum.Plot{p}, legend
		side = max(side, legend.Rectangle(c).Size().X)
	}
	tiles := draw.Tiles{Rows: len(panels), Cols: 1, PadY: margin}
	areas := gonum.Align(plots, tiles, draw.Crop(c, 0, -side-2*margin, 0, 0))
	for i, row := range plots {
		row[0].Draw(areas[i][0])
		data := row[0].DataCanvas(areas[i][0])
		c.FillText(titles, vg.Point{X: data.Min.X, Y: areas[i][0].Max.Y - titles.FontExtents().Ascent}, panels[i].title())
		beside := draw.Crop(c, 0, 0, 0, 0)
		beside.Min.X, beside.Max.Y = data.Max.X+margin, data.Max.Y
		legends[i].Draw(beside)
	}
}

// build returns the plot of a panel, and its legend.
func build(p *panel, style *looks) (*gonum.Plot, gonum.Legend) {
	k := kinds[p.unit]
	g := gonum.New()
	g.BackgroundColor = nil
	g.Title.Text, g.Title.TextStyle, g.Title.Padding = " ", titles, 4 // room for it
	legend := gonum.NewLegend()
	legend.Top, legend.Left = true, true
	legend.TextStyle = letters(10, ink, false)
	legend.ThumbnailWidth = 30
	legend.Padding = 5

	grid := plotter.NewGrid()
	grid.Vertical = draw.LineStyle{Color: rule, Width: 0.5}
	grid.Horizontal = grid.Vertical
	g.Add(grid)
	for i := range p.lines {
		l := &p.lines[i]
		drawn := style.of(*l)
		c := l.curve(k)
		c.look = drawn
		g.Add(c)
		legend.Add(l.label, drawn)
	}
	if !k.log {
		g.Y.Max = p.top(k)
	}
	axes(g, k, p.sizes())
	return g, legend
}

func axes(g *gonum.Plot, k kind, sizes []int) {
	for _, a := range []*gonum.Axis{&g.X, &g.Y} {
		a.LineStyle = draw.LineStyle{Color: faint, Width: 0.75}
		a.Tick.LineStyle = a.LineStyle
		a.Tick.Label.Font = letters(10, ink, false).Font
		a.Tick.Label.Color = ink
		a.Label.TextStyle.Font = letters(10, ink, false).Font
		a.Label.TextStyle.Color = faint
		a.Label.Padding = 4
	}
	g.X.Label.Text, g.Y.Label.Text = "size", k.axis
	powers := sizeTicks(sizes)
	g.X.Min, g.X.Max = powers[0].Value, powers[len(powers)-1].Value
	g.X.Tick.Marker = gonum.ConstantTicks(powers)
	if k.log {
		g.Y.Min, g.Y.Max = timeRange(g.Y.Min, g.Y.Max)
		g.Y.Tick.Marker = gonum.ConstantTicks(timeTicks(g.Y.Min, g.Y.Max))
		return
	}
	ticks := evenTicks(g.Y.Max)
	g.Y.Min, g.Y.Max = 0, ticks[len(ticks)-1].Value
	g.Y.Padding = 0
	g.Y.Tick.Marker = gonum.ConstantTicks(ticks)
}

// curve is a line with marks at its points, and their intervals.
type curve struct {
	x, y, low, high []float64
	look
}

func (l curve) DataRange() (xmin, xmax, ymin, ymax float64) {
	xmin, xmax, _, _ = plotter.XYRange(l)
	return xmin, xmax, slices.Min(l.low), l.top()
}

func (l curve) top() float64 { return slices.Max(l.high) }

func (l curve) Len() int                    { return len(l.x) }
func (l curve) XY(i int) (float64, float64) { return l.x[i], l.y[i] }

// Plot draws the curve.
func (l curve) Plot(c draw.Canvas, p *gonum.Plot) {
	toX, toY := p.Transforms(&c)
	points := make([]vg.Point, len(l.x))
	for i := range points {
		points[i] = vg.Point{X: toX(l.x[i]), Y: toY(l.y[i])}
	}
	if l.mark.Shape == nil {
		c.StrokeLines(l.stroke, c.ClipLinesXY(points)...)
		return
	}
	c.StrokeLines(l.stroke, points)
	for i, at := range points {
		l.interval(c, at.X, toY(l.low[i]), toY(l.high[i]))
		c.DrawGlyphNoClip(l.mark, at)
	}
}

// interval draws a line from one end of an interval to the other, and a bar at each end. It omits intervals that the
// mark would hide.
func (l curve) interval(c draw.Canvas, x, low, high vg.Length) {
	const half = 2.5 // points, of a bar
	if high-low < 2*l.mark.Radius {
		return
	}
	style := draw.LineStyle{Color: l.stroke.Color, Width: 0.75}
	for _, part := range [][]vg.Point{
		{{X: x, Y: low}, {X: x, Y: high}}, {{X: x - half, Y: low}, {X: x + half, Y: low}}, {{X: x - half, Y: high}, {X: x + half, Y: high}},
	} {
		c.StrokeLines(style, c.ClipLinesXY(part)...)
	}
}
