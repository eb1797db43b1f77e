package main

import (
	"bytes"
	"net/netip"
	"os"
	"reflect"
	"testing"

	"github.com/softnd/softnd/nd"
)

// Programs depend on the format.
func TestJSONFormat(t *testing.T) {
	r := &report{
		Ranks:    2,
		Checks:   []check{good("cores", "2 usable"), bad(fail, "job", "broken", "repair it")},
		Adapters: []adapter{describe(numbered(), []netip.Addr{netip.MustParseAddr("127.77.0.1")})},
	}
	var out bytes.Buffer
	if err := r.printJSON(&out); err != nil {
		t.Fatal(err)
	}
	want, err := os.ReadFile("testdata/report.json")
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(out.Bytes(), want) {
		t.Errorf("not as in testdata/report.json:\n%s", &out)
	}
}

// numbered returns an AdapterInfo in which each field has a different value.
func numbered() (info nd.AdapterInfo) {
	v := reflect.ValueOf(&info).Elem()
	for i := range v.NumField() {
		v.Field(i).SetUint(uint64(i + 2))
	}
	info.AdapterID = 1<<63 + 1
	info.AdapterFlags = nd.InOrderDMASupported | nd.CQResizeSupported
	return info
}

// The report has each field of AdapterInfo: four of adapter, and the limits.
func TestReportHasAllLimits(t *testing.T) {
	info, own := reflect.TypeFor[nd.AdapterInfo](), reflect.TypeFor[limits]()
	const others = 4 // vendor, device, id, flags
	if info.NumField() != own.NumField()+others {
		t.Errorf("the information has %d fields, the report %d and %d", info.NumField(), own.NumField(), others)
	}
}

func TestDescribeWithoutFlags(t *testing.T) {
	if a := describe(nd.AdapterInfo{}, nil); len(a.Flags) != 0 || a.Flags == nil || a.Addresses == nil {
		t.Errorf("%#v", a)
	}
}
