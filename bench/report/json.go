package report

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"fmt"
	"io"
	"sync"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

//go:embed schema.json
var schema []byte

var compiled = sync.OnceValues(func() (*jsonschema.Schema, error) {
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(schema))
	if err != nil {
		return nil, err
	}
	c := jsonschema.NewCompiler()
	c.AssertFormat()
	if err := c.AddResource("schema.json", doc); err != nil {
		return nil, err
	}
	return c.Compile("schema.json")
})

// WriteJSON writes the report by its schema. If the report does not match the schema, WriteJSON writes it nevertheless,
// because measuring again costs more than repairing it. The error then says what is wrong.
func (r *Report) WriteJSON(w io.Writer) error {
	text, err := json.MarshalIndent(r.filled(), "", "\t")
	if err != nil {
		return fmt.Errorf("report: %w", err)
	}
	if _, err := w.Write(append(text, '\n')); err != nil {
		return err
	}
	_, err = ReadJSON(bytes.NewReader(text))
	return err
}

// filled returns the report with its version, and with empty lists instead of nil, which JSON would show as null.
func (r *Report) filled() *Report {
	c := *r
	c.Version = version
	if c.Command == nil {
		c.Command = []string{}
	}
	c.Results = append([]Result{}, c.Results...)
	for i := range c.Results {
		if c.Results[i].Repeats == nil {
			c.Results[i].Repeats = []float64{}
		}
	}
	return &c
}

// ReadJSON reads a report. It returns an error if the report does not match the schema, or contradicts itself.
func ReadJSON(rd io.Reader) (*Report, error) {
	text, err := io.ReadAll(rd)
	if err != nil {
		return nil, err
	}
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		return nil, fmt.Errorf("report: not JSON: %w", err)
	}
	if err := checkForm(doc); err != nil {
		return nil, err
	}
	r := new(Report)
	if err := json.Unmarshal(text, r); err != nil {
		return nil, fmt.Errorf("report: %w", err)
	}
	for i := range r.Results {
		if err := r.Results[i].check(); err != nil {
			return nil, fmt.Errorf("report: result %d (%s): %w", i, r.Results[i].Test, err)
		}
	}
	return r, nil
}

// check checks the relations between values, which a schema cannot express.
func (r *Result) check() error {
	if !(r.Low <= r.Value && r.Value <= r.High) {
		return fmt.Errorf("value %v is outside its interval from %v to %v", r.Value, r.Low, r.High)
	}
	if l := r.Limit; l != nil && l.Ratios != nil && len(l.Ratios) != len(r.Repeats) {
		return fmt.Errorf("%d ratios for %d repeats", len(l.Ratios), len(r.Repeats))
	}
	if r.Drifts != nil && len(r.Drifts) != len(r.Repeats) {
		return fmt.Errorf("%d drifts for %d repeats", len(r.Drifts), len(r.Repeats))
	}
	if r.Lines != nil && len(r.Lines) != len(r.Repeats) {
		return fmt.Errorf("%d lines for %d repeats", len(r.Lines), len(r.Repeats))
	}
	if r.Widths != nil && len(r.Widths) != len(r.Repeats) {
		return fmt.Errorf("%d widths for %d repeats", len(r.Widths), len(r.Repeats))
	}
	return nil
}
