package faultfile

import (
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/docker/go-units"
	"go.yaml.in/yaml/v3"

	"github.com/softnd/softnd/faults"
	"github.com/softnd/softnd/internal/linux"
	"github.com/softnd/softnd/nd"
)

// field is a field of a rule in the file.
type field struct {
	names []string // the fields of faults.Rule that it sets
	read  func(r *faults.Rule, v *yaml.Node) error
}

var fields map[string]field

func init() { // not at the declaration: read functions refer to it
	fields = map[string]field{
		"name":      {[]string{"Name"}, func(r *faults.Rule, v *yaml.Node) error { return decode(v, &r.Name, "a text") }},
		"operation": {[]string{"Operations"}, readOperations},
		"rank":      {[]string{"Ranks"}, func(r *faults.Rule, v *yaml.Node) error { return readRanks(v, &r.Ranks) }},
		"peer":      {[]string{"Peers"}, func(r *faults.Rule, v *yaml.Node) error { return readRanks(v, &r.Peers) }},
		"endpoint":  {[]string{"Endpoint"}, func(r *faults.Rule, v *yaml.Node) error { return readCount(v, &r.Endpoint) }},
		"window":    {[]string{"Window"}, func(r *faults.Rule, v *yaml.Node) error { return readCount(v, &r.Window) }},
		"size":      {[]string{"MinSize", "MaxSize"}, readSize},
		"phase":     {[]string{"Phase"}, func(r *faults.Rule, v *yaml.Node) error { return decode(v, &r.Phase, "post, execute or complete") }},
		"nth":       {[]string{"Nth"}, func(r *faults.Rule, v *yaml.Node) error { return readCount(v, &r.Nth) }},
		"every":     {[]string{"Every"}, func(r *faults.Rule, v *yaml.Node) error { return readCount(v, &r.Every) }},
		"probability": {[]string{"Probability"}, func(r *faults.Rule, v *yaml.Node) error {
			err := decode(v, &r.Probability, "a number above 0 and at most 1")
			if err == nil && r.Probability == 0 {
				err = at(v, "a probability of 0: want a number above 0 and at most 1")
			}
			return err
		}},
		"times":  {[]string{"Times"}, func(r *faults.Rule, v *yaml.Node) error { return readCount(v, &r.Times) }},
		"action": {[]string{"Action"}, func(r *faults.Rule, v *yaml.Node) error { return decode(v, &r.Action, "a word such as fail") }},
		"status": {[]string{"Status"}, readStatus},
		"delay":  {[]string{"Delay"}, readDelay},
		"offset": {[]string{"Offset"}, func(r *faults.Rule, v *yaml.Node) error { return readBytes(v, v.Value, &r.Offset) }},
		"xor": {[]string{"XOR"}, func(r *faults.Rule, v *yaml.Node) error {
			err := decode(v, &r.XOR, "a byte from 1 to 255, such as 0x80")
			if err == nil && r.XOR == 0 {
				err = at(v, "0 inverts no bit: want a byte from 1 to 255, such as 0x80")
			}
			return err
		}},
		"after": {[]string{"After"}, func(r *faults.Rule, v *yaml.Node) error { return readBytes(v, v.Value, &r.After) }},
	}
}

// keys returns the names of all fields.
func keys() []string { return slices.Sorted(maps.Keys(fields)) }

// keyOf returns the name in the file of a field of faults.Rule.
func keyOf(name string) string {
	for key, f := range fields {
		if slices.Contains(f.names, name) {
			return key
		}
	}
	return name
}

// decode decodes a single value.
func decode(v *yaml.Node, to any, want string) error {
	isNumber := false
	switch to.(type) {
	case *int, *uint64, *uint8:
		isNumber = true // Decode would cut the fraction off
	}
	if v.Kind != yaml.ScalarNode || v.Tag == "!!null" || isNumber && v.Tag != "!!int" || v.Decode(to) != nil {
		return at(v, "%q: want %s", v.Value, want)
	}
	return nil
}

// readCount reads a number from 1 on.
func readCount(v *yaml.Node, n *int) error {
	const want = "a number from 1 on"
	if err := decode(v, n, want); err != nil {
		return err
	}
	if *n < 1 {
		return at(v, "%d: want %s", *n, want)
	}
	return nil
}

// words returns the words of a scalar or a list of scalars.
func words(v *yaml.Node, want string) (list []string, err error) {
	nodes := []*yaml.Node{v}
	if v.Kind == yaml.SequenceNode {
		nodes = v.Content
	}
	for _, n := range nodes {
		if n.Kind != yaml.ScalarNode || n.Value == "" {
			return nil, at(n, "want %s", want)
		}
		list = append(list, n.Value)
	}
	if list == nil {
		return nil, at(v, "an empty list: want %s", want)
	}
	return list, nil
}

func readOperations(r *faults.Rule, v *yaml.Node) (err error) {
	r.Operations, err = words(v, "an operation such as write, or a list of them")
	return err
}

func readRanks(v *yaml.Node, to *[]int) error {
	list, err := words(v, "ranks such as 2 or 0-3,5")
	if err != nil {
		return err
	}
	ranks, err := linux.ParseList(strings.Join(list, ","), 1023)
	if err != nil {
		return at(v, "%v", err)
	}
	*to = ranks
	return nil
}

// readSize reads "4096", "1K-64K", "1M-" or "-100".
func readSize(r *faults.Rule, v *yaml.Node) error {
	const want = "a number of bytes such as 4096 or 64K, or a range such as 1-4096, 64K- or -100"
	if v.Kind != yaml.ScalarNode || v.Value == "" || v.Value == "-" {
		return at(v, "%q: want %s", v.Value, want)
	}
	from, to, isRange := strings.Cut(v.Value, "-")
	if !isRange {
		to = from
	}
	if from != "" {
		if err := readBytes(v, from, &r.MinSize); err != nil {
			return err
		}
	}
	r.MaxSize = math.MaxUint64
	if to == "" {
		return nil
	}
	if err := readBytes(v, to, &r.MaxSize); err != nil {
		return err
	}
	if r.MaxSize == 0 {
		return at(v, "no rule can be limited to operations without bytes: want %s", want)
	}
	return nil
}

func readBytes(v *yaml.Node, text string, n *uint64) error {
	bytes, err := units.RAMInBytes(text)
	if v.Kind != yaml.ScalarNode || err != nil || bytes < 0 || strings.ContainsAny(text, ". ") {
		return at(v, "%q: want a number of bytes such as 4096 or 64K", text)
	}
	*n = uint64(bytes)
	return nil
}

func readDelay(r *faults.Rule, v *yaml.Node) (err error) {
	if r.Delay, err = time.ParseDuration(v.Value); v.Kind != yaml.ScalarNode || err != nil {
		return at(v, "%q: want a duration such as 5ms or 1.5s", v.Value)
	}
	return nil
}

// readStatus reads the name of a constant of package nd.
func readStatus(r *faults.Rule, v *yaml.Node) error {
	if v.Kind == yaml.ScalarNode {
		for _, class := range []nd.Status{0x80000000, 0xC0000000} {
			for s := range nd.Status(0x1000) { // the numbers of all failures
				if s |= class; s.String() == v.Value {
					r.Status = s
					return nil
				}
			}
		}
	}
	return at(v, "unknown status %q: want a failure of package nd such as AccessViolation", v.Value)
}
