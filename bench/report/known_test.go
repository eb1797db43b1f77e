package report

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
)

// A percentile is reported only if operations are beyond it.
func TestUnknownPercentilesAreOmitted(t *testing.T) {
	all := Distribution{Min: 1, P50: 2, P90: 3, P99: 4, P999: 5, P9999: 6, Max: 7, Mean: 2, StdDev: 1}
	for count, want := range map[int64]string{
		10: "", 100: `"p99":4`, 1000: `"p99":4,"p99.9":5`, 10000: `"p99":4,"p99.9":5,"p99.99":6`,
	} {
		all.Count = count
		b, err := json.Marshal(all.Known())
		if err != nil || !strings.Contains(string(b), want) || strings.Count(string(b), "p99") != strings.Count(want, "p99") {
			t.Errorf("%d operations: %s, %v", count, b, err)
		}
	}
	all.Count = 10
	r := &Report{Results: []Result{{Test: "write_lat", Provider: "softnd", Unit: "ns", Value: 2, Low: 2, High: 2, Distribution: all.Known()}}}
	var table bytes.Buffer
	if err := r.WriteTable(&table); err != nil || strings.Contains(table.String(), "4.00 ns") || !strings.Contains(table.String(), "7.00 ns") {
		t.Errorf("%v: %s", err, table.String())
	}
}
