package report

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"
)

// TestCSVHasWhatTheJSONHas: the columns and cells of each line are those of the JSON of its result, flattened.
func TestCSVHasWhatTheJSONHas(t *testing.T) {
	var b bytes.Buffer
	if err := sample().WriteCSV(&b); err != nil {
		t.Fatal(err)
	}
	lines, err := csv.NewReader(&b).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	results := sample().Results
	if len(lines) != 1+len(results) {
		t.Fatalf("%d lines for %d results", len(lines), len(results))
	}
	for i, r := range results {
		want := map[string]string{}
		flatten(t, want, r)
		got := map[string]string{}
		for c, name := range lines[0] {
			if cell := lines[1+i][c]; cell != "" {
				got[name] = cell
			}
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("result %d: cells\n%v, JSON\n%v", i, got, want)
		}
	}
}

func TestCSVHasAColumnForEachField(t *testing.T) {
	var want []string
	for _, tag := range tags(reflect.TypeFor[Result]()) {
		switch tag {
		case "distribution":
			want = append(want, prefixed(tag, tags(reflect.TypeFor[Distribution]()))...)
		case "limit":
			want = append(want, prefixed(tag, tags(reflect.TypeFor[Limit]()))...)
		default:
			want = append(want, tag)
		}
	}
	var b bytes.Buffer
	if err := new(Report).WriteCSV(&b); err != nil {
		t.Fatal(err)
	}
	if got := strings.TrimSpace(b.String()); got != strings.Join(want, ",") {
		t.Errorf("columns\n%s, fields\n%s", got, strings.Join(want, ","))
	}
}

func prefixed(with string, names []string) []string {
	var all []string
	for _, name := range names {
		all = append(all, with+"."+name)
	}
	return all
}

func flatten(t *testing.T, into map[string]string, r Result) {
	t.Helper()
	raw, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	var d jsonObject
	if err := json.Unmarshal(raw, &d); err != nil {
		t.Fatal(err)
	}
	flattenObject(into, "", d)
}

func flattenObject(into map[string]string, prefix string, d jsonObject) {
	for name, v := range d {
		switch v := v.(type) {
		case jsonObject:
			flattenObject(into, prefix+name+".", v)
		case []any:
			items := make([]string, len(v))
			for i := range v {
				items[i] = number(v[i])
			}
			into[prefix+name] = strings.Join(items, ";")
		default:
			into[prefix+name] = number(v)
		}
	}
}

// number is in the form of Go, in which all figures of the sample are exact.
func number(v any) string {
	if f, ok := v.(float64); ok && f == float64(int64(f)) && f < 1.5e6 {
		return fmt.Sprint(int64(f))
	}
	return fmt.Sprint(v)
}
