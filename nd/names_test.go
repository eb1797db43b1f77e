package nd

import (
	"go/ast"
	"go/parser"
	"go/token"
	"strconv"
	"testing"
)

// TestConstantNames reads the source: each exported constant of a type below must print as its
// own name, so the test finds a constant that a table of names lacks.
func TestConstantNames(t *testing.T) {
	stringOf := map[string]func(uint64) string{
		"Status":       func(v uint64) string { return Status(v).String() },
		"OpFlags":      func(v uint64) string { return OpFlags(v).String() },
		"RegionFlags":  func(v uint64) string { return RegionFlags(v).String() },
		"NotifyType":   func(v uint64) string { return NotifyType(v).String() },
		"RequestType":  func(v uint64) string { return RequestType(v).String() },
		"AdapterFlags": func(v uint64) string { return AdapterFlags(v).String() },
	}
	seen := map[string]int{}
	for _, name := range []string{"status.go", "flags.go", "result.go", "limits.go"} {
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, decl := range file.Decls {
			consts, ok := decl.(*ast.GenDecl)
			if !ok || consts.Tok != token.CONST {
				continue
			}
			for _, spec := range consts.Specs {
				value := spec.(*ast.ValueSpec)
				typ, ok := value.Type.(*ast.Ident)
				if !ok || !value.Names[0].IsExported() || stringOf[typ.Name] == nil {
					continue
				}
				want := value.Names[0].Name
				number, err := strconv.ParseUint(value.Values[0].(*ast.BasicLit).Value, 0, 32)
				if err != nil {
					t.Fatalf("%s: %v", want, err)
				}
				if got := stringOf[typ.Name](number); got != want {
					t.Errorf("%s(%#x) prints as %q, not as its name %q", typ.Name, number, got, want)
				}
				seen[typ.Name]++
			}
		}
	}
	for typ := range stringOf {
		if seen[typ] == 0 {
			t.Errorf("found no constant of type %s: is its file missing from the list?", typ)
		}
	}
	if seen["Status"] != len(statusTexts) {
		t.Errorf("%d statuses declared, %d named", seen["Status"], len(statusTexts))
	}
}

func TestUnknownValuesPrintAsNumbers(t *testing.T) {
	for _, tc := range []struct{ got, want string }{
		{Status(0xC0DE).String(), "Status(0x0000c0de)"},
		{Status(0xC0DE).Error(), "nd: Status(0x0000c0de)"},
		{OpFlags(0).String(), "0"},
		{(SilentSuccess | 0x40).String(), "SilentSuccess|0x40"},
		{RegionFlags(0x4).String(), "0x4"},
		{(AllowRemoteWrite | AllowRemoteRead).String(), "AllowRemoteWrite|AllowRemoteRead"},
		{AdapterFlags(0x2000).String(), "0x2000"},
		{NotifyType(9).String(), "NotifyType(9)"},
		{RequestType(6).String(), "RequestType(0x6)"},
		{Technology(3).String(), "RoCE"},
		{Technology(5).String(), "Technology(5)"},
		{AdapterID(0xab).String(), "0x00000000000000ab"},
		{AdapterID(1 << 63).String(), "0x8000000000000000"},
	} {
		if tc.got != tc.want {
			t.Errorf("got %q, want %q", tc.got, tc.want)
		}
	}
}
