//go:build failpoints

package softnd

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/softnd/softnd/endpoint"
	"github.com/softnd/softnd/internal/failpoint"
	"github.com/softnd/softnd/internal/hostclock"
	"github.com/softnd/softnd/internal/proctest"
	"github.com/softnd/softnd/nd"
	"github.com/softnd/softnd/shm"
)

// The kill matrix: a process dies at each step of each protocol, under random traffic. The other ranks run in the test
// process. All their requests and calls must end, with an error that names the dead rank. Nothing may change behind an
// invalid window. The memory of the dead process must be reclaimed, and the others go on.

const (
	envKills  = "SOFTND_KILLS"   // how often a process dies at each point, in each role, with each executor
	killLimit = 20 * time.Second // for everything; no test asserts less
	promised  = 100 * time.Millisecond
	killBlob  = 2048 // largest blob of an Exchange
)

// Ranks of a job. The low and the high partner always exchange requests with the victim, in both directions, so that
// the victim reaches every point whatever its role. The first is passive in their connection, the second is active.
const (
	lowPartner = iota
	low
	victimRank
	high
	highPartner
	killRanks
)

// killRole is what the victim is to the ranks low and high, which are always connected with each other.
type killRole string

const (
	initiator killRole = "initiator" // only the victim posts requests
	target    killRole = "target"    // only the others do
	bystander killRole = "bystander" // it is not connected with them
)

var roleDoomed = proctest.Role("doomed", playDoomed)

// playDoomed is a rank that dies at a point.
func playDoomed(s *proctest.Self) error {
	point, ok := failpoint.Named(s.Args[0])
	n, err1 := strconv.ParseInt(s.Args[1], 10, 64)
	seed, err2 := strconv.ParseUint(s.Args[4], 10, 64)
	if err := errors.Join(err1, err2); err != nil || !ok {
		return fmt.Errorf("point %q: %w", s.Args[0], err)
	}
	j, err := Init(s.Ctx)
	if err != nil {
		return err
	}
	random := func(i uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, i)) }
	for i, l := range victimLinks(killRole(s.Args[3])) {
		link := killLink{Rand: random(uint64(i)), job: j, peer: l.peer, posts: l.victimPosts}
		go link.run(s.Ctx)
	}
	go honestMemory(s.Ctx, j, random(100), new(work))
	go collect(s.Ctx, j)
	go joinAndLeave(s.Ctx, j)
	failpoint.Arm(point, n, failpoint.Action(s.Args[2]))
	s.Say("armed")
	<-s.Ctx.Done()
	return errors.New("the point was not reached")
}

// victimLink is a connection of the victim.
type victimLink struct {
	peer                    int
	victimPosts, otherPosts bool
}

func victimLinks(r killRole) []victimLink {
	links := []victimLink{{lowPartner, true, true}, {highPartner, true, true}}
	if r != bystander {
		links = append(links, victimLink{low, r == initiator, r == target}, victimLink{high, r == initiator, r == target})
	}
	return links
}

// collect makes collective calls until one fails.
func collect(ctx context.Context, j *Job) (err error) {
	for i := 0; err == nil; i++ {
		if _, err = j.Exchange(ctx, make([]byte, 1+i*100%killBlob)); err == nil {
			err = j.Barrier(ctx)
		}
		time.Sleep(time.Millisecond)
	}
	return err
}

// joinAndLeave lets members that own memory come and go.
func joinAndLeave(ctx context.Context, j *Job) {
	for ctx.Err() == nil {
		m, err := j.arena.Join(shm.NoRank)
		if err != nil {
			continue
		}
		_, _ = m.Alloc(200_000)
		_, _ = m.ClaimWindowBlock()
		m.Leave()
		time.Sleep(time.Millisecond)
	}
}

// killReport collects what the cases measure.
type killReport struct {
	mu        sync.Mutex
	cases     int
	revoked   int64           // Invalidates that have succeeded
	refused   int64           // requests that came too late for a window
	latencies []time.Duration // from each death to the end of the last request or call of a survivor
}

