// Package soak tests a job for a long time.
//
// Ranks exchange requests of all types, with hashes of all bytes. They connect, disconnect,
// and end the access to memory while the peer uses it. Ranks die, and come back as other processes. From time to time all
// rest. Then they must use no more memory, descriptors and goroutines than in their first rest.
package soak

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/softnd/softnd/internal/testkit/proctest"
	"github.com/softnd/softnd/internal/testkit/ranktest"
	"github.com/softnd/softnd/internal/testkit/scale"
	"github.com/softnd/softnd/internal/testkit/traffic"
	"github.com/softnd/softnd/shm"
)

const (
	soakRanks = 4
	envSoak   = "SOFTND_SOAK" // how long the test runs
	soakWarm  = 10            // sessions until a rank has all that it keeps
	triesAll  = time.Minute   // how much longer it runs if the ranks have not done all that they can
)

func TestMain(m *testing.M) {
	proctest.Main()
	os.Exit(m.Run())
}

// soakJob is the test's side.
type soakJob struct {
	*rand.Rand
	t        *testing.T
	name     string
	arena    *shm.Arena
	ranks    [soakRanks]*soakProcess
	immortal int // the rank that is not killed, so that slow growth shows
	deaths   int
	first    *soakArena // in the first rest
	counts   traffic.Totals
}

// soakProcess is one life of a rank.
type soakProcess struct {
	*proctest.Process
	first   *soakSample // of its first rest after enough sessions
	private []uint64    // of each rest
	counted traffic.Totals
}

func TestSoak(t *testing.T) {
	duration, seed := scale.Duration(t, envSoak, 6*time.Second, 30*time.Second), scale.Seed(t)
	before := namedFiles()
	j := &soakJob{t: t, Rand: rand.New(rand.NewPCG(seed, 0)), name: fmt.Sprintf("softnd-soak-%d", os.Getpid())}
	var err error
	if j.arena, err = shm.OpenFabric(proctest.Context(t), j.name, shm.Config{Ranks: soakRanks, Size: 1 << 30}); err != nil {
		t.Fatal(err)
	}
	defer j.arena.Close()
	j.immortal = j.IntN(soakRanks)
	for rank := range soakRanks {
		j.start(rank)
	}
	rests := max(4, int(duration/(10*time.Second)))
	limit := time.Now().Add(duration + triesAll)
	for i := 0; i < rests || len(j.counts.Untried()) > 0 && time.Now().Before(limit); i++ {
		j.work(duration / time.Duration(rests))
		j.rest()
	}
	j.end()
	if left := slices.DeleteFunc(namedFiles(), func(name string) bool { return slices.Contains(before, name) }); len(left) > 0 {
		t.Errorf("left behind: %q", left)
	}
}

// namedFiles returns the files where shared memory and sockets of softnd could be. Tests that run at the same time have
// files in /dev/shm with other names.
func namedFiles() (names []string) {
	for _, pattern := range []string{"/dev/shm/*softnd*", filepath.Join(os.TempDir(), "*softnd*")} {
		found, _ := filepath.Glob(pattern)
		names = append(names, found...)
	}
	return names
}

// start starts a rank.
func (j *soakJob) start(rank int) {
	executor := []string{"auto", "target"}[j.IntN(2)]
	cmd := proctest.Command(roleSoak, j.name, strconv.Itoa(rank), executor, strconv.FormatUint(j.Uint64(), 10))
	j.ranks[rank] = &soakProcess{Process: proctest.Start(j.t, cmd).NoLimit()}
	j.ranks[rank].Expect("ready")
	j.ranks[rank].Say("work")
}

