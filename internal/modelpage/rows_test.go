package modelpage

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"slices"
	"testing"
)

// suite has a row of each form, and two scenarios that are none.
const suite = `package ndtest

type scenario struct { id string; active func() }

var table = []scenario{
	{id: "C001"},
	faulty("C002", nil),
	rowOf(1, "C003", "title")(nil),
}

var stress = scenario{id: "stress"}

func faulty(id string, f func()) scenario { return scenario{id: id, active: f} }

func rowOf(n int, id, title string) func(func()) scenario {
	return func(f func()) scenario { return faulty(id, f) }
}

func many() (list []scenario) {
	for i := range 2 {
		list = append(list, scenario{id: numbered("R%03d", i + 1)})
	}
	return list
}

func numbered(format string, n int) string { return format }
`

func TestRows(t *testing.T) {
	fset := token.NewFileSet()
	f, err := parser.ParseFile(fset, "suite.go", suite, 0)
	if err != nil {
		t.Fatal(err)
	}
	s, err := check(fset, suitePath, []*ast.File{f}, nil)
	if err != nil {
		t.Fatal(err)
	}
	uses, err := s.rows([]string{"C001", "C002", "C003", "R001", "R002"})
	if err != nil {
		t.Fatal(err)
	}
	var labels []string
	for _, u := range uses {
		labels = append(labels, u.label)
	}
	if want := []string{"C001", "C002", "C003", "R001 to R002"}; !slices.Equal(labels, want) {
		t.Errorf("got %q, want %q", labels, want)
	}
	if _, err := s.rows([]string{"C001", "C004"}); fmt.Sprint(err) != "C004: not found in the source of the suite" {
		t.Errorf("for a row that is not there: %v", err)
	}
}

func TestUpper(t *testing.T) {
	for name, want := range map[string]string{
		"IOTimeout": "IO_TIMEOUT", "InvalidParameter10": "INVALID_PARAMETER_10", "NDKInline": "INLINE",
		"DoNotSecureVM": "DO_NOT_SECURE_VM", "CQResizeSupported": "CQ_RESIZE_SUPPORTED",
	} {
		if got := upper(name); got != want {
			t.Errorf("%s: got %s, want %s", name, got, want)
		}
	}
}
