package plot

import (
	"image/color"

	weights "golang.org/x/image/font"
	gonum "gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

var (
	ink   = color.Gray{Y: 0x22}
	faint = color.Gray{Y: 0x66}
	rule  = color.Gray{Y: 0xdd}
)

// Colour-blind readers can distinguish the colours. Marks and dashes distinguish the
// lines without colours.
var (
	colours = []color.Color{
		color.RGBA{R: 0x00, G: 0x72, B: 0xb2, A: 0xff},
		color.RGBA{R: 0xd5, G: 0x5e, B: 0x00, A: 0xff},
		color.RGBA{R: 0x00, G: 0x9e, B: 0x73, A: 0xff},
		color.RGBA{R: 0xb0, G: 0x50, B: 0x90, A: 0xff},
		color.RGBA{R: 0xc0, G: 0x88, B: 0x00, A: 0xff},
		color.RGBA{R: 0x30, G: 0x90, B: 0xc8, A: 0xff},
		color.RGBA{R: 0x55, G: 0x55, B: 0x55, A: 0xff},
	}
	marks = []draw.GlyphDrawer{
		draw.CircleGlyph{}, draw.BoxGlyph{}, draw.PyramidGlyph{}, draw.RingGlyph{}, draw.SquareGlyph{},
		draw.TriangleGlyph{}, draw.CrossGlyph{}, draw.PlusGlyph{},
	}
	dashes = [][]vg.Length{nil, {6, 2}, {3, 2}, {8, 2, 2, 2}, {1.5, 1.5}}
)

// look is the style of a line.
type look struct {
	stroke draw.LineStyle
	mark   draw.GlyphStyle
}

// looks assigns each name its own look, the same in all panels.
type looks struct {
	names  []string
	limits []string
}

func (s *looks) of(l line) look {
	if l.limit {
		i := place(&s.limits, l.label)
		return look{stroke: draw.LineStyle{Color: faint, Width: 1, Dashes: dashes[1+(2+i)%(len(dashes)-1)]}}
	}
	i := place(&s.names, l.label)
	c := colours[i%len(colours)]
	return look{
		stroke: draw.LineStyle{Color: c, Width: 1.6, Dashes: dashes[i%len(dashes)]},
		mark:   draw.GlyphStyle{Color: c, Radius: 3, Shape: marks[i%len(marks)]},
	}
}

func place(names *[]string, name string) int {
	for i, n := range *names {
		if n == name {
			return i
		}
	}
	*names = append(*names, name)
	return len(*names) - 1
}

// Thumbnail draws the sample in a legend.
func (l look) Thumbnail(c *draw.Canvas) {
	y := c.Center().Y + 1 // the middle of small letters
	c.StrokeLine2(l.stroke, c.Min.X, y, c.Max.X, y)
	if l.mark.Shape != nil {
		c.DrawGlyphNoClip(l.mark, vg.Point{X: c.Center().X, Y: y})
	}
}

func letters(size vg.Length, c color.Color, bold bool) text.Style {
	f := font.Font{Typeface: "Liberation", Variant: "Sans"}
	if bold {
		f.Weight = weights.WeightBold
	}
	return text.Style{Color: c, Font: font.From(f, size), Handler: gonum.DefaultTextHandler}
}
