package report

import (
	"io"
	"strings"
	"unicode/utf8"
)

// grid is a table of text. Its first row contains the names of the columns. A column whose name starts with < is
// left-aligned, the others are right-aligned.
type grid struct{ rows [][]string }

func (g *grid) add(row ...string) { g.rows = append(g.rows, row) }

// write omits columns that are empty below their name.
func (g *grid) write(w io.Writer, indent string) error {
	width := g.widths()
	var text strings.Builder
	for i, row := range g.rows {
		line := ""
		for c, cell := range row {
			left := strings.HasPrefix(g.rows[0][c], "<")
			if width[c] == 0 {
				continue
			}
			if i == 0 {
				cell = strings.TrimPrefix(cell, "<")
			}
			pad := strings.Repeat(" ", width[c]-utf8.RuneCountInString(cell))
			if left {
				line += cell + pad + "  "
			} else {
				line += pad + cell + "  "
			}
		}
		text.WriteString(strings.TrimRight(indent+line, " ") + "\n")
	}
	_, err := io.WriteString(w, text.String())
	return err
}

func (g *grid) widths() []int {
	width := make([]int, len(g.rows[0]))
	for _, row := range g.rows[1:] {
		for c, cell := range row {
			width[c] = max(width[c], utf8.RuneCountInString(cell))
		}
	}
	for c, name := range g.rows[0] {
		if width[c] > 0 {
			width[c] = max(width[c], utf8.RuneCountInString(strings.TrimPrefix(name, "<")))
		}
	}
	return width
}
