//go:build failpoints

// Package kill tests the deaths of ranks, in a build with failpoints.
//
// A process dies at each step of each protocol, under random traffic. The other ranks run in the test
// process. All their requests and calls must end, with an error that names the dead rank. Nothing may change behind an
// invalid window. The memory of the dead process must be reclaimed, and the others go on.
package kill

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

	"github.com/softnd/softnd"
	"github.com/softnd/softnd/internal/linux"
	"github.com/softnd/softnd/internal/testkit/failpoint"
	"github.com/softnd/softnd/internal/testkit/jobaccess"
	"github.com/softnd/softnd/internal/testkit/proctest"
	"github.com/softnd/softnd/internal/testkit/scale"
	"github.com/softnd/softnd/internal/testkit/traffic"
	"github.com/softnd/softnd/shm"
)

const (
	envKills  = "SOFTND_KILLS"   // how often a process dies at each point, in each role, with each executor; see isTimed and executorsOf
	killLimit = 40 * time.Second // for everything; no test asserts less
	promised  = 100 * time.Millisecond
	killBlob  = 2048 // largest blob of an Exchange

	enoughDeaths = 50 // from so many on, the survivors have posted requests of all types
)

func TestMain(m *testing.M) {
	proctest.Main()
	os.Exit(m.Run())
}

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

var roleVictim = proctest.Role("victim of a step", runVictim)

// runVictim is a rank that dies at a point, or is killed. Its arguments are its role, a seed, and the value of
// SOFTND_FAILPOINT that it arms when it works, or "".
func runVictim(s *proctest.Self) error {
	seed, err := strconv.ParseUint(s.Args[1], 10, 64)
	if err != nil {
		return err
	}
	j, err := softnd.Init(s.Ctx, softnd.WithReceiveTimeout(softnd.NoLimit))
	if err != nil {
		return err
	}
	random := func(i uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, i)) }
	for i, l := range victimLinks(killRole(s.Args[0])) {
		link := traffic.Link{Rand: random(uint64(i)), Job: j, Peer: l.peer, Posts: l.victimPosts, Errs: true, Steps: 120}
		go link.Run(s.Ctx)
	}
	go traffic.Objects(s.Ctx, j.Adapter(), random(100), func() {})
	go collect(s.Ctx, j, victimLag)
	go joinAndLeave(s.Ctx, j)
	s.Say("works") // before it is armed, because it may die at once then
	if err := failpoint.ArmFrom(s.Args[2]); err != nil {
		return err
	}
	<-s.Ctx.Done()
	return errors.New("nothing has killed this rank")
}