func (r *killReport) log(t *testing.T) {
	slices.Sort(r.latencies)
	late := 0
	for _, d := range r.latencies {
		if d > promised {
			late++
		}
	}
	if n := len(r.latencies); n > 0 {
		t.Logf("%d Invalidates; %d requests came too late for a window", r.revoked, r.refused)
		if n >= 100 && (r.revoked == 0 || r.refused == 0) {
			t.Error("no request tries a window after its Invalidate")
		}
		t.Logf("%d deaths; all work of the survivors had ended after %v at most, 99%% after %v, half after %v; later than %v: %d",
			r.cases, r.latencies[n-1], r.latencies[n*99/100], r.latencies[n/2], promised, late)
	}
}

// kills returns how often each case runs, and the seed.
func kills(t *testing.T) (repeats int, seed uint64) {
	repeats, seed = 1, rand.Uint64()
	for name, set := range map[string]func(string) error{
		envKills: func(s string) (err error) { repeats, err = strconv.Atoi(s); return err },
		envSeed:  func(s string) (err error) { seed, err = strconv.ParseUint(s, 10, 64); return err },
	} {
		if text := os.Getenv(name); text != "" {
			if err := set(text); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
		}
	}
	t.Logf("%s=%d %s=%d", envKills, repeats, envSeed, seed)
	return repeats, seed
}

// pointsOf returns the points of a scene.
func pointsOf(scene failpoint.Scene) (points []failpoint.Point) {
	for i, step := range failpoint.Steps {
		if step.Scene == scene {
			points = append(points, failpoint.Point(i))
		}
	}
	return points
}

func TestKillMatrix(t *testing.T) {
	repeats, seed := kills(t)
	var report killReport
	t.Cleanup(func() { report.log(t) })
	limit := make(chan struct{}, 1+runtime.NumCPU()/2)
	for _, point := range pointsOf(failpoint.Job) {
		for _, role := range []killRole{initiator, target, bystander} {
			for _, executor := range []string{"auto", "target"} {
				t.Run(fmt.Sprintf("%s/%s/%s", point.Name(), role, executor), func(t *testing.T) {
					t.Parallel()
					for i := range repeats {
						r := rand.New(rand.NewPCG(seed, uint64(i)<<32|uint64(point)))
						func() {
							limit <- struct{}{}
							defer func() { <-limit }()
							killOnce(t, point, role, executor, r, &report)
						}()
					}
				})
			}
		}
	}
}

// killJob is a job with a victim.
type killJob struct {
	t         *testing.T
	arena     *shm.Arena
	survivors map[int]*Job
	victim    *proctest.Process
	inUse     map[int]uint64
}

// startKillJob starts the victim in a process, and the other ranks in this one.
func startKillJob(t *testing.T, ranks int, executor string, victim int, role string, args ...string) *killJob {
	t.Helper()
	arena, err := shm.Create(shm.Config{Ranks: ranks, Size: 192 << 20})
	if err != nil {
		t.Fatal(err)
	}
	k := &killJob{t: t, arena: arena, survivors: make(map[int]*Job), inUse: make(map[int]uint64)}
	cmd := rankCommand(arena, role, victim, ranks, args...)
	cmd.Env = append(cmd.Env, EnvExec+"="+executor)
	k.victim = proctest.Start(t, cmd)
	var started sync.WaitGroup
	for rank := range ranks {
		if rank == victim {
			continue
		}
		a, err := shm.Attach(proctest.Context(t), arena.File())
		if err != nil {
			t.Fatal(err)
		}
		j := newJob(a, a.Close)
		k.survivors[rank] = j
		started.Go(func() {
			s := settings{exchange: defaultExchangeLimit}
			var err error
			s.provider.Executor, err = endpoint.ParseExecutor(executor)
			if err := errors.Join(err, j.start(proctest.Context(t), rank, s)); err != nil {
				t.Errorf("rank %d: %v", rank, err)
			}
		})
	}
	if started.Wait(); t.Failed() {
		t.FailNow()
	}
	for rank, j := range k.survivors {
		k.inUse[rank] = j.member.InUse()
	}
	return k
}

