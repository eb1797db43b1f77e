package faultfile

import (
	"encoding/json"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"go.yaml.in/yaml/v3"

	"github.com/softnd/softnd/faults"
	"github.com/softnd/softnd/nd"
)

func TestParse(t *testing.T) {
	f, err := Parse("plan.yaml", []byte(`
seed: 18446744073709551615
rules:
  - name: lose a write
    operation: [write, read]
    rank: 1,3-4
    peer: [0, 2]
    endpoint: 2
    window: 1
    size: 1K-64K
    phase: execute
    nth: 3
    every: 2
    times: 5
    action: fail
    status: AccessViolation
    after: 1000
  - {operation: send, probability: 0.25, action: corrupt, offset: 2K, xor: 0x80, size: 4K-}
  - {operation: accept, rank: 0, action: delay, delay: 1.5s}
`))
	if err != nil {
		t.Fatal(err)
	}
	want := []faults.Rule{
		{Name: "lose a write", Operations: []string{"write", "read"}, Ranks: []int{1, 3, 4}, Peers: []int{0, 2}, Endpoint: 2, Window: 1,
			MinSize: 1024, MaxSize: 65536, Phase: "execute", Nth: 3, Every: 2, Times: 5, Action: "fail", Status: nd.AccessViolation, After: 1000},
		{Operations: []string{"send"}, MinSize: 4096, MaxSize: 1<<64 - 1, Probability: 0.25, Action: "corrupt", Offset: 2048, XOR: 0x80},
		{Operations: []string{"accept"}, Ranks: []int{0}, Action: "delay", Delay: 1500 * time.Millisecond},
	}
	if !reflect.DeepEqual(f.Rules, want) {
		t.Errorf("got %+v\nwant %+v", f.Rules, want)
	}
	if f.Seed == nil || *f.Seed != 1<<64-1 || f.Line(0) != 4 || f.Line(2) != 19 {
		t.Errorf("seed %v, lines %d and %d", f.Seed, f.Line(0), f.Line(2))
	}
	if plan, err := f.Plan(1, 1024); err != nil || len(plan.Outcomes()) != 3 {
		t.Error(err)
	}
}

// accepted and refused are plans of one rule. The schema and the parser agree about them, except for
// those that only the parser refuses, see deeper.
var accepted = []string{
	"{operation: write, action: drop}",
	"{operation: [send, receive], action: kill, rank: 0-3}",
	"{operation: write, action: fail, status: RemoteError, size: 8}",
	"{operation: write, action: fail, status: RemoteError, size: -100}",
	"{operation: read, action: invalidate, after: 64K, rank: [1, 2]}",
	"{operation: allocate, action: exhaust, size: 1M-, times: 1}",
	"{operation: write, action: corrupt, xor: 255, probability: 1}",
	"{operation: write, action: delay, delay: 1h2m3.5s, every: 7}",
	"{operation: connection-request, action: refuse, peer: 3}",
	"{operation: listen, action: stop, phase: post}",
}

// refused maps a plan to the text of its error after the file's name.
var refused = map[string]string{
	"{operation: write}":                                         `2: action: missing: want corrupt, delay`,
	"{action: drop}":                                             `2: operation: missing: name at least one`,
	"{operation: writ, action: drop}":                            `2: operation: unknown operation "writ": want accept, allocate`,
	"{operation: [], action: drop}":                              `2: an empty list: want an operation`,
	"{operation: write, action: explode}":                        `2: action: unknown action "explode"`,
	"{operation: write, action: fail}":                           `2: status: missing: name the status`,
	"{operation: write, action: fail, status: oops}":             `2: unknown status "oops"`,
	"{operation: write, action: drop, status: RemoteError}":      `2: status: the action drop does not use it: remove it`,
	"{operation: write, action: drop, ranks: 1}":                 `2: unknown field "ranks": did you mean rank?`,
	"{operation: write, action: drop, colour: red}":              `2: unknown field "colour": want action, after`,
	"{operation: write, action: drop, rank: 1024}":               `2: number 1024 is too large`,
	"{operation: write, action: drop, rank: x}":                  `2: "x" is not a number or range`,
	"{operation: write, action: drop, nth: 0}":                   `2: 0: want a number from 1 on`,
	"{operation: write, action: drop, nth: two}":                 `2: "two": want a number from 1 on`,
	"{operation: write, action: drop, nth: 1.5}":                 `2: "1.5": want a number from 1 on`,
	"{operation: write, action: drop, nth: }":                    `2: "": want a number from 1 on`,
	"{operation: write, action: drop, size: 0}":                  `2: no rule can be limited to operations without bytes`,
	"{operation: write, action: drop, size: 1-2-3}":              `2: "2-3": want a number of bytes`,
	"{operation: write, action: drop, size: -}":                  `2: "-": want a number of bytes`,
	"{operation: write, action: drop, probability: 0}":           `2: a probability of 0`,
	"{operation: write, action: drop, probability: 1.1}":         `2: probability: 1.1: want a number above 0`,
	"{operation: write, action: drop, probability: 0.5, nth: 2}": `2: probability: the rule also counts operations`,
	"{operation: write, action: drop, phase: late}":              `2: phase: unknown phase "late": want complete, execute, post`,
	"{operation: write, action: delay}":                          `2: delay: 0s: want a duration above 0`,
	"{operation: write, action: delay, delay: 5}":                `2: "5": want a duration such as 5ms`,
	"{operation: write, action: corrupt, xor: 0}":                `2: 0 inverts no bit`,
	"{operation: write, action: corrupt, xor: 256}":              `2: "256": want a byte`,
	"{operation: write, action: drop, xor: 1}":                   `2: xor: the action drop does not use it`,
	"{operation: write, action: drop, name: {a: b}}":             `2: "": want a text`,
	"[write, drop]": `2: a rule is a list of names with values`,
	"{operation: write, action: drop, name: 12345678901234567890123456789012345678901234567890123456789012345}": `2: name: "1234`,
}

