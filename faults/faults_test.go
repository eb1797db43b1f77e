package faults_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/softnd/softnd"
	"github.com/softnd/softnd/faults"
	"github.com/softnd/softnd/nd"
	"github.com/softnd/softnd/softndtest"
)

func TestNewNamesRuleAndField(t *testing.T) {
	good := faults.Rule{Operations: []string{"write"}, Action: "drop"}
	for field, bad := range map[string]faults.Rule{
		"Name":        {Operations: []string{"write"}, Action: "drop", Name: "two\nlines"},
		"Operations":  {Action: "drop"},
		"Ranks":       {Operations: []string{"write"}, Action: "drop", Ranks: []int{-1}},
		"Peers":       {Operations: []string{"write"}, Action: "drop", Peers: []int{1024}},
		"Nth":         {Operations: []string{"write"}, Action: "drop", Nth: -1},
		"MaxSize":     {Operations: []string{"write"}, Action: "drop", MinSize: 2, MaxSize: 1},
		"Probability": {Operations: []string{"write"}, Action: "drop", Probability: -0.1},
		"Status":      {Operations: []string{"write"}, Action: "fail", Status: 0xC0000999},
		"Delay":       {Operations: []string{"write"}, Action: "delay", Delay: -1},
		"Offset":      {Operations: []string{"write"}, Action: "fail", Status: nd.RemoteError, Offset: 1},
		"After":       {Operations: []string{"write"}, Action: "drop", After: math.MaxUint64},
		"Phase":       {Operations: []string{"connect"}, Action: "kill", Phase: "complete"},
		"Action":      {Operations: []string{"write"}},
	} {
		_, err := faults.New(1, good, bad)
		wrong, ok := errors.AsType[*faults.RuleError](err)
		if !ok || wrong.Rule != 1 || wrong.Field != field || !strings.HasPrefix(err.Error(), "rule 2: "+field+": ") {
			t.Errorf("%s: %v", field, err)
		}
	}
	_, err := faults.New(1, faults.Rule{Operations: []string{"write"}, Action: "corrupt", Offset: math.MaxUint64})
	if wrong, ok := errors.AsType[*faults.RuleError](err); !ok || wrong.Field != "Offset" {
		t.Errorf("a byte that no transfer has: %v", err)
	}
	if _, err := faults.New(1); err == nil {
		t.Error("a plan without rules")
	}
}

func TestCheckNamesUnusedRules(t *testing.T) {
	plan, err := faults.New(1, faults.Rule{Operations: []string{"allocate"}, Ranks: []int{1}, Nth: 1, Action: "exhaust"},
		faults.Rule{Operations: []string{"allocate"}, Nth: 9, Action: "exhaust"})
	if err != nil {
		t.Fatal(err)
	}
	if err := plan.Check(); err == nil || !strings.Contains(err.Error(), "fault rule 1 never acted: 0 operations") {
		t.Errorf("before: %v", err)
	}
	softndtest.Run(t, 2, func(ctx context.Context, job *softnd.Job) error {
		_, err := job.Adapter().Allocate(ctx, 4096, 0)
		if failed := errors.Is(err, nd.NoMemory); failed != (job.Rank() == 1) {
			return fmt.Errorf("allocate: %v", err)
		}
		return nil
	}, softnd.WithFaults(plan))
	if err := plan.Check(); err == nil || strings.Contains(err.Error(), "rule 1") || !strings.Contains(err.Error(), "fault rule 2 never acted: 2 operations") {
		t.Errorf("after: %v", err)
	}
	if got := plan.Outcomes(); got[0] != (faults.Outcome{Matched: 1, Fired: 1}) || got[1].Fired != 0 {
		t.Errorf("outcomes %v", got)
	}
}

func TestWithFaultsRefusesNoPlan(t *testing.T) {
	if _, err := softnd.Join(t.Context(), "faults-none", 0, 1, softnd.WithFaults(nil)); err == nil || !strings.Contains(err.Error(), "fault plan is nil") {
		t.Error(err)
	}
}