// diesAt waits for the death of the victim, and returns its time.
func (k *killJob) diesAt(point failpoint.Point) (at int64) {
	k.t.Helper()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = k.victim.End()
	}()
	select {
	case <-ended:
	case <-time.After(killLimit):
		k.victim.Kill()
		<-ended
	}
	if at = killedAt(k.victim, point); at == 0 {
		k.t.Errorf("the victim has not reached the point\n%s", k.victim.Err)
	}
	return at
}

// killedAt returns the time at which a process said that it dies at a point; 0 if it did not.
func killedAt(p *proctest.Process, point failpoint.Point) (at int64) {
	if _, said, ok := strings.Cut(p.Err.String(), "failpoint "+point.Name()+" "); ok {
		var action string
		fmt.Sscanf(said, "%s at %d", &action, &at)
	}
	return at
}

// killOnce runs one job.
func killOnce(t *testing.T, point failpoint.Point, role killRole, executor string, r *rand.Rand, report *killReport) {
	t.Helper()
	k := startKillJob(t, killRanks, executor, victimRank, roleDoomed, point.Name(), strconv.Itoa(1+r.IntN(20)), string(failpoint.Kill), string(role), fmt.Sprint(r.Uint64()))
	w := k.work(role, r)
	k.victim.Expect("armed")
	died := k.diesAt(point)
	w.mustEnd(died, report)
	w.mustContinue()
	k.mustReclaim()
	w.stop()
	k.close()
}

// killWork is what the survivors do.
type killWork struct {
	*killJob
	stop     func()
	touching []*killLink // links with the victim
	between  *killLink   // of the ranks low and high
	calls    []collected
	ended    sync.WaitGroup
}

// collected is the end of the collective calls of a rank.
type collected struct {
	at  atomic.Int64
	err error
}

// work starts the traffic.
func (k *killJob) work(role killRole, r *rand.Rand) *killWork {
	ctx, cancel := context.WithCancel(proctest.Context(k.t))
	w := &killWork{killJob: k, calls: make([]collected, killRanks)}
	newLink := func(rank, peer int, posts bool) *killLink {
		return &killLink{Rand: rand.New(rand.NewPCG(r.Uint64(), uint64(rank))), job: k.survivors[rank], peer: peer, posts: posts}
	}
	for _, l := range victimLinks(role) {
		w.touching = append(w.touching, newLink(l.peer, victimRank, l.otherPosts))
	}
	w.between = newLink(low, high, true)
	back := newLink(high, low, true)
	for _, l := range w.touching {
		w.ended.Go(func() { l.run(ctx) })
	}
	for rank, j := range k.survivors {
		w.ended.Go(func() {
			w.calls[rank].err = collect(ctx, j)
			w.calls[rank].at.Store(hostclock.Now())
		})
	}
	var others sync.WaitGroup
	for _, l := range []*killLink{w.between, back} {
		others.Go(func() { l.run(ctx) })
	}
	w.stop = func() {
		cancel()
		others.Wait()
		for _, l := range []*killLink{w.between, back} {
			if l.broken != nil {
				k.t.Error(l.broken)
			}
		}
	}
	return w
}

// mustEnd checks that all work with the victim ends, and how.
func (w *killWork) mustEnd(died int64, report *killReport) {
	w.t.Helper()
	over := make(chan struct{})
	go func() {
		w.ended.Wait()
		close(over)
	}()
	proctest.Receive(w.t, "all work with the victim ends", over)
	name, last := fmt.Sprintf("rank %d", victimRank), died
	check := func(what string, at int64, err error) {
		if at <= died {
			return // ended before, for another reason
		}
		last = max(last, at)
		ownEnd := errors.Is(err, nd.ConnectionDisconnected) || errors.Is(err, nd.BufferOverflow) || errors.Is(err, nd.RemoteError) || errors.Is(err, nd.AccessViolation) // of a receive that is too small, or of a window
		if err != nil && !ownEnd && !strings.Contains(err.Error(), name) {
			w.t.Errorf("%s: the error does not name %s: %v", what, name, err)
		}
	}
	for _, l := range w.touching {
		check(fmt.Sprintf("link of rank %d", l.job.Rank()), l.endedAt, l.end)
		if l.broken != nil {
			w.t.Error(l.broken)
		}
	}
	for rank := range w.survivors {
		c := &w.calls[rank]
		check(fmt.Sprintf("collective calls of rank %d", rank), c.at.Load(), c.err)
	}
	report.mu.Lock()
	defer report.mu.Unlock()
	report.cases++
	for _, l := range append(w.touching, w.between) {
		report.revoked += l.revoked.Load()
		report.refused += l.refused.Load()
	}
	report.latencies = append(report.latencies, time.Duration(last-died))
}