// deeper are plans that only the parser refuses: the combination is impossible.
var deeper = map[string]string{
	"{operation: [write, connect], action: kill}":                        `2: operation: write are requests, connect are calls`,
	"{operation: bind, action: corrupt}":                                 `2: action: corrupt does not apply to bind`,
	"{operation: allocate, action: drop}":                                `2: action: drop does not apply to allocate`,
	"{operation: connect, action: drop}":                                 `2: action: drop does not apply to connect`,
	"{operation: send, action: invalidate}":                              `2: action: invalidate does not apply to send`,
	"{operation: write, action: refuse}":                                 `2: action: refuse does not apply to write`,
	"{operation: write, action: exhaust}":                                `2: action: exhaust does not apply to write`,
	"{operation: connect, action: kill, phase: execute}":                 `2: phase: the call connect has only the phase post`,
	"{operation: receive, action: drop, phase: complete}":                `2: phase: a receive has no phase complete`,
	"{operation: write, action: delay, delay: 1s, phase: post}":          `2: phase: a post never blocks`,
	"{operation: write, action: corrupt, phase: post}":                   `2: phase: corrupt acts on data in flight`,
	"{operation: write, action: fail, status: Success}":                  `2: unknown status "Success"`,
	"{operation: write, action: fail, status: SharingViolation}":         `2: status: SharingViolation is not the status of a result of write`,
	"{operation: bind, action: fail, status: AccessViolation}":           `2: status: AccessViolation is not the status of a result of bind`,
	"{operation: bind, action: drop, size: 8}":                           `2: size: the operation bind has no size`,
	"{operation: listen, action: kill, peer: 1}":                         `2: peer: the operation listen has no peer`,
	"{operation: send, action: drop, window: 1}":                         `2: window: the operation send has no window`,
	"{operation: allocate, action: kill, endpoint: 1}":                   `2: endpoint: the operation allocate has no endpoint`,
	"{operation: receive, action: drop, after: 8}":                       `2: after: want the phase execute of`,
	"{operation: write, action: drop, after: 8, phase: complete}":        `2: after: want the phase execute of`,
	"{operation: write, action: drop, after: 8, size: 8}":                `2: after: 8 bytes are not less than`,
	"{operation: write, action: corrupt, after: 8}":                      `2: after: corrupt has an offset instead`,
	"{operation: write, action: corrupt, offset: 8, size: 8}":            `2: offset: byte 8 is beyond the size`,
	"{operation: write, action: drop, size: 9-8}":                        `2: size: 8 is less than the minimum 9`,
	"{operation: connection-request, action: delay, delay: 1s}":          `2: operation: a connection-request cannot be late`,
	"{operation: connection-request, action: fail, status: RemoteError}": `2: action: a connection-request cannot fail`,
	"{operation: write, action: drop, rank: 3-1}":                        `2: range 3-1 is descending`,
	"{operation: write, action: delay, delay: 0s}":                       `2: delay: 0s: want a duration above 0`,
}

