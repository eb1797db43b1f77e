package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// source returns a file that holds text as one kind, and the file's name.
func source(k kind, text string) (file, content string) {
	switch k {
	case comment:
		return "x.go", "package x\n\nvar (\n\t// " + text + "\n\tx int\n)\n"
	case page:
		return "x.md", text + "\n"
	case heading:
		return "x.md", "# " + text + "\n"
	case quoted:
		return "x.go", fmt.Sprintf("package x\n\nvar x = %q\n", text+" ")
	case name:
		return "x.go", "package x\n\nvar " + text + " = 1\n"
	case field:
		return "x.go", "package x\n\ntype x struct{ " + text + " bool }\n"
	case test:
		return "x_test.go", "package x\n\nfunc " + text + "() {}\n"
	}
	panic(k)
}

func mustCheck(t *testing.T, rules []rule, file, content string) []finding {
	t.Helper()
	found, err := check(rules, file, content)
	if err != nil {
		t.Fatalf("%v in\n%s", err, content)
	}
	return found
}

func TestRulesFindTheirExamples(t *testing.T) {
	rules, err := parseRules(rulesText)
	if err != nil {
		t.Fatal(err)
	}
	for i, r := range rules {
		for _, k := range r.in {
			for _, text := range r.bad {
				if isName, isSentence := k == name || k == field || k == test, strings.Contains(text, " "); isName && isSentence {
					continue
				} else if !isName && !isSentence {
					text = "Reads the " + text + " twice."
				}
				file, content := source(k, text)
				if r.only != nil {
					file = r.only[0] + "/" + file
				}
				if found := mustCheck(t, rules[i:i+1], file, content); len(found) == 0 {
					t.Errorf("rule %s finds nothing in the %s %q", r.name, k, text)
				}
			}
			for _, text := range r.good {
				if strings.Contains(text, " ") == (k == name || k == field || k == test) {
					continue
				}
				file, content := source(k, text)
				for _, f := range mustCheck(t, rules, file, content) {
					t.Errorf("the good %s %q: %s", k, text, f)
				}
			}
		}
	}
}

// TestCases checks files with what they are to show: those that no rule of rules.txt covers.
func TestCases(t *testing.T) {
	rules, err := parseRules(rulesText)
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile("testdata/cases.txt")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range strings.Split("\n"+string(text), "\n-- ")[1:] {
		head, content, _ := strings.Cut(c, "\n")
		file, wants, _ := strings.Cut(head, ":")
		t.Run(file, func(t *testing.T) {
			var got []string
			for _, f := range mustCheck(t, rules, file, content+"\n") {
				got = append(got, fmt.Sprintf("%s@%d", f.rule, f.line))
			}
			if want := strings.Fields(wants); fmt.Sprint(got) != fmt.Sprint(want) {
				t.Errorf("got %v, want %v in\n%s", got, want, content)
			}
		})
	}
}

func TestAllowedEntryLetsFindingsThrough(t *testing.T) {
	all, err := parseAllowed("# a comment\nx.go | term | Of The Mind | a reason\nx.go | term | unused words | a reason\n")
	if err != nil {
		t.Fatal(err)
	}
	f := finding{path: "x.go", rule: "term", context: "The fragment of the mind."}
	if !all.lets(f) {
		t.Error("a finding that the list allows is reported")
	}
	for _, other := range []finding{
		{path: "y.go", rule: f.rule, context: f.context},
		{path: f.path, rule: "verb", context: f.context},
		{path: f.path, rule: f.rule, context: "another sentence"},
	} {
		if all.lets(other) {
			t.Errorf("allowed: %+v", other)
		}
	}
	if unused := all.unused(); len(unused) != 1 || unused[0].line != 3 {
		t.Errorf("unused entries: %v, want that of line 3", unused)
	}
	for _, broken := range []string{"x.go | term | words", "x.go | term | | reason"} {
		if _, err := parseAllowed(broken); err == nil {
			t.Errorf("%q is accepted", broken)
		}
	}
}

func TestParseRulesRefusesIncompleteRules(t *testing.T) {
	const whole = "rule: r\nfind: x+\nsay: y\nbad: x\ngood: z\n"
	if _, err := parseRules(whole); err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(whole) {
		if _, err := parseRules(strings.Replace(whole, line, "", 1)); err == nil {
			t.Errorf("accepted without %q", line)
		}
	}
	for _, line := range []string{"find: (", "in: nowhere", "other: x", "nothing"} {
		if _, err := parseRules(whole + line); err == nil {
			t.Errorf("%q is accepted", line)
		}
	}
}

func TestSplitName(t *testing.T) {
	for in, want := range map[string]string{
		"takeBack": "-take-back-", "HTTPProxy": "-http-proxy-", "ring_slot": "-ring-slot-", "x": "-x-", "ORDER a-b": "-order-a-b-",
	} {
		if got := splitName(in); got != want {
			t.Errorf("%s: got %s, want %s", in, got, want)
		}
	}
}

// TestRunPrintsPlaces runs the check over a directory, over a file in it, and over the whole tree.
func TestRunPrintsPlaces(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	for name, text := range map[string]string{
		"go.mod": "module x\n", "good.md": "Fine.\n", "a/bad.md": "First.\n\nSecond,\nanother row of words in turn" + "s.\n",
		"a/testdata/ignored.md": "It is done in turn" + "s.\n", "a/data.bin": "\x00",
	} {
		if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	const want = "a/bad.md:4: \"in turn" + "s\": idiom: say \"alternately\" instead\n"
	for _, paths := range [][]string{{"a"}, {"a/bad.md"}, {"./..."}, {"a", "a/bad.md", "good.md"}} {
		var out strings.Builder
		if n, err := run(&out, false, paths); n != 1 || err != nil || out.String() != want {
			t.Errorf("%v: %d findings, %v:\n%swant\n%s", paths, n, err, &out, want)
		}
	}
	var out strings.Builder
	if n, err := run(&out, true, nil); n == 0 || err != nil || !strings.Contains(out.String(), "     1 a\n") {
		t.Errorf("summary: %d findings, %v:\n%s", n, err, &out)
	}
	long := strings.Repeat("many words make a sentence ", 7) + "long.\n"
	if err := os.WriteFile("long.md", []byte(long), 0o600); err != nil {
		t.Fatal(err)
	}
	out.Reset()
	if n, err := run(&out, false, []string{"long.md"}); n != 0 || err != nil || !strings.Contains(out.String(), "warning: length: the sentence has 36 words") {
		t.Errorf("a long sentence: %d findings, %v:\n%s", n, err, &out)
	}
	if _, err := run(&out, false, []string{"missing"}); err == nil {
		t.Error("a missing path is no error")
	}
	t.Chdir("a")
	if _, err := run(&out, false, nil); err == nil {
		t.Error("a run outside the root is no error")
	}
}
