package bootstrap

import (
	"net/url"
	"testing"

	"github.com/softnd/softnd/internal/vectors"
)

// Texts of ranks are values of PMI in this form.
func TestVectorsOfValues(t *testing.T) {
	vectors.Check(t, "values.txt", func(c vectors.Case) string {
		if c.Kind() == "escape" {
			return vectors.Hex([]byte(url.QueryEscape(string(c.Bytes(1)))))
		}
		text, err := url.QueryUnescape(string(c.Bytes(1)))
		if err != nil {
			return "refused"
		}
		return vectors.Hex([]byte(text))
	})
}