func TestSchemaAndParserAgree(t *testing.T) {
	schema := schemaOf(t)
	for _, rule := range accepted {
		text := "rules:\n- " + rule + "\n"
		if err := tryPlan(text); err != nil {
			t.Errorf("%s: %v", rule, err)
		}
		if err := schema.Validate(valueOf(t, text)); err != nil {
			t.Errorf("%s: the schema: %v", rule, err)
		}
	}
	for rules, schemaRefuses := range map[*map[string]string]bool{&refused: true, &deeper: false} {
		for rule, want := range *rules {
			text := "rules:\n- " + rule + "\n"
			if err := tryPlan(text); err == nil || !strings.HasPrefix(err.Error(), "plan.yaml:"+want) {
				t.Errorf("%s: %v, want %s", rule, err, want)
			}
			if err := schema.Validate(valueOf(t, text)); schemaRefuses != (err != nil) {
				t.Errorf("%s: the schema: %v", rule, err)
			}
		}
	}
}

func TestParseRefusesOtherDocuments(t *testing.T) {
	for text, want := range map[string]string{
		"":                             "plan.yaml: no YAML document",
		"a: [":                         "plan.yaml: no YAML document: yaml: line 1",
		"rules: []":                    "plan.yaml:1: no rules: add a list",
		"seed: 1":                      "plan.yaml:1: no rules: add a list",
		"- 1":                          "plan.yaml:1: a plan is a list of names",
		"rules: 7":                     "plan.yaml:1: rules is no list",
		"seed: -1\nrules:":             `plan.yaml:1: "-1": want a number from 0`,
		"\nrule:\n- {}":                `plan.yaml:2: unknown field "rule": did you mean rules?`,
		"seed: 1\nseed: 2":             "plan.yaml:2: seed is given twice, first on line 1",
		"seed: &a 1\nrules: *a":        "plan.yaml:2: rules: aliases are not supported",
		"rules:\n- <<: {action: drop}": "plan.yaml:2: the name of a field is a plain word",
		"rules:\n- {operation: write, action: drop}\n---\nseed: 1":         "plan.yaml: more than one YAML document",
		"rules:\n- {operation: write, action: drop}\n---\nrules: [":        "plan.yaml: text after the YAML document: yaml: line ",
		"rules:\n- operation: write\n  action: drop\n  nth: 2\n  nth: 3\n": "plan.yaml:5: nth is given twice, first on line 4",
		"rules:\n- operation: write\n  action: drop\n  xor: 2\n":           "plan.yaml:4: xor: the action drop does not use it",
	} {
		if err := tryPlan(text); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
	many := "rules:\n" + strings.Repeat("- {operation: write, action: drop}\n", 129)
	if err := tryPlan(many); err == nil || !strings.Contains(err.Error(), "at most 128 rules") {
		t.Errorf("129 rules: %v", err)
	}
}

// The schema lists the parser's fields and words.
func TestSchemaListsEverything(t *testing.T) {
	text, err := os.ReadFile("../../../faults/plan.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	var s struct {
		Defs struct {
			Rule struct {
				Properties map[string]struct{ Enum []string }
			}
			Operation struct{ Enum []string }
		} `json:"$defs"`
	}
	if err := json.Unmarshal(text, &s); err != nil {
		t.Fatal(err)
	}
	properties := s.Defs.Rule.Properties
	for _, key := range keys() {
		if _, ok := properties[key]; !ok {
			t.Errorf("the schema lacks %s", key)
		}
	}
	if len(properties) != len(fields) {
		t.Errorf("the schema has %d fields, the parser %d", len(properties), len(fields))
	}
	for field, enum := range map[string][]string{"operation": s.Defs.Operation.Enum, "phase": properties["phase"].Enum, "action": properties["action"].Enum} {
		rule := map[string]string{"operation": "write", "phase": "execute", "action": "drop"}
		rule[field] = "nonsense"
		err := tryPlan("rules:\n- {operation: " + rule["operation"] + ", phase: " + rule["phase"] + ", action: " + rule["action"] + "}")
		_, list, ok := strings.Cut(err.Error(), `"nonsense": want `)
		if have := strings.Split(list, ", "); !ok || !slices.Equal(have, slices.Sorted(slices.Values(enum))) {
			t.Errorf("%s: the parser has %q, the schema %q", field, have, enum)
		}
	}
}

func tryPlan(text string) error {
	f, err := Parse("plan.yaml", []byte(text))
	if err == nil {
		_, err = f.Plan(1, 1024)
	}
	return err
}

func schemaOf(t *testing.T) *jsonschema.Schema {
	t.Helper()
	schema, err := jsonschema.NewCompiler().Compile("../../../faults/plan.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	return schema
}

// valueOf returns the value of a YAML text as package jsonschema expects it.
func valueOf(t *testing.T, text string) any {
	t.Helper()
	var v any
	if err := yaml.Unmarshal([]byte(text), &v); err != nil {
		t.Fatal(err)
	}
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	value, err := jsonschema.UnmarshalJSON(strings.NewReader(string(b)))
	if err != nil {
		t.Fatal(err)
	}
	return value
}

func FuzzParse(f *testing.F) {
	for _, rule := range accepted {
		f.Add("rules:\n- " + rule + "\n")
	}
	for rule := range refused {
		f.Add("seed: 3\nrules:\n- " + rule + "\n")
	}
	f.Add("a: &a [*a]\nrules: *a")
	f.Fuzz(func(_ *testing.T, text string) { _ = tryPlan(text) })
}

func TestPlanNamesRanksThatTheJobLacks(t *testing.T) {
	f, err := Parse("plan.yaml", []byte("rules:\n- operation: write\n  action: drop\n  peer: 3\n"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Plan(1, 4); err != nil {
		t.Error(err)
	}
	if _, err := f.Plan(1, 3); err == nil || err.Error() != "plan.yaml:4: peer: rank 3: the job has 3, numbered from 0" {
		t.Error(err)
	}
}

// docs/faults.md describes every field, operation and action, and its plans are valid.
func TestPageDescribesEverything(t *testing.T) {
	text, err := os.ReadFile("../../../docs/faults.md")
	if err != nil {
		t.Fatal(err)
	}
	page := string(text)
	for _, key := range append(keys(), "seed", "rules") {
		if !strings.Contains(page, "`"+key+"`") {
			t.Errorf("nothing about %s", key)
		}
	}
	plans := 0
	for part := range strings.SplitSeq(page, "```yaml\n") {
		plan, _, ok := strings.Cut(part, "```")
		if !ok || !strings.HasPrefix(strings.TrimLeft(plan, "# "), "rules:") && !strings.HasPrefix(plan, "seed:") {
			continue
		}
		plans++
		if err := tryPlan(plan); err != nil {
			t.Errorf("%v in\n%s", err, plan)
		}
		if err := schemaOf(t).Validate(valueOf(t, plan)); err != nil {
			t.Errorf("the schema: %v in\n%s", err, plan)
		}
	}
	if plans < 5 {
		t.Errorf("only %d plans", plans)
	}
	// The table of operations says exactly which actions an operation may have.
	_, table, _ := strings.Cut(page, "| operation | rules about it may |")
	table, _, _ = strings.Cut(table, "\n\n")
	listed := make(map[string][]string)
	var ofSend []string
	word := regexp.MustCompile("`([a-z-]+)`")
	for line := range strings.Lines(table) {
		cells := strings.Split(line, "|")
		if len(cells) != 4 || strings.HasPrefix(cells[1], "---") {
			continue
		}
		var actions []string
		for _, m := range word.FindAllStringSubmatch(cells[2], -1) {
			actions = append(actions, m[1])
		}
		for _, m := range word.FindAllStringSubmatch(cells[1], -1) {
			listed[m[1]] = actions
			if m[1] == "send" {
				ofSend = actions
			}
			if m[1] == "read" || m[1] == "write" {
				listed[m[1]] = append(slices.Clone(ofSend), "invalidate")
			}
			if m[1] == "receive" {
				listed[m[1]] = ofSend
			}
		}
	}
	for _, operation := range wordsOf(t, "operation") {
		if listed[operation] == nil {
			t.Errorf("nothing about the operation %s", operation)
		}
		for _, action := range wordsOf(t, "action") {
			rule := "{operation: " + operation + ", action: " + action
			switch action {
			case "fail":
				rule += ", status: Canceled"
			case "delay":
				rule += ", delay: 1s"
			}
			err := tryPlan("rules:\n- " + rule + "}")
			if want := slices.Contains(listed[operation], action); want != (err == nil) {
				t.Errorf("%s of %s: documented %v, %v", action, operation, want, err)
			}
		}
	}
}

// wordsOf returns the words that the parser lists for a field.
func wordsOf(t *testing.T, field string) []string {
	t.Helper()
	rule := map[string]string{"operation": "write", "action": "drop"}
	rule[field] = "nonsense"
	_, list, _ := strings.Cut(tryPlan("rules:\n- {operation: "+rule["operation"]+", action: "+rule["action"]+"}").Error(), `"nonsense": want `)
	return strings.Split(list, ", ")
}
