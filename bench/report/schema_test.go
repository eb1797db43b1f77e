package report

import (
	"bytes"
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
)

type jsonObject = map[string]any

func text(t *testing.T, r *Report) string {
	t.Helper()
	var b bytes.Buffer
	if err := r.WriteJSON(&b); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestReadingGivesWhatWasWritten(t *testing.T) {
	back, err := ReadJSON(strings.NewReader(text(t, sample())))
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(back, sample()) {
		t.Errorf("got %+v", back)
	}
}

func TestReportWithoutResultsIsValid(t *testing.T) {
	r := &Report{Version: version, Machine: ThisMachine()}
	if _, err := ReadJSON(strings.NewReader(text(t, r))); err != nil {
		t.Error(err)
	}
}

func TestWritingKeepsABadReportAndSaysSo(t *testing.T) {
	r := sample()
	r.Results[1].Unit = "parsec"
	var b bytes.Buffer
	if err := r.WriteJSON(&b); err == nil || !strings.Contains(err.Error(), "results/1/unit") {
		t.Errorf("error %v does not name the place", err)
	}
	if !strings.Contains(b.String(), "parsec") {
		t.Error("the measured results are lost")
	}
}

func TestDamagedReportsAreRefused(t *testing.T) {
	result := func(d jsonObject) jsonObject { return d["results"].([]any)[0].(jsonObject) }
	inside := func(d jsonObject, name string) jsonObject { return result(d)[name].(jsonObject) }
	for _, c := range []struct {
		damage string
		do     func(jsonObject)
		says   string
	}{
		{"another version", func(d jsonObject) { d["version"] = "softnd-bench/2" }, `"softnd-bench/2": want "softnd-bench/1"`},
		{"no version", func(d jsonObject) { delete(d, "version") }, "version"},
		{"no machine", func(d jsonObject) { delete(d, "machine") }, "machine"},
		{"results null", func(d jsonObject) { d["results"] = nil }, "results"},
		{"an unknown field", func(d jsonObject) { d["colour"] = "red" }, "colour"},
		{"time in words", func(d jsonObject) { d["time"] = "noon" }, "date-time"},
		{"no cores", func(d jsonObject) { d["machine"].(jsonObject)["cores"] = 0 }, "machine/cores"},
		{"half a core", func(d jsonObject) { d["machine"].(jsonObject)["cores"] = 1.5 }, "machine/cores"},
		{"a processor without a name", func(d jsonObject) { d["machine"].(jsonObject)["processor"] = "" }, "machine/processor"},
		{"a system without an architecture", func(d jsonObject) { d["machine"].(jsonObject)["system"] = "linux" }, "machine/system"},
		{"no test", func(d jsonObject) { delete(result(d), "test") }, "results/0"},
		{"a test with spaces", func(d jsonObject) { result(d)["test"] = "write lat" }, "results/0/test"},
		{"negative size", func(d jsonObject) { result(d)["size"] = -8 }, "results/0/size"},
		{"an unknown unit", func(d jsonObject) { result(d)["unit"] = "us" }, "results/0/unit"},
		{"neither less nor more", func(d jsonObject) { result(d)["better"] = "lower" }, "results/0/better"},
		{"an unknown mode", func(d jsonObject) { result(d)["mode"] = "sleeping" }, "results/0/mode"},
		{"an unknown executor", func(d jsonObject) { result(d)["executor"] = "both" }, "results/0/executor"},
		{"an unknown memory", func(d jsonObject) { result(d)["memory"] = "heap" }, "results/0/memory"},
		{"depth of nothing", func(d jsonObject) { result(d)["depth"] = 0 }, "results/0/depth"},
		{"a figure in words", func(d jsonObject) { result(d)["value"] = "fast" }, "results/0/value"},
		{"a negative figure", func(d jsonObject) { result(d)["value"] = -1 }, "results/0/value"},
		{"no repeats", func(d jsonObject) { result(d)["repeats"] = []any{} }, "results/0/repeats"},
		{"a negative repeat", func(d jsonObject) { result(d)["repeats"] = []any{1, -1, 2} }, "results/0/repeats/1"},
		{"a value below its interval", func(d jsonObject) { result(d)["value"] = 1 }, "outside its interval"},
		{"a value above its interval", func(d jsonObject) { result(d)["value"] = 9e9 }, "outside its interval"},
		{"a distribution without a median", func(d jsonObject) { delete(inside(d, "distribution"), "p50") }, "results/0/distribution"},
		{"a distribution of nothing", func(d jsonObject) { inside(d, "distribution")["count"] = 0 }, "results/0/distribution/count"},
		{"no limit at all", func(d jsonObject) { inside(d, "limit")["value"] = 0 }, "results/0/limit/value"},
		{"a limit without a name", func(d jsonObject) { inside(d, "limit")["name"] = "" }, "results/0/limit/name"},
		{"a ratio too few", func(d jsonObject) { inside(d, "limit")["ratios"] = []any{1, 2} }, "2 ratios for 3 repeats"},
	} {
		var d jsonObject
		if err := json.Unmarshal([]byte(text(t, sample())), &d); err != nil {
			t.Fatal(err)
		}
		c.do(d)
		damaged, err := json.Marshal(d)
		if err != nil {
			t.Fatal(err)
		}
		switch _, err := ReadJSON(bytes.NewReader(damaged)); {
		case err == nil:
			t.Errorf("%s: accepted", c.damage)
		case !strings.Contains(err.Error(), c.says):
			t.Errorf("%s: %q does not say %q", c.damage, err, c.says)
		}
	}
}

func TestReadRefusesInvalidJSON(t *testing.T) {
	whole := text(t, sample())
	for _, bad := range []string{"", "ndbench: no such test\n", whole[:len(whole)/2], whole + whole, "[]", "null"} {
		if _, err := ReadJSON(strings.NewReader(bad)); err == nil {
			t.Errorf("accepted %.20q", bad)
		}
	}
}

// TestSchemaKnowsEachField: the schema describes all fields of the structs, and no others.
func TestSchemaKnowsEachField(t *testing.T) {
	var s struct {
		Properties map[string]jsonObject
		Defs       map[string]struct{ Properties map[string]jsonObject } `json:"$defs"`
	}
	if err := json.Unmarshal(schema, &s); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		of         any
		properties map[string]jsonObject
	}{
		{Report{}, s.Properties},
		{Machine{}, s.Defs["machine"].Properties},
		{Result{}, s.Defs["result"].Properties},
		{Distribution{}, s.Defs["distribution"].Properties},
		{Limit{}, s.Defs["limit"].Properties},
	} {
		want := tags(reflect.TypeOf(c.of))
		slices.Sort(want)
		if got := slices.Sorted(maps.Keys(c.properties)); !slices.Equal(got, want) {
			t.Errorf("%T has the fields\n%v, but its schema\n%v", c.of, want, got)
		}
		for name, p := range c.properties {
			if p["description"] == nil {
				t.Errorf("%T: no words about %s", c.of, name)
			}
		}
	}
}

func tags(of reflect.Type) []string {
	var all []string
	for _, f := range reflect.VisibleFields(of) {
		if !f.Anonymous {
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			if name == "-" {
				continue
			}
			all = append(all, name)
		}
	}
	return all
}
