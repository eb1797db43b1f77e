package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"reflect"
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

// checked type-checks a package of one file, which may import package nd.
func checked(t *testing.T, path, text string, nd *types.Package) (*source, *types.Package) {
	t.Helper()
	fset := token.NewFileSet()
	f, err := parser.ParseFile(fset, path+"/file_test.go", text, 0)
	if err != nil {
		t.Fatal(err)
	}
	info := &types.Info{
		Uses: make(map[*ast.Ident]types.Object), Defs: make(map[*ast.Ident]types.Object), Types: make(map[ast.Expr]types.TypeAndValue),
	}
	files := []*ast.File{f}
	conf := types.Config{Importer: only{nd}}
	pkg, err := conf.Check(path, fset, files, info)
	if err != nil {
		t.Fatal(err)
	}
	return newSource(fset, files, pkg, info), pkg
}

// only imports one package, whatever is asked for.
type only struct{ pkg *types.Package }

func (o only) Import(string) (*types.Package, error) { return o.pkg, nil }

func TestRows(t *testing.T) {
	s, _ := checked(t, suitePath, suite, nil)
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

// model and provider have methods and fields of one name and different types.
const model = `package nd

type Listener interface { LocalAddress(); Listen() }
type SharedAddress interface { LocalAddress(); Close() }
type AdapterInfo struct { Depth int }
type EndpointConfig struct { Depth int }

func last() {}
`

const provider = `package endpoint

import "github.com/softnd/softnd/nd"

type listener struct{}
func (*listener) LocalAddress() {}
func (*listener) Listen() {}

func TestConcrete(l *listener) { l.LocalAddress() }
func TestInterface(a nd.SharedAddress) { a.LocalAddress() }
func TestConfig() { _ = nd.EndpointConfig{Depth: 1} }
func TestInfo(i nd.AdapterInfo) { _ = i.Depth }
func TestHelper() { helper() }
func BenchmarkInfo(i nd.AdapterInfo) { _ = i.Depth }
func helper() { _ = nd.AdapterInfo{}.Depth }
`

func TestUsesByType(t *testing.T) {
	_, nd := checked(t, modelPath, model, nil)
	s, _ := checked(t, providerPath, provider, nd)
	got := make(map[string][]string)
	for _, test := range s.tests("endpoint") {
		got[test.name] = test.parts
	}
	want := map[string][]string{
		"endpoint.TestConcrete":  {"Listener.LocalAddress"},
		"endpoint.TestInterface": {"SharedAddress", "SharedAddress.LocalAddress"},
		"endpoint.TestConfig":    {"EndpointConfig"},
		"endpoint.TestInfo":      {"AdapterInfo", "AdapterInfo.Depth"},
		"endpoint.TestHelper":    {"AdapterInfo", "AdapterInfo.Depth"},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
}
