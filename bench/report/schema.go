package report

import (
	"errors"
	"fmt"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"golang.org/x/text/language"
	"golang.org/x/text/message"
)

// checkForm compares a document with the schema. Its error names each place that does not match.
func checkForm(doc any) error {
	s, err := compiled()
	if err != nil {
		return fmt.Errorf("report: schema: %w", err)
	}
	if m, ok := doc.(map[string]any); ok {
		if v, ok := m["version"].(string); ok && v != version {
			return fmt.Errorf("report: version %q: want %q", v, version)
		}
	}
	err = s.Validate(doc)
	var invalid *jsonschema.ValidationError
	if !errors.As(err, &invalid) {
		return err
	}
	return fmt.Errorf("report: the file does not match the schema: %s", strings.Join(faults(invalid), "; "))
}

// faults returns the leaves of a validation error, each with its place. The nodes above them add nothing.
func faults(e *jsonschema.ValidationError) []string {
	if len(e.Causes) == 0 {
		what := e.ErrorKind.LocalizedString(message.NewPrinter(language.English))
		return []string{place(e.InstanceLocation) + ": " + what}
	}
	var all []string
	for _, c := range e.Causes {
		all = append(all, faults(c)...)
	}
	return all
}

func place(path []string) string {
	if len(path) == 0 {
		return "the report"
	}
	return strings.Join(path, "/")
}
