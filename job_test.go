package softnd_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"reflect"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/softnd/softnd"
	"github.com/softnd/softnd/internal/testkit/proctest"
	"github.com/softnd/softnd/nd"
	"github.com/softnd/softnd/shm"
	"github.com/softnd/softnd/softndtest"
)

func TestMain(m *testing.M) {
	proctest.Main()
	proctest.SideBySide(8)
	os.Exit(m.Run())
}

// A Close that is deferred past a panic takes effect when the panic has been recovered.
func TestCloseWaitsForPanic(t *testing.T) {
	ctx := t.Context()
	j, err := softnd.Init(ctx)
	if err != nil {
		t.Fatal(err)
	}
	region, err := j.Adapter().Allocate(ctx, 4096, nd.AllowLocalWrite)
	if err != nil {
		t.Fatal(err)
	}
	func() {
		defer func() {
			if recover() == nil {
				t.Error("no panic arrives")
			}
		}()
		defer func() {
			if err := j.Close(); !errors.Is(err, nd.Pending) {
				t.Errorf("Job.Close while a panic unwinds: %v, want Pending", err)
			}
		}()
		defer func() {
			if err := region.Close(ctx); !errors.Is(err, nd.Pending) {
				t.Errorf("MemoryRegion.Close while a panic unwinds: %v, want Pending", err)
			}
		}()
		panic("for the test")
	}()
	if err := j.Barrier(ctx); err != nil {
		t.Errorf("the job right after the panic: %v", err)
	}
	proctest.Eventually(t, "the job is closed", func() bool { return errors.Is(j.Barrier(ctx), nd.InvalidHandle) })
	const want = "nd: barrier on job: the job is closed: invalid handle: make the call before Job.Close"
	if err := j.Barrier(ctx); err == nil || err.Error() != want {
		t.Errorf("Barrier: %v, want %s", err, want)
	}
	if err := j.Close(); err != nil {
		t.Errorf("Close again: %v", err)
	}
}

// TestMemoryOutlivesJob: memory of one job that another job of the process has registered keeps its content when the first
// job is closed. Neither job registers memory of a closed region of the other.
func TestMemoryOutlivesJob(t *testing.T) {
	const size = 1 << 20
	ctx := proctest.Context(t)
	join := func(name string) *softnd.Job {
		j, err := softnd.Join(ctx, fmt.Sprint("softnd-test-", name, os.Getpid()), 0, 1)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := j.Close(); err != nil {
				t.Error(err)
			}
		})
		return j
	}
	owner, other := join("owner"), join("other")
	allocate := func() nd.MemoryRegion {
		r, err := owner.Adapter().Allocate(ctx, size, nd.AllowLocalWrite)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	first, second := allocate(), allocate()
	mem, unused := first.Bytes(), second.Bytes()
	if err := second.Close(ctx); err != nil {
		t.Fatal(err)
	}
	register := func(mem []byte) (nd.MemoryRegion, error) {
		return other.Adapter().Register(ctx, mem, nd.AllowRemoteWrite)
	}
	if _, err := register(unused); !errors.Is(err, nd.AccessViolation) {
		t.Errorf("memory of a closed region of the other job: %v, want AccessViolation", err)
	}
	want := bytes.Repeat([]byte{7}, size)
	copy(mem, want)
	all, err := register(mem)
	if err != nil {
		t.Fatal(err)
	}
	if err := owner.Close(); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(mem, want) {
		t.Error("the memory has lost its content")
	}
	part, err := register(mem[size/2:])
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range []nd.MemoryRegion{all, part} {
		if err := r.Close(ctx); err != nil {
			t.Error(err)
		}
	}
	if _, err := register(mem); !errors.Is(err, nd.AccessViolation) {
		t.Errorf("memory of no open region: %v, want AccessViolation", err)
	}
}

// Processes that no launcher has started find each other by a name. Here both
// ranks are in one process.
func TestJoinMeetsByName(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	name := fmt.Sprintf("softnd-test-%d", os.Getpid())
	for round := range 2 { // the name is free again after the first
		ended := make(chan error, 2)
		for rank := range 2 {
			go func() { ended <- introduce(ctx, name, rank) }()
		}
		for range 2 {
			if err := <-ended; err != nil {
				t.Fatalf("round %d: %v", round, err)
			}
		}
	}
}

func introduce(ctx context.Context, name string, rank int) error {
	job, err := softnd.Join(ctx, name, rank, 2)
	if err != nil {
		return err
	}
	all, err := job.Exchange(ctx, fmt.Appendf(nil, "rank %d", rank))
	if err == nil && (job.Rank() != rank || job.Size() != 2 || string(all[1-rank]) != fmt.Sprint("rank ", 1-rank)) {
		err = fmt.Errorf("rank %d of %d sees %q", job.Rank(), job.Size(), all)
	}
	return errors.Join(err, job.Barrier(ctx), job.Close())
}