// mustContinue checks that the ranks low and high still work with each other.
func (w *killWork) mustContinue() {
	w.t.Helper()
	before := w.between.done.Load()
	proctest.Eventually(w.t, "the survivors go on with each other", func() bool { return w.between.done.Load() > before+100 })
}

// mustReclaim checks that nothing of the victim is left in the arena, and that the arena can be used.
func (k *killJob) mustReclaim() {
	k.t.Helper()
	var left []string
	proctest.Eventually(k.t, "the memory of the dead is reclaimed", func() bool {
		left = leftInArena(k.t, k.arena, k.survivors)
		return len(left) == 0
	}, &left)
	m, err := k.arena.Join(shm.NoRank)
	if err != nil {
		k.t.Fatal(err)
	}
	if _, err := m.Alloc(1 << 20); err != nil {
		k.t.Error(err)
	}
	if err := m.Leave(); err != nil {
		k.t.Error(err)
	}
}

// leftInArena lists the records, chunks and blocks of members other than the survivors.
func leftInArena(t *testing.T, a *shm.Arena, survivors map[int]*Job) (left []string) {
	t.Helper()
	words, err := shm.Slice[atomic.Uint32](a, 0, a.Info().Size/4)
	if err != nil {
		t.Fatal(err)
	}
	lives := map[uint32]bool{0: true}
	for _, j := range survivors {
		lives[uint32(j.member.ID().Slot())+1] = true
	}
	// As docs/shared-memory.md has it.
	for slot := range uint32(maxMembers) {
		if state := words[(recordsAt+slot*recordSize)/4].Load(); state&0xff != 0 && !lives[slot+1] {
			left = append(left, fmt.Sprintf("record %d in state %#x", slot, state))
		}
	}
	const blocksAt, blocks, chunksAt = 0x1111000, 4096, 0x5125000
	chunks := (a.Info().Size - uint64(a.Info().HeapStart)) / chunkSize
	table := func(name string, at, n uint64) {
		for i := range n {
			if owner := words[at/4+i].Load(); !lives[owner] {
				left = append(left, fmt.Sprintf("%s %d of member %d", name, i, owner-1))
			}
		}
	}
	table("block", blocksAt, blocks)
	table("chunk", chunksAt, chunks)
	return left
}

// close ends the job, and checks that the survivors have freed everything but the blob of the failed Exchange.
func (k *killJob) close() {
	k.t.Helper()
	var held []string
	proctest.Eventually(k.t, "the survivors free their memory", func() bool {
		held = nil
		for rank, j := range k.survivors {
			dropRequests(j)
			if n := j.member.InUse(); n > k.inUse[rank]+killBlob {
				held = append(held, fmt.Sprintf("rank %d holds %d bytes, before %d", rank, n, k.inUse[rank]))
			}
		}
		return len(held) == 0
	}, &held)
	for rank, j := range k.survivors {
		if err := j.Close(); err != nil {
			k.t.Errorf("rank %d: %v", rank, err)
		}
	}
	if err := k.arena.Close(); err != nil {
		k.t.Error(err)
	}
}

// dropRequests refuses the requests that no link has answered: until then their memory is in use.
func dropRequests(j *Job) {
	j.sortRequests()
	for peer := range j.Size() {
		for c := j.requestFrom(peer); c != nil; c = j.requestFrom(peer) {
			c.Close()
		}
	}
}
