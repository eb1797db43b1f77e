// Package scribble tests correct ranks in an arena that is damaged.
//
// One process writes nonsense all over the arena, and honest ranks work in it. They may
// get any error and wrong bytes. They must not crash, and every call of theirs must
// return: when its context ends, or at the latest when the job is closed.
package scribble

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/softnd/softnd"
	"github.com/softnd/softnd/internal/testkit/proctest"
	"github.com/softnd/softnd/internal/testkit/ranktest"
	"github.com/softnd/softnd/internal/testkit/scale"
	"github.com/softnd/softnd/shm"
)

const (
	scribbleRanks   = 3
	scribbleRound   = 500 * time.Millisecond
	envScribbleTime = "SOFTND_SCRIBBLE"   // how long the test runs for each executor
	envScribbleC    = "SOFTND_SCRIBBLE_C" // the program test_scribble of the C library, to play the last rank
)

func TestMain(m *testing.M) {
	proctest.Main()
	os.Exit(m.Run())
}

// area is a part of the arena that a round may aim at.
type area struct {
	name     string
	from, to uint64
}

// lasting is where those areas begin whose damage does not end the job at once.
const lasting = 4

// scribbler writes 32-bit words.
type scribbler struct {
	*rand.Rand
	words  []atomic.Uint32
	owners []atomic.Uint32 // of chunks
	heap   uint64
	areas  []area // the heap's used chunks are one more
}

func newScribbler(t *testing.T, a *shm.Arena, r *rand.Rand) *scribbler {
	t.Helper()
	words, err := shm.Slice[atomic.Uint32](a, 0, a.Info().Size/4)
	if err != nil {
		t.Fatal(err)
	}
	// As LAYOUT.txt has it; of each table the part that so few ranks use.
	entries, heap := uint64(a.Info().WindowTable), uint64(a.Info().HeapStart)
	faultRules := uint64(a.Info().FaultRules)
	const ruleTable, ruleSize = 64 << 10, 512
	chunks := faultRules + ruleTable
	const header, record, rankRecord, statusPage = 4096, 512, 64, 8192
	rankRecords := uint64(header + ranktest.MaxMembers*record)
	statusPages := rankRecords + shm.MaxRanks*rankRecord
	blocks := statusPages + ranktest.MaxMembers*statusPage
	const tableBlocks = shm.WindowEntries / shm.WindowBlockEntries
	first := a.Info().Secret[0] % tableBlocks // that rank 0 takes
	last := min(first+2*scribbleRanks, tableBlocks)
	return &scribbler{Rand: r, words: words, owners: words[chunks/4 : heap/4], heap: heap, areas: []area{
		{"header", 0, 640},
		{"member records", header, header + 2*scribbleRanks*record},
		{"rank records", rankRecords, rankRecords + scribbleRanks*rankRecord},
		{"status pages", statusPages, statusPages + scribbleRanks*statusPage},
		// lasting
		{"block words", blocks + 4*first, blocks + 4*last},
		{"window entries", entries + first*shm.WindowBlockEntries*shm.WindowEntrySize, entries + last*shm.WindowBlockEntries*shm.WindowEntrySize},
		{"chunk words", chunks, chunks + 4*256},
		{"fault rules", faultRules, faultRules + uint64(len(scribbledRules)*ruleSize)},
	}}
}

// aim chooses what a round is about: one area, the used chunks of the heap (nil), what
// does not end the job at once, or everything.
func (s *scribbler) aim() (name string, targets []*area) {
	var all []*area
	for i := range s.areas {
		all = append(all, &s.areas[i])
	}
	switch k := s.IntN(2 * len(all)); {
	case k < len(all):
		return all[k].name, all[k : k+1]
	case k == len(all):
		return "everything", append(all, nil)
	case k <= len(all)+2:
		return "windows, chunks and heap", append(all[lasting:], nil)
	default:
		return "heap", []*area{nil}
	}
}

// word chooses a word of an area.
func (s *scribbler) word(target *area) uint64 {
	if target != nil {
		return (target.from + s.Uint64N(target.to-target.from)) / 4
	}
	for try := range 200 { // a chunk that a member has; there are most at the beginning
		chunk := s.Uint64N(min(256, uint64(len(s.owners))))
		if s.owners[chunk].Load() == 0 && s.IntN(100) != 0 {
			continue
		}
		within := s.Uint64N(ranktest.ChunkSize)
		if s.IntN(2) == 0 {
			within = s.Uint64N(4096) // small objects are cut from the beginning
		}
		at := (s.heap + chunk*ranktest.ChunkSize + within) / 4
		if at < uint64(len(s.words)) && (s.words[at].Load() != 0 || try%8 == 7) { // most words that are 0 mean nothing
			return at
		}
	}
	return s.heap / 4
}

