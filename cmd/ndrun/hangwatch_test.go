package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/softnd/softnd/internal/statuspage"
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

// If a rank makes progress after a diagnosis was requested and before it begins, that is not reported as a hang. If it then
// hangs, that is reported once.
func TestProgressBeforeDiagnosis(t *testing.T) {
	t.Parallel()
	const hangAfter = shortestHang
	e, said, arena := reporterOf(t, command{hangAfter: hangAfter})
	e.standstill.ask(e.progress())
	member, err := arena.Join(0)
	if err != nil {
		t.Fatal(err)
	}
	member.Leave() // the death count is progress
	report := &launcher.Report{Ranks: []launcher.Result{{PID: os.Getpid()}}, Hang: []string{"before"}}
	if causes := e.diagnose(launcher.TriggerRequest, report); said.Len() > 0 || !slices.Equal(causes, report.Hang) {
		t.Errorf("causes %q, and a message about a job that makes progress:\n%s", causes, said)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		e.watch(ctx)
	}()
	defer func() { cancel(); <-ended }()
	for said.Len() == 0 {
		proctest.Receive(t, "another diagnosis is requested", e.diagnoseNow)
		e.diagnose(launcher.TriggerRequest, report)
	}
	if !strings.Contains(said.String(), "no rank has made progress for 500ms") {
		t.Errorf("the hang is not reported:\n%s", said)
	}
	said.Reset()
	select {
	case <-e.diagnoseNow: // it was requested before the report
		e.diagnose(launcher.TriggerRequest, report)
	case <-time.After(2 * hangAfter):
	}
	if said.Len() > 0 {
		t.Errorf("the same hang is reported again:\n%s", said)
	}
	if member, err = arena.Join(0); err != nil {
		t.Fatal(err)
	}
	member.Leave()
	proctest.Receive(t, "a diagnosis of the next hang is requested", e.diagnoseNow)
}

// A process whose number is that of another PID namespace is not taken for the process that has this number here.
func TestJoinedRankOfAnotherPIDNamespace(t *testing.T) {
	t.Parallel()
	e, said, arena := reporterOf(t, command{timeout: time.Minute})
	member, err := arena.Join(0)
	if err != nil {
		t.Fatal(err)
	}
	defer member.Leave()
	moveToAnotherPIDNamespace(t, arena)
	e.diagnose(launcher.TriggerTimeout, &launcher.Report{Ranks: []launcher.Result{{Program: "prog"}}})
	if !strings.Contains(said.String(), "timeout of 1m0s expired: all ranks still run") || !strings.Contains(said.String(), "(prog)") ||
		strings.Contains(said.String(), "started") || strings.Contains(said.String(), "pid") {
		t.Error(said)
	}
}

// moveToAnotherPIDNamespace changes the record of the only member of an arena, which is in this process.
func moveToAnotherPIDNamespace(t *testing.T, arena *shm.Arena) {
	t.Helper()
	namespace, err := os.Stat("/proc/self/ns/pid")
	if err != nil {
		t.Fatal(err)
	}
	var word [8]byte
	binary.NativeEndian.PutUint64(word[:], namespace.Sys().(*syscall.Stat_t).Ino)
	tables, err := arena.Bytes(64, uint64(arena.Info().StatusPages)-64)
	if err != nil {
		t.Fatal(err)
	}
	at := bytes.Index(tables, word[:])
	if at < 0 {
		t.Fatal("no record has the PID namespace of its member")
	}
	tables[at] ^= 1
}

// A rank that has joined is not reported as one that has not been started, although the launcher does not know its process yet.
func TestJoinedRankHasBeenStarted(t *testing.T) {
	t.Parallel()
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

// A member that has the record of a rank which is gone, and is no rank itself, makes no progress of the job.
func TestNextOwnerOfARecordIsNoRank(t *testing.T) {
	e, _, arena := reporterOf(t, command{})
	rank, err := arena.Join(0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := rank.JoinGroup(); err != nil {
		t.Fatal(err)
	}
	if _, err := statuspage.NewReporter(rank); err != nil {
		t.Fatal(err)
	}
	if idle, ok := e.idle(); !ok {
		t.Errorf("idle for %v, %v", idle, ok)
	}
	other, err := arena.Join(shm.NoRank)
	if err != nil {
		t.Fatal(err)
	}
	defer other.Leave()
	if err := rank.Leave(); err != nil {
		t.Fatal(err)
	}
	other.CheckLiveness(func(shm.MemberID) {})
	next, err := arena.Join(0) // takes the slot, but not the rank
	if err != nil {
		t.Fatal(err)
	}
	defer next.Leave()
	if next.ID().Slot() != rank.ID().Slot() {
		t.Fatalf("%v has not the slot of %v", next.ID(), rank.ID())
	}
	before := e.progress()
	reporter, err := statuspage.NewReporter(next)
	if err != nil {
		t.Fatal(err)
	}
	reporter.NoteProgress()
	if after := e.progress(); after != before {
		t.Errorf("progress %v, then %v", before, after)
	}
	if idle, ok := e.idle(); ok {
		t.Errorf("a rank was idle for %v only", idle)
	}
}
