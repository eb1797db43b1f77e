package ndcompat

import (
	"go/ast"
	"go/parser"
	"go/token"
	"strconv"
	"testing"

	"github.com/softnd/softnd/nd"
)

func TestNDKOpFlagNumbers(t *testing.T) {
	for _, tc := range []struct {
		name      string
		got, want uint32
	}{
		{"NDKSilentSuccess", uint32(NDKSilentSuccess), 0x1},
		{"NDKReadFence", uint32(NDKReadFence), 0x2},
		{"NDKSendAndSolicitEvent", uint32(NDKSendAndSolicitEvent), 0x4},
		{"NDKAllowRemoteRead", uint32(NDKAllowRemoteRead), 0x8},
		{"NDKAllowLocalWrite", uint32(NDKAllowLocalWrite), 0x10},
		{"NDKAllowRemoteWrite", uint32(NDKAllowRemoteWrite), 0x30},
		{"NDKInline", uint32(NDKInline), 0x40},
		{"NDKReadSink", uint32(NDKReadSink), 0x80},
		{"NDKReadLocalInvalidate", uint32(NDKReadLocalInvalidate), 0x100},
		{"NDKDefer", uint32(NDKDefer), 0x200},
	} {
		if tc.got != tc.want {
			t.Errorf("%s is %#x, want %#x", tc.name, tc.got, tc.want)
		}
	}
}

func TestNDKOpFlagConversion(t *testing.T) {
	for _, tc := range []struct {
		ndk    NDKOpFlags
		model  nd.OpFlags
		rights nd.RegionFlags
	}{
		{0, 0, 0},
		{NDKSilentSuccess | NDKReadFence | NDKSendAndSolicitEvent, nd.SilentSuccess | nd.ReadFence | nd.SendAndSolicitEvent, 0},
		{NDKInline, nd.Inline, 0},
		{NDKDefer | NDKReadLocalInvalidate, nd.Defer | nd.ReadLocalInvalidate, 0},
		{NDKAllowRemoteRead, nd.AllowRead, nd.AllowRemoteRead},
		{NDKAllowRemoteWrite, nd.AllowWrite, nd.AllowRemoteWrite},
		{0x20, nd.AllowWrite, nd.AllowRemoteWrite}, // nd.Inline in version 2
		{NDKAllowLocalWrite, 0, nd.AllowLocalWrite},
		{NDKReadSink, 0, nd.RDMAReadSink},
		{0x400, unknownOpFlag, 0},
		{0x10000, unknownOpFlag, 0}, // nd.ThisEndpointOnly here, nothing in NDK
		{NDKInline | 0x80000000, nd.Inline | unknownOpFlag, 0},
	} {
		if got := tc.ndk.OpFlags(); got != tc.model {
			t.Errorf("%v.OpFlags() = %v, want %v", tc.ndk, got, tc.model)
		}
		if got := tc.ndk.RegionFlags(); got != tc.rights {
			t.Errorf("%v.RegionFlags() = %v, want %v", tc.ndk, got, tc.rights)
		}
	}
	if got := NDKOpFlagsOf(nd.AllowWrite); got != 0x30 {
		t.Errorf("NDKOpFlagsOf(nd.AllowWrite) = %#x, want 0x30", uint32(got))
	}
	if got := NDKOpFlagsOf(nd.ThisEndpointOnly); got != 0 {
		t.Errorf("NDKOpFlagsOf(nd.ThisEndpointOnly) = %v, want nothing", got)
	}
	for _, p := range opFlagPairs {
		if got := NDKOpFlagsOf(p.nd).OpFlags(); got != p.nd {
			t.Errorf("%v becomes %v on its way through NDK", p.nd, got)
		}
	}
}

func TestUnknownOpFlagIsTakenByNoRequest(t *testing.T) {
	for _, p := range operationTypePairs {
		if p.nd.AllowedFlags()&unknownOpFlag != 0 {
			t.Errorf("%v takes the bit that stands for unknown flags", p.nd)
		}
	}
}

func TestNDKOperationTypeNumbers(t *testing.T) {
	for _, tc := range []struct {
		typ  nd.RequestType
		ndk  NDKOperationType
		want uint32
	}{
		{nd.RequestReceive, NDKOperationReceive, 1},
		{nd.RequestSend, NDKOperationSend, 2},
		{nd.RequestBind, NDKOperationBind, 8},
		{nd.RequestInvalidate, NDKOperationInvalidate, 16},
		{nd.RequestRead, NDKOperationRead, 32},
		{nd.RequestWrite, NDKOperationWrite, 64},
		{nd.RequestReceiveAndInvalidate, NDKOperationReceiveAndInvalidate, 0x8001},
		{nd.RequestFastRegister, NDKOperationFastRegister, 4},
	} {
		if uint32(tc.ndk) != tc.want {
			t.Errorf("%v is %#x, want %#x", tc.ndk, uint32(tc.ndk), tc.want)
		}
		if got := NDKOperationTypeOf(tc.typ); got != tc.ndk {
			t.Errorf("NDKOperationTypeOf(%v) = %v, want %v", tc.typ, got, tc.ndk)
		}
		if got, ok := tc.ndk.RequestType(); !ok || got != tc.typ {
			t.Errorf("%v.RequestType() = %v, %v, want %v", tc.ndk, got, ok, tc.typ)
		}
	}
	if got := NDKOperationTypeOf(99); got != 0 {
		t.Errorf("an unknown request type is %v in NDK, want 0", got)
	}
	if _, ok := NDKOperationType(3).RequestType(); ok {
		t.Error("NDK type 3 should be unknown")
	}
	for _, p := range operationTypePairs {
		if p.nd != nd.RequestFastRegister && NDKOperationType(nd.RequestFastRegister) == p.ndk {
			t.Errorf("the number of RequestFastRegister is NDK's for %v", p.nd)
		}
	}
}

// TestConstantNames reads the source: each constant must print as its own name.
func TestConstantNames(t *testing.T) {
	stringOf := map[string]func(uint64) string{
		"NDKOpFlags":       func(v uint64) string { return NDKOpFlags(v).String() },
		"NDKOperationType": func(v uint64) string { return NDKOperationType(v).String() },
		"QueryFlags":       func(v uint64) string { return QueryFlags(v).String() },
	}
	seen := map[string]int{}
	for _, name := range []string{"ndk.go", "library.go"} {
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			value, ok := n.(*ast.ValueSpec)
			if !ok || !value.Names[0].IsExported() {
				return true
			}
			typ := value.Type.(*ast.Ident).Name
			number, err := strconv.ParseUint(value.Values[0].(*ast.BasicLit).Value, 0, 32)
			if err != nil {
				t.Fatal(err)
			}
			if got := stringOf[typ](number); got != value.Names[0].Name {
				t.Errorf("%s(%#x) prints as %q, want %q", typ, number, got, value.Names[0].Name)
			}
			seen[typ]++
			return true
		})
	}
	for typ := range stringOf {
		if seen[typ] == 0 {
			t.Errorf("found no constant of type %s", typ)
		}
	}
}

func TestUnknownValuesPrintAsNumbers(t *testing.T) {
	for _, tc := range []struct{ got, want string }{
		{NDKOpFlags(0x20 | NDKInline).String(), "NDKInline|0x20"},
		{(NDKAllowRemoteWrite | NDKReadSink).String(), "NDKAllowRemoteWrite|NDKReadSink"},
		{NDKOperationType(0).String(), "NDKOperationType(0x0)"},
	} {
		if tc.got != tc.want {
			t.Errorf("got %q, want %q", tc.got, tc.want)
		}
	}
}