func TestJoinRefuses(t *testing.T) {
	ctx := proctest.Context(t)
	free := fmt.Sprintf("softnd-test-%d-free", os.Getpid())
	for _, tc := range []struct {
		name       string
		rank, size int
		want       string
	}{
		{"a/b", 0, 2, `"a/b"`},
		{free, 2, 2, "rank 2 of 2: want 0 to 1"},
		{free, -1, 2, "rank -1 of 2"},
		{free, 0, 0, "size 0: want 1 to 1024"},
		{free, 0, 2000, "size 2000: want 1 to 1024"},
	} {
		job, err := softnd.Join(ctx, tc.name, tc.rank, tc.size)
		if err == nil {
			job.Close()
		}
		if err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("Join(%q, %d, %d): %v, want %q in it", tc.name, tc.rank, tc.size, err, tc.want)
		}
	}
	for limit := range proctest.Limits(t, "the process takes its place", 200*time.Millisecond) {
		early, cancel := context.WithTimeout(ctx, limit)
		job, err := softnd.Join(early, free, 0, 2)
		cancel()
		if err == nil {
			job.Close()
		}
		if err != nil && !strings.Contains(err.Error(), "missing: ") && errors.Is(err, nd.Canceled) {
			continue
		}
		if err == nil || !strings.Contains(err.Error(), "missing: rank 1") {
			t.Errorf("without rank 1: %v", err)
		}
		break
	}
	t.Setenv(softnd.EnvExec, "unknown")
	if _, err := softnd.Join(ctx, free, 0, 1); err == nil || !strings.Contains(err.Error(), softnd.EnvExec) {
		t.Errorf("a wrong executor: %v", err)
	}
}

// All ranks of a job name the same size.
func TestJoinRefusesAnotherSize(t *testing.T) {
	name := fmt.Sprintf("softnd-test-%d-sizes", os.Getpid())
	f, err := shm.OpenFabric(t.Context(), name, shm.Config{Ranks: 2})
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	const want = "wrong number of ranks (asked 3, the fabric has 2): use the same number in each process, or another name"
	if _, err := softnd.Join(t.Context(), name, 0, 3); err == nil || !strings.HasSuffix(err.Error(), want) {
		t.Errorf("%v, want %q at its end", err, want)
	}
}

// Two processes cannot be the same rank.
func TestJoinRefusesARankThatIsTaken(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	name := fmt.Sprintf("softnd-test-%d-twice", os.Getpid())
	ended := make(chan error, 2)
	for _, rank := range []int{0, 1} {
		go func() {
			job, err := softnd.Join(ctx, name, rank, 2)
			if err != nil {
				ended <- err
				return
			}
			if rank == 0 {
				_, err = softnd.Join(ctx, name, 0, 2)
				if err == nil || !strings.Contains(err.Error(), "rank 0") {
					err = fmt.Errorf("a second rank 0: %v", err)
				} else {
					t.Log(err)
					err = nil
				}
			}
			ended <- errors.Join(err, job.Barrier(ctx), job.Close())
		}()
	}
	for range 2 {
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
}

// A rank whose Join has failed is missing, too, although its process runs.
func TestJoinNamesRanksThatHaveLeft(t *testing.T) {
	name := fmt.Sprintf("softnd-test-%d-left", os.Getpid())
	arena, err := shm.OpenFabric(t.Context(), name, shm.Config{Ranks: 3})
	if err != nil {
		t.Fatal(err)
	}
	defer arena.Close()
	join := func(rank int) (end func() error) {
		ctx, cancel := context.WithCancel(t.Context())
		t.Cleanup(cancel)
		ended := make(chan error, 1)
		go func() {
			_, err := softnd.Join(ctx, name, rank, 3)
			ended <- err
		}()
		proctest.Eventually(t, "the rank has joined", func() bool { _, ok := arena.MemberOf(rank); return ok })
		return func() error {
			cancel()
			return proctest.Receive(t, "Join ends", ended)
		}
	}
	end := join(0)
	if err := join(1)(); err == nil || !strings.Contains(err.Error(), "missing: rank 2") || strings.Contains(err.Error(), "(has left)") {
		t.Error(err)
	}
	if err := end(); err == nil || !strings.Contains(err.Error(), "missing: rank 1 (has left), rank 2") {
		t.Error(err)
	}
}

// roleNextOwner takes the record of a member that was rank 1. Its arguments are the name of the fabric and the slot.
var roleNextOwner = proctest.Role("next owner", func(s *proctest.Self) error {
	arena, err := shm.OpenFabric(s.Ctx, s.Args[0], shm.Config{Ranks: 2})
	if err != nil {
		return err
	}
	if _, err := takeSlot(s.Ctx, arena, s.Args[1]); err != nil {
		return err
	}
	s.Say("taken")
	_, err = s.Hear()
	return err
})

// takeSlot joins when the record of a slot is free.
func takeSlot(ctx context.Context, arena *shm.Arena, slot string) (*shm.Member, error) {
	for {
		m, err := arena.Join(1)
		if err != nil || strconv.Itoa(m.ID().Slot()) == slot {
			return m, err
		}
		if err := m.Leave(); err != nil {
			return nil, err
		}
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-time.After(time.Millisecond):
		}
	}
}

