package main

import (
	"errors"
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"

	"github.com/softnd/softnd/bench/report"
)

// mark matches a figure in a page: its name, and its text.
var mark = regexp.MustCompile(`<!--figure ([^>]*?)-->([^<]*)<!--/-->`)

// opening matches marks, even without an end.
var opening = regexp.MustCompile(`<!--figure `)

// change is a figure whose text differs from the report.
type change struct {
	line             int
	name, have, want string
}

// fill returns a page with the figures of a report, and the changes.
func fill(text string, rep *report.Report) (_ string, changes []change, err error) {
	var out strings.Builder
	at := 0
	found := mark.FindAllStringSubmatchIndex(text, -1)
	if len(found) != len(opening.FindAllString(text, -1)) {
		return "", nil, fmt.Errorf("a figure has no end: want <!--figure NAME-->TEXT<!--/-->")
	}
	for _, m := range found {
		name, have := text[m[2]:m[3]], text[m[4]:m[5]]
		want, err := lookUp(rep, name)
		line := 1 + strings.Count(text[:m[0]], "\n")
		if err == nil && strings.TrimSpace(text[strings.LastIndex(text[:m[0]], "\n")+1:m[0]]) == "" {
			err = errors.New("it begins a line, which Markdown takes for a block of HTML")
		}
		if err != nil {
			return "", nil, fmt.Errorf("line %d: figure %s: %w", line, name, err)
		}
		if have != want {
			changes = append(changes, change{line, name, have, want})
		}
		out.WriteString(text[at:m[4]] + want)
		at = m[5]
	}
	out.WriteString(text[at:])
	return out.String(), changes, nil
}

// lookUp returns the text of a figure.
func lookUp(rep *report.Report, name string) (string, error) {
	words := strings.Fields(name)
	if len(words) == 0 {
		return "", fmt.Errorf("it has no name")
	}
	if words[0] == "machine" {
		return rep.Machine.String(), nil
	}
	q := query{test: words[0], show: "value"}
	for _, w := range words[1:] {
		if err := q.set(w); err != nil {
			return "", err
		}
	}
	var result *report.Result
	for i := range rep.Results {
		if !q.matches(&rep.Results[i]) {
			continue
		}
		if result != nil {
			return "", fmt.Errorf("the report has more than one: give more settings")
		}
		result = &rep.Results[i]
	}
	if result == nil {
		return "", fmt.Errorf("the report has none")
	}
	return q.text(result)
}

// query names a figure. A zero number matches any.
type query struct {
	test, show, provider      string
	size, depth, pairs, ranks int
}

func (q *query) set(word string) error {
	key, value, _ := strings.Cut(word, "=")
	number, err := strconv.Atoi(value)
	switch key {
	case "size":
		q.size = number
	case "depth":
		q.depth = number
	case "pairs":
		q.pairs = number
	case "ranks":
		q.ranks = number
	case "provider":
		q.provider, err = value, nil
	case "show":
		q.show, err = value, nil
	default:
		return fmt.Errorf("unknown setting %q: want size, depth, pairs, ranks, provider or show", word)
	}
	if err != nil {
		return fmt.Errorf("setting %q: want a number", word)
	}
	return nil
}

func (q *query) matches(r *report.Result) bool {
	provider := q.provider
	if provider == "" {
		provider = "softnd"
	}
	return r.Test == q.test && r.Provider == provider &&
		(q.size == 0 || q.size == r.Size) && (q.depth == 0 || q.depth == r.Depth) &&
		(q.pairs == 0 || q.pairs == r.Pairs) && (q.ranks == 0 || q.ranks == r.Ranks)
}

func (q *query) text(r *report.Result) (string, error) {
	switch q.show {
	case "value":
		return short(r.Value, r.Unit), nil
	case "range":
		return report.Range(r.Low, r.High, r.Unit), nil
	case "ratio", "limit":
		if r.Limit == nil {
			return "", fmt.Errorf("it has no limit")
		}
		if q.show == "ratio" {
			return short(r.Limit.Ratio, "ratio"), nil
		}
		return short(r.Limit.Value, r.Limit.Unit), nil
	}
	return "", fmt.Errorf("show=%s: want value, range, ratio or limit", q.show)
}

// short rounds a figure to two digits, as readers quote it.
func short(v float64, unit string) string {
	if v != 0 {
		step := math.Pow10(int(math.Floor(math.Log10(math.Abs(v)))) - 1)
		v = math.Round(v/step) * step
	}
	number, rest, _ := strings.Cut(report.Figure(v, unit), " ")
	if strings.Contains(number, ".") {
		number = strings.TrimRight(strings.TrimRight(number, "0"), ".")
	}
	return strings.TrimSpace(number + " " + rest)
}
