package report

import (
	"encoding/csv"
	"fmt"
	"io"
	"reflect"
	"strings"
)

// WriteCSV writes one line for each result, below a line with the names of the columns. The names are those in the
// JSON, with a dot between the name of an object and that of its field: distribution.p50. A cell is empty if the JSON
// omits the field. The items of a list are in one cell, separated by semicolons.
func (r *Report) WriteCSV(w io.Writer) error {
	c := csv.NewWriter(w)
	t := reflect.TypeFor[Result]()
	lines := [][]string{columns(t, "")}
	for i := range r.Results {
		lines = append(lines, cells(t, reflect.ValueOf(r.Results[i])))
	}
	return c.WriteAll(lines)
}

// columns returns the names of the fields of t, and of the fields in them.
func columns(t reflect.Type, prefix string) []string {
	var names []string
	for i := range t.NumField() {
		f := t.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch inner, nested := object(f); {
		case f.Anonymous:
			names = append(names, columns(inner, prefix)...)
		case nested:
			names = append(names, columns(inner, prefix+name+".")...)
		default:
			names = append(names, prefix+name)
		}
	}
	return names
}

// cells returns the values below the columns of t. If v is not valid, the object is absent, and they are empty.
func cells(t reflect.Type, v reflect.Value) []string {
	var all []string
	for i := range t.NumField() {
		f := t.Field(i)
		var field reflect.Value
		if v.IsValid() {
			field = v.Field(i)
		}
		if inner, nested := object(f); nested {
			if field.IsValid() && field.Kind() == reflect.Pointer {
				field = field.Elem()
			}
			all = append(all, cells(inner, field)...)
			continue
		}
		all = append(all, cell(f, field))
	}
	return all
}

// object returns the struct that a field contains or points to, if there is one.
func object(f reflect.StructField) (reflect.Type, bool) {
	t := f.Type
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	return t, t.Kind() == reflect.Struct
}

func cell(f reflect.StructField, v reflect.Value) string {
	omit := strings.HasSuffix(f.Tag.Get("json"), ",omitempty")
	if !v.IsValid() || omit && v.IsZero() {
		return ""
	}
	if v.Kind() != reflect.Slice {
		return fmt.Sprint(v.Interface())
	}
	items := make([]string, v.Len())
	for i := range items {
		items[i] = fmt.Sprint(v.Index(i).Interface())
	}
	return strings.Join(items, ";")
}
