// Package faultfile reads a fault plan that is written in YAML. Its errors name the line.
package faultfile

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/agnivade/levenshtein"
	"go.yaml.in/yaml/v3"

	"github.com/softnd/softnd/faults"
)

// File is a plan as its file says it.
type File struct {
	Seed  *uint64 // nil = none given
	Rules []faults.Rule

	name  string
	nodes []ruleNodes // of the rules
}

// ruleNodes are the places of a rule in the file.
type ruleNodes struct {
	line   int
	fields map[string]*yaml.Node // by the name of the field of faults.Rule
}

// Parse reads a plan. name is that of the file, for errors.
func Parse(name string, text []byte) (*File, error) {
	f := &File{name: name}
	var document yaml.Node
	decoder := yaml.NewDecoder(strings.NewReader(string(text)))
	if err := decoder.Decode(&document); err != nil {
		return nil, fmt.Errorf("%s: no YAML document: %w", name, err)
	}
	switch err := decoder.Decode(new(yaml.Node)); {
	case err == nil:
		return nil, fmt.Errorf("%s: more than one YAML document: remove the line ---", name)
	case err != io.EOF:
		return nil, fmt.Errorf("%s: text after the YAML document: %w: remove it", name, err)
	}
	err := eachKey(document.Content[0], "a plan", func(key string, k, v *yaml.Node) (err error) {
		switch key {
		case "seed":
			f.Seed = new(uint64)
			return decode(v, f.Seed, "a number from 0 to 18446744073709551615")
		case "rules":
			return f.readRules(v)
		}
		return unknown(k, []string{"rules", "seed"})
	})
	if err == nil && len(f.Rules) == 0 {
		err = at(document.Content[0], "no rules: add a list named rules")
	}
	if err != nil {
		return nil, fmt.Errorf("%s:%w", name, err)
	}
	return f, nil
}

func (f *File) readRules(list *yaml.Node) error {
	if list.Kind != yaml.SequenceNode {
		return at(list, "rules is no list: begin each rule with a dash")
	}
	for _, node := range list.Content {
		var rule faults.Rule
		nodes := ruleNodes{node.Line, make(map[string]*yaml.Node)}
		if err := eachKey(node, "a rule", func(key string, k, v *yaml.Node) error {
			field, ok := fields[key]
			if !ok {
				return unknown(k, keys())
			}
			for _, name := range field.names {
				nodes.fields[name] = v
			}
			return field.read(&rule, v)
		}); err != nil {
			return err
		}
		f.Rules, f.nodes = append(f.Rules, rule), append(f.nodes, nodes)
	}
	return nil
}

// Line returns the line on which a rule begins.
func (f *File) Line(rule int) int { return f.nodes[rule].line }

// Plan compiles the plan for a job with a number of ranks.
func (f *File) Plan(seed uint64, ranks int) (*faults.Plan, error) {
	for i := range f.Rules {
		for _, field := range []struct {
			name string
			list []int
		}{{"Ranks", f.Rules[i].Ranks}, {"Peers", f.Rules[i].Peers}} {
			for _, rank := range field.list {
				if rank >= ranks {
					return nil, fmt.Errorf("%s:%w", f.name, at(f.nodes[i].fields[field.name], "%s: rank %d: the job has %d, numbered from 0", keyOf(field.name), rank, ranks))
				}
			}
		}
	}
	plan, err := faults.New(seed, f.Rules...)
	wrong, ok := errors.AsType[*faults.RuleError](err)
	if !ok || wrong.Rule >= len(f.nodes) {
		if err != nil {
			err = fmt.Errorf("%s: %w", f.name, err)
		}
		return plan, err
	}
	key := keyOf(wrong.Field)
	if node := f.nodes[wrong.Rule].fields[wrong.Field]; node != nil {
		return nil, fmt.Errorf("%s:%w", f.name, at(node, "%s: %s", key, wrong.Detail))
	}
	return nil, fmt.Errorf("%s:%d: %s: %s", f.name, f.nodes[wrong.Rule].line, key, wrong.Detail)
}

// eachKey calls f for each key of a mapping. what names the mapping in errors.
func eachKey(node *yaml.Node, what string, f func(key string, k, v *yaml.Node) error) error {
	if node.Kind != yaml.MappingNode {
		return at(node, "%s is a list of names with values, such as rules: or action: fail", what)
	}
	seen := make(map[string]int)
	for i := 0; i+1 < len(node.Content); i += 2 {
		k, v := node.Content[i], node.Content[i+1]
		if k.Kind != yaml.ScalarNode || k.Tag == "!!merge" {
			return at(k, "the name of a field is a plain word")
		}
		if first, twice := seen[k.Value]; twice {
			return at(k, "%s is given twice, first on line %d: remove one", k.Value, first)
		}
		seen[k.Value] = k.Line
		if v.Kind == yaml.AliasNode {
			return at(v, "%s: aliases are not supported: repeat the value", k.Value)
		}
		if err := f(k.Value, k, v); err != nil {
			return err
		}
	}
	return nil
}

// lineError is an error whose text begins with a line number.
type lineError struct {
	line int
	text string
}

func (e *lineError) Error() string { return fmt.Sprintf("%d: %s", e.line, e.text) }

// at returns an error about a node.
func at(node *yaml.Node, format string, args ...any) error {
	return &lineError{node.Line, fmt.Sprintf(format, args...)}
}

// unknown returns the error about a key that does not exist.
func unknown(k *yaml.Node, known []string) error {
	for _, name := range known {
		if d := levenshtein.ComputeDistance(k.Value, name); d <= len(name)/3 {
			return at(k, "unknown field %q: did you mean %s?", k.Value, name)
		}
	}
	return at(k, "unknown field %q: want %s", k.Value, strings.Join(known, ", "))
}