// value chooses what a word becomes that is now old.
func (s *scribbler) value(old uint32, target *area) uint32 {
	switch s.IntN(8) {
	case 0:
		return 0
	case 1:
		return ^uint32(0)
	case 2:
		return s.Uint32()
	case 3:
		return s.Uint32N(16)
	case 4:
		return old ^ 1<<s.IntN(32)
	case 5:
		return old + uint32(s.IntN(5)) - 2
	case 6: // an offset in the heap
		return uint32(s.heap) + s.Uint32N(1<<24)&^63
	default: // what another word of the area says
		return s.words[s.word(target)].Load()
	}
}

// scribble writes until stop is closed.
func (s *scribbler) scribble(targets []*area, stop <-chan struct{}) {
	burst, pause := 1<<s.IntN(7), time.Duration(s.IntN(3000))*time.Microsecond
	for {
		select {
		case <-stop:
			return
		case <-time.After(pause):
		}
		for range burst {
			target := targets[s.IntN(len(targets))]
			at := s.word(target)
			w := &s.words[at]
			old := w.Load()
			lie := s.value(old, target)
			w.Store(lie)
			if s.IntN(50) == 0 { // between the look of a reader and its use
				for range 2000 {
					w.Store(old)
					w.Store(lie)
				}
			}
		}
	}
}

func TestScribble(t *testing.T) {
	duration, seed := scale.Duration(t, envScribbleTime, 2*time.Second, 4*time.Second), scale.Seed(t)
	for name, executors := range map[string][]string{"auto": {"auto"}, "target": {"target"}, "mixed": {"auto", "target"}} {
		t.Run(name, func(t *testing.T) {
			rounds, done := 0, work{}
			// On a busy machine the time may end before a rank has worked.
			for end := time.Now().Add(duration); !t.Failed() && (time.Now().Before(end) || rounds < 50 && slices.Contains(done[:], 0)); rounds++ {
				scribbleOnce(t, executors, rand.New(rand.NewPCG(seed, uint64(rounds))), &done)
			}
			t.Logf("%d rounds: %v", rounds, done)
			if slices.Contains(done[:], 0) {
				t.Error("in none of the rounds the ranks have done work of one kind")
			}
		})
	}
}

// work is what honest ranks have done successfully.
type work [4]int64

const (
	sessions = iota
	transfers
	collectives
	allocations
)

func (w *work) add(what int, n int64) { atomic.AddInt64(&w[what], n) }

func (w work) String() string {
	return fmt.Sprintf("%d sessions, %d transfers, %d collective calls, %d allocations", w[sessions], w[transfers], w[collectives], w[allocations])
}

// scribbleOnce starts a job and scribbles over its arena.
func scribbleOnce(t *testing.T, executors []string, r *rand.Rand, sum *work) {
	t.Helper()
	arena, variables := newScribbledArena(t, r)
	defer arena.Close()
	s := newScribbler(t, arena, r)
	aim, targets := s.aim()
	ranks := make([]*proctest.Process, scribbleRanks)
	for i := range ranks {
		cmd := ranktest.Command(arena, roleScribbled, i, scribbleRanks, scribbleRound.String(), strconv.FormatUint(r.Uint64(), 10))
		cmd.Env = append(append(cmd.Env, softnd.EnvExec+"="+executors[i%len(executors)]), variables...)
		if program := os.Getenv(envScribbleC); program != "" && i == scribbleRanks-1 {
			cmd.Path, cmd.Args = program, []string{program}
			if r.IntN(2) == 0 {
				cmd.Env = append(cmd.Env, "TEST_PROGRESS=auto")
			}
		}
		ranks[i] = proctest.Start(t, cmd)
	}
	stop := make(chan struct{})
	var done sync.WaitGroup
	late := time.Duration(r.Int64N(int64(scribbleRound / 2)))
	victim, fate := -1, time.Duration(r.Int64N(int64(scribbleRound)))
	if r.IntN(5) == 0 {
		victim = r.IntN(scribbleRanks)
		killer := time.AfterFunc(fate, func() { ranks[victim].Cmd.Process.Kill() })
		defer killer.Stop()
	}
	done.Go(func() {
		time.Sleep(late) // some rounds reach the ranks while they join, others while they work
		s.scribble(targets, stop)
	})
	for i, rank := range ranks {
		if err := rank.End(); err != nil && i != victim {
			text := rank.Err.String()
			t.Errorf("%s: rank %d: %v\n%s", aim, i, err, text[:min(len(text), 20_000)])
		}
		var w work
		fmt.Sscan(rank.Out.String(), &w[0], &w[1], &w[2], &w[3]) // one that was killed has said nothing
		for what, n := range w {
			sum[what] += n
		}
	}
	close(stop)
	done.Wait()
}
