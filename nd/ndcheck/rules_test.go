//go:build linux

package ndcheck_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/softnd/softnd/nd"
	"github.com/softnd/softnd/nd/ndcheck"
)

// program is, for a rule, a program that breaks it and one that comes close to it.
type program struct {
	rule   string
	other  int // rank that the finding names as the other, -1 = none
	cfg    nd.EndpointConfig
	depth  int    // of the queues; 0 = 64
	also   string // a rule that both programs break besides
	broken [2]func(s *side)
	clean  [2]func(s *side)
	third  func(s *side) // rank 2 of both programs, nil = none
}

// except returns the findings that are not of a rule.
func except(rule string, found []ndcheck.Finding) []ndcheck.Finding {
	return slices.DeleteFunc(found, func(f ndcheck.Finding) bool { return f.Rule.ID == rule })
}

func TestRules(t *testing.T) {
	t.Parallel()
	tested := map[string]bool{"N603": true, "N703": true, "N901": true, "N902": true} // TestConnects, TestWaitForSilence, TestExpect, TestSightLost
	for _, p := range slices.Concat(memoryPrograms, requestPrograms) {
		tested[p.rule] = true
		if p.depth == 0 {
			p.depth = 64
		}
		var third []func(s *side)
		if p.third != nil {
			third = append(third, p.third)
		}
		t.Run(p.rule, func(t *testing.T) {
			t.Parallel() // one waits for the ReceiveTimeout
			t.Run("broken", func(t *testing.T) {
				found := except(p.also, watchAll(t, p.cfg, p.depth, append(p.broken[:2:2], third...)))
				if len(found) != 1 || found[0].Rule.ID != p.rule {
					t.Fatalf("%d findings, want one of %s:\n%v", len(found), p.rule, found)
				}
				f := found[0]
				if !strings.HasPrefix(f.Site, "nd/ndcheck/rules_") {
					t.Errorf("the finding is at %q", f.Site)
				}
				if p.other >= 0 && (f.OtherRank != p.other || !strings.HasPrefix(f.OtherSite, "nd/ndcheck/rules_")) || p.other < 0 && f.Other != "" {
					t.Errorf("the other act is of rank %d at %q: %q", f.OtherRank, f.OtherSite, f.Other)
				}
				t.Log(f)
			})
			t.Run("clean", func(t *testing.T) {
				if found := except(p.also, watchAll(t, p.cfg, p.depth, append(p.clean[:2:2], third...))); len(found) != 0 {
					t.Errorf("%d findings:\n%v", len(found), found)
				}
			})
		})
	}
	for _, r := range ndcheck.Rules() {
		if !tested[r.ID] {
			t.Errorf("rule %s has no test", r.ID)
		}
	}
}