// victimArgs returns the arguments of runVictim for a victim that reaches a point n times and then acts.
func victimArgs(role killRole, r *rand.Rand, point failpoint.Point, n int, action failpoint.Action) []string {
	return []string{string(role), fmt.Sprint(r.Uint64()), fmt.Sprintf("%s:%d:%s", point.Name(), n, action)}
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

// victimLag makes the victim the last rank in some barriers, although the machine is slow.
const victimLag = 20 * time.Millisecond

// collect makes collective calls until one fails. Before one Barrier in four it waits for lag.
func collect(ctx context.Context, j *softnd.Job, lag time.Duration) (err error) {
	for i := 0; err == nil; i++ {
		if _, err = j.Exchange(ctx, make([]byte, 1+i*100%killBlob)); err == nil {
			if i%4 == 3 {
				time.Sleep(lag)
			}
			err = j.Barrier(ctx)
		}
		time.Sleep(time.Millisecond)
	}
	return err
}

// joinAndLeave lets members that own memory come and go.
func joinAndLeave(ctx context.Context, j *softnd.Job) {
	for ctx.Err() == nil {
		m, err := jobaccess.Of(j).Arena.Join(shm.NoRank)
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
	counts    traffic.Totals  // of the survivors
	latencies []time.Duration // from each signal to the end of the last request or call of a survivor
	kernel    []time.Duration // the kernel's part: from each signal to the end of the process
	ours      []time.Duration // the rest, without a step in which the test holds a survivor
}

func (r *killReport) log(t *testing.T) {
	if n := len(r.latencies); n > 0 {
		t.Log(&r.counts)
		if untried := r.counts.Untried(); n >= enoughDeaths && len(untried) > 0 {
			t.Errorf("the traffic tries too little: no %s in %d deaths", strings.Join(untried, ", no "), n)
		}
		t.Logf("%d deaths; from the signal to the end of the process: %s; from the signal to the end of all work of the survivors: %s; from the end of the process to that of the work: %s",
			r.cases, spread(r.kernel), spread(r.latencies), spread(r.ours))
	}
}

// isTimed reports whether work that ends too late is an error. It is one only in a run by hand, which needs a quiet machine.
func isTimed() bool { return os.Getenv(envKills) != "" }

// executorsOf returns the executors of a case: both with SOFTND_KILLS, else the one that n chooses.
func executorsOf(n uint64) []string {
	both := []string{"auto", "target"}
	if isTimed() {
		return both
	}
	return both[n%2:][:1]
}

// spread describes times.
func spread(all []time.Duration) string {
	slices.Sort(all)
	n := len(all)
	if n == 0 {
		return "unknown"
	}
	late := 0
	for _, d := range all {
		if d > promised {
			late++
		}
	}
	return fmt.Sprintf("median %v, 99%% %v, maximum %v, %d above %v", all[n/2], all[n*99/100], all[n-1], late, promised)
}

// kills returns how often each case runs, and the seed.
func kills(t *testing.T) (repeats int, seed uint64) {
	repeats = scale.Number(t, envKills, 1)
	t.Logf("%s=%d", envKills, repeats)
	return repeats, scale.Seed(t)
}

// pointsOf returns the points of a scenario.
func pointsOf(scenario failpoint.Scenario) (points []failpoint.Point) {
	for i, step := range failpoint.Steps {
		if step.Scenario == scenario {
			points = append(points, failpoint.Point(i))
		}
	}
	return points
}

func TestKillMatrix(t *testing.T) {
	repeats, seed := kills(t)
	var report killReport
	t.Cleanup(func() { report.log(t) })
	atOnce := 1 + runtime.NumCPU()/2
	if isTimed() {
		atOnce = 1 // no other job delays the survivors
	}
	limit := make(chan struct{}, atOnce)
	for _, point := range pointsOf(failpoint.Job) {
		for i, role := range []killRole{initiator, target, bystander} {
			for _, executor := range executorsOf(seed + uint64(point) + uint64(i)) {
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

// killOnce runs one job.
func killOnce(t *testing.T, point failpoint.Point, role killRole, executor string, r *rand.Rand, report *killReport) {
	t.Helper()
	n := 1 + r.IntN(20)
	if point == failpoint.BarrierOpened {
		n = 1 + n%4 // on a busy machine the victim is rarely the last rank
	}
	k := startKillJob(t, killRanks, executor, victimRank, roleVictim, victimArgs(role, r, point, n, failpoint.Kill)...)
	w := k.work(role, r)
	w.meet(r)
	k.victim.Expect("works")
	died := k.diesAt(point)
	w.mustEnd(died, report)
	w.mustContinue()
	heir := k.mustReclaim()
	w.stop()
	w.count(report)
	heir.mustKeep(t)
	k.close()
}

// killWork is what the survivors do.
type killWork struct {
	*killJob
	ctx      context.Context
	stop     func()
	touching []*traffic.Link  // links with the victim
	between  [2]*traffic.Link // of the ranks low and high
	calls    []collected
	ended    sync.WaitGroup // of all work with the victim
	others   sync.WaitGroup
}

// collected is the end of the collective calls of a rank.
type collected struct {
	at  atomic.Int64
	err error
}

func (w *killWork) newLink(r *rand.Rand, rank, peer int, posts bool) *traffic.Link {
	return &traffic.Link{Rand: rand.New(rand.NewPCG(r.Uint64(), uint64(rank))), Job: w.survivors[rank], Peer: peer, Posts: posts, Errs: true, Steps: 120}
}

// work starts the traffic with the victim.
func (k *killJob) work(role killRole, r *rand.Rand) *killWork {
	ctx, cancel := context.WithCancel(proctest.Context(k.t))
	w := &killWork{killJob: k, ctx: ctx, calls: make([]collected, killRanks)}
	for _, l := range victimLinks(role) {
		w.touching = append(w.touching, w.newLink(r, l.peer, victimRank, l.otherPosts))
	}
	for _, l := range w.touching {
		w.ended.Go(func() { l.Run(ctx) })
	}
	for rank, j := range k.survivors {
		w.ended.Go(func() {
			w.calls[rank].err = collect(ctx, j, 0)
			w.calls[rank].at.Store(linux.HostClock())
		})
	}
	w.stop = func() {
		cancel()
		w.others.Wait()
		for _, l := range w.between {
			if l.Broken != nil {
				k.t.Error(l.Broken)
			}
		}
	}
	return w
}

// meet starts the traffic of the ranks low and high with each other.
func (w *killWork) meet(r *rand.Rand) {
	w.between = [2]*traffic.Link{w.newLink(r, low, high, true), w.newLink(r, high, low, true)}
	for _, l := range w.between {
		w.others.Go(func() { l.Run(w.ctx) })
	}
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
	proctest.Receive(w.t, "the kernel ends the victim", w.over)
	name, last := fmt.Sprintf("rank %d", victimRank), died
	check := func(what string, at int64, err, ownEnd error) {
		if at <= died {
			return // ended before, for another reason
		}
		last = max(last, at)
		if err != nil && ownEnd == nil && !strings.Contains(err.Error(), name) {
			w.t.Errorf("%s, %v after the death: the error does not name %s: %v", what, time.Duration(at-died), name, err)
		}
	}
	for _, l := range w.touching {
		check(fmt.Sprintf("link of rank %d", l.Job.Rank()), l.EndedAt, l.End, l.OwnEnd)
		if l.Broken != nil {
			w.t.Error(l.Broken)
		}
	}
	for rank := range w.survivors {
		c := &w.calls[rank]
		check(fmt.Sprintf("collective calls of rank %d", rank), c.at.Load(), c.err, nil)
	}
	report.mu.Lock()
	defer report.mu.Unlock()
	report.cases++
	report.latencies = append(report.latencies, time.Duration(last-died))
	at := w.endedAt
	report.kernel = append(report.kernel, time.Duration(at-died))
	ours := time.Duration(max(0, last-max(at, w.heldUntil)))
	report.ours = append(report.ours, ours)
	if isTimed() && ours > promised {
		w.t.Errorf("all work of the survivors has ended %v after the victim, want at most %v", ours, promised)
	}
}

// count adds the counters of all links.
func (w *killWork) count(report *killReport) {
	report.mu.Lock()
	defer report.mu.Unlock()
	for _, l := range append(w.touching, w.between[:]...) {
		report.counts.Add(&l.Counts)
	}
}

// mustContinue checks that the ranks low and high still work with each other.
func (w *killWork) mustContinue() {
	w.t.Helper()
	before := w.between[0].Counts[traffic.Done].Load()
	proctest.Eventually(w.t, "the survivors go on with each other", func() bool { return w.between[0].Counts[traffic.Done].Load() > before+100 })
}
