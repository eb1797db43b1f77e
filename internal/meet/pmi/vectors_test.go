package pmi

import (
	"testing"

	"github.com/softnd/softnd/internal/vectors"
)

func TestVectorsOfAnswers(t *testing.T) {
	vectors.Check(t, "pmi.txt", func(c vectors.Case) string {
		m, err := parse(string(c.Bytes(1)))
		if err != nil {
			return "refused"
		}
		text := m.command
		for _, name := range c.Words(2) {
			switch value, ok := m.values[name]; {
			case !ok:
				text += " none"
			case value == "":
				text += " -"
			default:
				text += " " + value
			}
		}
		return text
	})
}
