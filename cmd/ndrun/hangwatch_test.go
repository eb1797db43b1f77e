package main

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"time"

	"github.com/softnd/softnd/internal/testkit/proctest"
	"github.com/softnd/softnd/launcher"
	"github.com/softnd/softnd/shm"
)

// reporterOf returns the reporter of a job of one rank, of which the arena is returned.
func reporterOf(t *testing.T, c command) (*hangReporter, *bytes.Buffer, *shm.Arena) {
	t.Helper()
	arena, err := shm.Create(shm.Config{Ranks: 1})
	if err != nil {
		t.Fatal(err)
	}
	c.apps = []*app{{}}
	var said bytes.Buffer
	e := &hangReporter{plan: &plan{command: &c, ranks: make([]plannedRank, 1)}, to: &said, diagnoseNow: make(chan struct{}), arena: arena}
	t.Cleanup(e.close)
	return e, &said, arena
}

// If a rank makes progress after a diagnosis was requested and before it begins, and then hangs, that is reported too.
func TestHangDuringDiagnosisIsReported(t *testing.T) {
	const hangAfter = shortestHang
	e, _, arena := reporterOf(t, command{hangAfter: hangAfter})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		e.watch(ctx)
	}()
	defer func() { cancel(); <-ended }()
	proctest.Receive(t, "a diagnosis is requested", e.diagnoseNow)
	member, err := arena.Join(0)
	if err != nil {
		t.Fatal(err)
	}
	member.Leave()            // the death count is progress
	time.Sleep(hangAfter / 5) // watch notices it by then; if not, the test is only weaker
	e.diagnose(launcher.TriggerRequest, &launcher.Report{Ranks: []launcher.Result{{PID: 1}}})
	proctest.Receive(t, "another diagnosis is requested", e.diagnoseNow)
}

// A rank that has joined is not reported as one that has not been started, although the launcher does not know its process yet.
func TestJoinedRankHasBeenStarted(t *testing.T) {
	e, said, arena := reporterOf(t, command{timeout: time.Minute})
	member, err := arena.Join(0)
	if err != nil {
		t.Fatal(err)
	}
	defer member.Leave()
	e.diagnose(launcher.TriggerTimeout, &launcher.Report{Ranks: []launcher.Result{{Program: "prog"}}})
	if !strings.Contains(said.String(), "timeout of 1m0s expired: all ranks still run") || strings.Contains(said.String(), "started") {
		t.Error(said)
	}
}