func TestHostsOfOneHost(t *testing.T) {
	j, err := softnd.Init(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer j.Close()
	if got, want := j.Hosts(), []softnd.Host{{Ranks: []int{0}}}; !reflect.DeepEqual(got, want) {
		t.Errorf("hosts: %v, want %v", got, want)
	}
}

func TestNamesOfJob(t *testing.T) {
	ctx := proctest.Context(t)
	jobs := softndtest.New(t, 2)
	addr := netip.MustParseAddrPort("127.77.0.1:1000")
	withdraw, err := jobs[0].PublishName("server", addr)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := jobs[1].LookupName(ctx, "server"); err != nil || got != addr {
		t.Errorf("%v, %v", got, err)
	}
	want := func(err error, status nd.Status) {
		t.Helper()
		if !errors.Is(err, status) {
			t.Errorf("%v, want %v", err, status)
		}
	}
	_, err = jobs[1].PublishName("server", addr)
	want(err, nd.SharingViolation)
	_, err = jobs[1].PublishName("two words", addr)
	want(err, nd.InvalidParameter)
	_, err = jobs[1].PublishName("other", netip.AddrPortFrom(addr.Addr(), 0))
	want(err, nd.InvalidAddress)
	_, err = jobs[1].LookupName(ctx, "two words")
	want(err, nd.InvalidParameter)
	withdraw()
	for i := 0; err == nil || errors.Is(err, nd.InvalidParameter); i++ {
		_, err = jobs[1].PublishName(fmt.Sprint("name-", i), addr)
	}
	want(err, nd.InsufficientResources)
	ended, cancel := context.WithCancel(ctx)
	cancel()
	_, err = jobs[1].LookupName(ended, "server")
	want(err, nd.Canceled)
	waits := make(chan error)
	go func() {
		_, err := jobs[1].LookupName(context.Background(), "server")
		waits <- err
	}()
	if err := jobs[1].Close(); err != nil {
		t.Error(err)
	}
	want(<-waits, nd.InvalidHandle)
	_, err = jobs[1].PublishName("server", addr)
	want(err, nd.InvalidHandle)
}

func TestWithLoggerNamesTheRank(t *testing.T) {
	var text lockedBuffer
	logger := slog.New(slog.NewTextHandler(&text, nil))
	jobs := softndtest.New(t, 2, softnd.WithLogger(logger))
	connected := make(chan error, 2)
	for _, job := range jobs {
		go func() {
			queue, err := job.Adapter().CreateCompletionQueue(t.Context(), 16)
			if err == nil {
				_, err = job.Connect(t.Context(), 1-job.Rank(), nd.EndpointConfig{ReceiveCQ: queue, InitiatorCQ: queue})
			}
			connected <- err
		}()
	}
	for range jobs {
		if err := <-connected; err != nil {
			t.Fatal(err)
		}
	}
	for _, job := range jobs {
		if err := job.Close(); err != nil {
			t.Fatal(err)
		}
	}
	for _, want := range []string{`msg=connected rank=0 endpoint=1 peer="endpoint 1 of rank 1`, `msg=connected rank=1 endpoint=1 peer="endpoint 1 of rank 0`} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("no event %q in\n%s", want, text.String())
		}
	}
}

func TestWithLoggerRefusesNil(t *testing.T) {
	if _, err := softnd.Join(t.Context(), "refused", 0, 1, softnd.WithLogger(nil)); err == nil {
		t.Error("Join accepted a nil logger")
	}
}

func TestStatsOfProviderWithoutCounters(t *testing.T) {
	if _, ok := nd.StatsOf(nil); ok {
		t.Error("StatsOf reports counters of nil")
	}
	if _, ok := nd.QueueStatsOf(nil); ok {
		t.Error("QueueStatsOf reports counters of nil")
	}
}

// lockedBuffer is a buffer for goroutines that read and write at the same time.
type lockedBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}