// work lets the ranks work. It stops some for a moment, often in the middle of a copy, and kills some.
func (j *soakJob) work(d time.Duration) {
	for end := time.Now().Add(d); time.Now().Before(end); {
		time.Sleep(min(time.Until(end), time.Duration(5+j.IntN(100))*time.Millisecond))
		victim := j.IntN(soakRanks)
		p := j.ranks[victim]
		if j.IntN(12) > 0 || victim == j.immortal {
			p.Signal(syscall.SIGSTOP)
			time.Sleep(time.Duration(1+j.IntN(20)) * time.Millisecond)
			p.Signal(syscall.SIGCONT)
			continue
		}
		p.Signal(syscall.SIGKILL)
		p.WaitKilled() // not ended before, by an error
		j.deaths++
		time.Sleep(time.Duration(j.IntN(20)) * time.Millisecond)
		j.start(victim)
	}
}

// rest lets all ranks rest, and checks what they use.
func (j *soakJob) rest() {
	j.t.Helper()
	for _, p := range j.ranks {
		p.Say("rest")
	}
	for _, p := range j.ranks {
		p.Expect("rests")
	}
	var excess []string
	samples := make([]soakSample, soakRanks)
	proctest.Eventually(j.t, "the ranks use no more than before", func() bool {
		excess = j.left()
		if use := j.arenaUse(); j.first != nil && (use.parts > j.first.parts+8 || use.bytes > j.first.bytes+j.first.bytes/4+1<<20) {
			excess = append(excess, fmt.Sprintf("the arena has %+v, in the first rest %+v", use, *j.first))
		}
		for rank, p := range j.ranks {
			p.Say("measure")
			s := &samples[rank]
			if err := json.Unmarshal([]byte(p.Hear()), s); err != nil {
				j.t.Fatal(err)
			}
			if p.first != nil && s.exceeds(*p.first) {
				excess = append(excess, fmt.Sprintf("rank %d has %+v, in its first rest %+v", rank, *s, *p.first))
			}
		}
		return len(excess) == 0
	}, &excess)
	if j.first == nil {
		use := j.arenaUse()
		j.first = &use
	}
	j.t.Logf("the arena: %+v", j.arenaUse())
	for rank, p := range j.ranks {
		if p.first == nil && samples[rank].Counts[traffic.Sessions] >= soakWarm {
			p.first = &samples[rank]
		}
		for what, n := range samples[rank].Counts {
			j.counts[what] += n - p.counted[what]
		}
		p.counted = samples[rank].Counts
		p.private = append(p.private, samples[rank].Private)
		j.t.Logf("rank %d: %+v", rank, samples[rank])
	}
	for _, p := range j.ranks {
		p.Say("work")
	}
}

// soakArena is what the ranks use of the arena.
type soakArena struct {
	parts int // member records, window blocks and chunks
	bytes int64
}

func (j *soakJob) arenaUse() soakArena {
	file, err := j.arena.File().Stat()
	if err != nil {
		j.t.Fatal(err)
	}
	return soakArena{len(ranktest.PartsInArena(j.t, j.arena)), file.Sys().(*syscall.Stat_t).Blocks * 512}
}

// left lists what members of the past have left in the arena.
func (j *soakJob) left() []string {
	lives := map[int]bool{}
	for rank := range soakRanks {
		if id, ok := j.arena.MemberOf(rank); ok {
			lives[id.Slot()] = true
		}
	}
	return ranktest.LeftInArena(j.t, j.arena, func(slot int) bool { return lives[slot] })
}

// end ends all ranks.
func (j *soakJob) end() {
	for _, p := range j.ranks {
		p.Say("rest")
		p.Expect("rests")
	}
	for _, p := range j.ranks {
		p.Say("end")
	}
	for _, p := range j.ranks {
		p.Wait()
	}
	private := j.ranks[j.immortal].private
	third := max(1, len(private)/3)
	early, late := slices.Min(private[:third]), slices.Min(private[len(private)-third:])
	if late > early+early/4+16<<20 {
		j.t.Errorf("rank %d has %d bytes of its own in the last third, %d in the first: %d", j.immortal, late, early, private)
	}
	j.t.Logf("%d deaths, %s", j.deaths, &j.counts)
	if untried := j.counts.Untried(); len(untried) > 0 {
		j.t.Errorf("the traffic tries too little: no %s", strings.Join(untried, ", no "))
	}
}
