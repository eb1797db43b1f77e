package report

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
)

// nothingInCommon explains why no result of one report matches one of the other. It names the tests, or the differences
// of the two most similar results.
func nothingInCommon(old, new []Result) string {
	if len(old) == 0 || len(new) == 0 {
		return fmt.Sprintf("the old report has %d results, the new one %d", len(old), len(new))
	}
	var nearest []string
	at := ""
	for i := range old {
		for j := range new {
			if old[i].Test != new[j].Test {
				continue
			}
			if d := differences(keyOf(old[i]), keyOf(new[j])); nearest == nil || len(d) < len(nearest) {
				nearest, at = d, old[i].Test
			}
		}
	}
	if nearest == nil {
		return fmt.Sprintf("the old report has the tests %s, the new one %s", tests(old), tests(new))
	}
	return fmt.Sprintf("%s has in the old report and in the new one %s", at, strings.Join(nearest, ", "))
}

// differences returns the fields in which two keys of the same test differ, each with its old and its new value.
func differences(old, new key) (all []string) {
	add := func(name string, a, b any) {
		if a != b {
			all = append(all, fmt.Sprintf("%s %v and %v", name, a, b))
		}
	}
	add("provider", old.provider, new.provider)
	add("unit", old.unit, new.unit)
	a, b := reflect.ValueOf(old.settings), reflect.ValueOf(new.settings)
	for i := range a.NumField() {
		name, _, _ := strings.Cut(a.Type().Field(i).Tag.Get("json"), ",")
		add(name, a.Field(i).Interface(), b.Field(i).Interface())
	}
	return all
}

func tests(results []Result) string {
	var names []string
	for _, r := range results {
		if !slices.Contains(names, r.Test) {
			names = append(names, r.Test)
		}
	}
	return strings.Join(names, ", ")
}
