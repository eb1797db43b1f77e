package ndcheck

import (
	"fmt"
	"slices"
	"strings"
)

// Expectation is a call of [nd.Expect]: the program breaks a rule on purpose.
type Expectation struct {
	Rank   int      `json:"rank"`
	Rules  []string `json:"rules"` // any of them; which one may depend on the timing
	Reason string   `json:"reason"`
	Site   string   `json:"site"`
}

// key is equal for all ranks that run the same call.
func (e Expectation) key() string { return fmt.Sprint(e.Site, e.Reason, e.Rules) }

// Expect is called by [nd.Expect].
func (c *checker) Expect(on any, reason string, rules ...string) {
	scope := "" // of everything
	if o, ok := on.(object); ok {
		scope = o.name()
	}
	e := &Expectation{Rank: c.rank, Rules: slices.Clone(rules), Reason: reason, Site: here()}
	key := e.key()
	c.mu.Lock()
	known, again := c.expectations[key]
	if again {
		e = known
	}
	c.expectations[key] = e
	if !slices.Contains(c.expected[scope], e) {
		c.expected[scope] = append(c.expected[scope], e)
	}
	c.mu.Unlock()
	if !again {
		c.journal.add(record{Expect: e})
	}
}

// expects returns the expectation that a rule is broken, nil if there is none. The caller holds checker.mu.
func (c *checker) expects(r *Rule, about []object) *Expectation {
	scopes := []string{""}
	for _, o := range about {
		scopes = append(scopes, o.name(), o.home().name())
	}
	for _, scope := range scopes {
		for _, e := range c.expected[scope] {
			if slices.Contains(e.Rules, r.ID) {
				return e
			}
		}
	}
	return nil
}

// Unmet returns a finding for each expectation so far that no finding has met, in any process. If findings are lost, it returns none.
func (j *Journal) Unmet() (unmet []Finding) {
	records, lost := j.records()
	if lost > 0 {
		return nil
	}
	met := make(map[string]bool)
	for _, r := range records {
		if r.Finding != nil && r.Finding.Expected != nil {
			met[r.Finding.Expected.key()] = true
		}
	}
	for _, r := range records {
		if r.Expect == nil || met[r.Expect.key()] {
			continue
		}
		met[r.Expect.key()] = true // once for all ranks
		what := fmt.Sprintf("expects %s (%s), which did not occur", strings.Join(r.Expect.Rules, " or "), r.Expect.Reason)
		if i := slices.IndexFunc(r.Expect.Rules, func(id string) bool { return byID(id) == nil }); i >= 0 || len(r.Expect.Rules) == 0 {
			what += ": no rule has this identifier"
		}
		unmet = append(unmet, Finding{Rule: expectedInVain, Rank: r.Expect.Rank, What: what, Site: r.Expect.Site})
	}
	return unmet
}
