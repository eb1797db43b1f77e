//go:build linux

package ndcheck_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/softnd/softnd/nd"
	"github.com/softnd/softnd/nd/ndcheck"
)

// expecting runs a program whose rank 1 breaks N102, and calls expect before.
func expecting(t *testing.T, expect func(s *side)) (found []ndcheck.Finding, journal *ndcheck.Journal) {
	t.Helper()
	journal, err := ndcheck.NewJournal(make([]byte, ndcheck.JournalSize), nil)
	if err != nil {
		t.Fatal(err)
	}
	return watchWith(t, journal, nd.EndpointConfig{}, 64, []func(s *side){
		func(s *side) {
			s.give(s.bind(0, 64, nd.AllowWrite).Descriptor())
			s.second()
			s.barrier()
		},
		func(s *side) {
			d := s.get()
			ep := s.second()
			expect(s)
			for _, ep := range []nd.Endpoint{s.ep, ep} {
				s.must(ep.Write(1, s.sge(0, 8), d.Address+60, d.Token, 0))
				s.result(s.init)
			}
			s.barrier()
		}}), journal
}

// A finding is counted apart if it is of an expected rule, and about the object.
func TestExpect(t *testing.T) {
	for _, tc := range []struct {
		name     string
		expect   func(s *side)
		want     []string // rules of the findings that are reported
		expected int
	}{
		{"nothing", func(*side) {}, []string{"N102"}, 0},
		{"the adapter", func(s *side) { nd.Expect(s.job.Adapter(), "why", "N102") }, nil, 1},
		{"one of two endpoints", func(s *side) { nd.Expect(s.ep, "why", "N102") }, []string{"N102"}, 1},
		{"several rules", func(s *side) { nd.Expect(s.job.Adapter(), "why", "N101", "N102") }, nil, 1},
		{"another rule", func(s *side) { nd.Expect(s.ep, "why", "N103") }, []string{"N102", "N901"}, 0},
		{"another object", func(s *side) { nd.Expect(s.recv, "why", "N102") }, []string{"N102", "N901"}, 0},
		{"no rule", func(s *side) { nd.Expect(s.ep, "why", "N999") }, []string{"N102", "N901"}, 0},
		{"not watched", func(*side) { nd.Expect(7, "why", "N102"); nd.Expect(nil, "why", "N102") }, []string{"N102"}, 0},
	} {
		found, journal := expecting(t, tc.expect)
		var rules []string
		for _, f := range found {
			rules = append(rules, f.Rule.ID)
			if f.Rule.ID == "N901" && (!strings.HasPrefix(f.Site, "nd/ndcheck/expect_test.go:") || f.Rank != 1 || !strings.Contains(f.What, "why") ||
				strings.Contains(f.What, "no rule has this identifier") != strings.Contains(f.What, "N999")) {
				t.Errorf("%s: %v", tc.name, f)
			}
		}
		slices.Sort(rules)
		if !slices.Equal(rules, tc.want) {
			t.Errorf("%s: findings of %v, want %v", tc.name, rules, tc.want)
		}
		all, _ := journal.Findings()
		expected := 0
		for _, f := range all {
			if e := f.Expected; e != nil {
				expected++
				if e.Reason != "why" || e.Rank != 1 || !strings.HasPrefix(e.Site, "nd/ndcheck/expect_test.go:") {
					t.Errorf("%s: %+v", tc.name, e)
				}
			}
		}
		if expected != tc.expected {
			t.Errorf("%s: %d expected findings, want %d", tc.name, expected, tc.expected)
		}
	}
}

// Ignored rules are not reported, and identifiers that do not exist are errors.
func TestIgnore(t *testing.T) {
	ignored, err := ndcheck.ParseRules("N303,N801")
	if err != nil || len(ignored) != 2 || ignored[1].ID != "N801" {
		t.Errorf("%v, %v", ignored, err)
	}
	for _, list := range []string{"", "N303,", "N999", "n303", "N303 N801"} {
		if _, err := ndcheck.ParseRules(list); err == nil {
			t.Errorf("no error for %q", list)
		}
	}
}
