package bootstrap

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/softnd/softnd/internal/testkit/proctest"
)

func TestHostTable(t *testing.T) {
	for _, of := range [][]int{{0}, {0, 1}, {0, 0, 1, 1}, {0, 1, 0, 1}, {0, 1, 2, 1, 1, 0}} {
		text := writeTable(of)
		got, count, err := readTable(text, len(of))
		if err != nil || !slices.Equal(got, of) || count != slices.Max(of)+1 {
			t.Errorf("%v as %q: %v, %d, %v", of, text, got, count, err)
		}
	}
	if text := writeTable(make([]int, 1000)); text != "0x1000" {
		t.Error(text)
	}
	for _, text := range []string{"", "0", "0x1", "0x3", "1x2", "0x1,2x1", "0x-1,0x3", "0x0,0x2", "0x9999999999999999999", "0x2,"} {
		if of, _, err := readTable(text, 2); err == nil {
			t.Errorf("%q: %v", text, of)
		}
	}
}

func FuzzHostTable(f *testing.F) {
	f.Add("0x2,1x2", 4)
	f.Fuzz(func(t *testing.T, text string, size int) {
		of, count, err := readTable(text, size)
		if err != nil {
			return
		}
		again, _, err := readTable(writeTable(of), size)
		if err != nil || !slices.Equal(of, again) || len(of) != size || slices.Max(of)+1 != count {
			t.Errorf("%q: %v, %v", text, of, again)
		}
	})
}

// memory is a meeting inside this process.
type memory struct {
	size   int
	mu     sync.Mutex
	moved  sync.Cond
	values map[string]string
	round  int // of the barrier
	here   int // ranks in the barrier
}

func newMemory(size int) *memory {
	m := &memory{size: size, values: make(map[string]string)}
	m.moved.L = &m.mu
	return m
}

func (m *memory) JobName() string { return "memory" }

func (m *memory) Put(_ context.Context, key, value string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, has := m.values[key]; has || len(key) > 64 || len(value) > 960 || strings.ContainsAny(value, " \n") {
		return fmt.Errorf("put %s=%s", key, value)
	}
	m.values[key] = value
	return nil
}

func (m *memory) Get(_ context.Context, key string) (string, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	value, has := m.values[key]
	if !has {
		return "", errors.New("no value of " + key)
	}
	return value, nil
}

func (m *memory) Barrier(context.Context) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	round := m.round
	if m.here++; m.here == m.size {
		m.here, m.round = 0, round+1
		m.moved.Broadcast()
	}
	for m.round == round {
		m.moved.Wait()
	}
	return nil
}

// all calls f for each rank of a job at the same time.
func all(t *testing.T, size int, f func(m meeting, rank int) error) {
	t.Helper()
	m := newMemory(size)
	var done sync.WaitGroup
	for rank := range size {
		done.Go(func() {
			if err := f(m, rank); err != nil {
				t.Errorf("rank %d: %v", rank, err)
			}
		})
	}
	done.Wait()
}

// Ranks on several hosts agree on them, even if the table needs several values of the key-value space.
func TestRanksAgreeOnHosts(t *testing.T) {
	ctx := proctest.Context(t)
	const size, hosts = 600, 3
	random := rand.New(rand.NewPCG(1, 2))
	want := make([]int, size)
	for rank := range want {
		want[rank] = min(rank, random.IntN(hosts)) // the first ranks of the hosts ascend
	}
	infos := make([]hostInfo, size)
	for rank, host := range want {
		infos[rank] = hostInfo{boot: fmt.Sprint(host)}
	}
	want, _ = group(infos)
	var mu sync.Mutex
	names, secrets, jobs := map[string]bool{}, map[string]bool{}, map[string]bool{}
	all(t, size, func(m meeting, rank int) error {
		name, h, err := agreeAs(ctx, m, rank, size, nil, infos[rank])
		if err != nil {
			return err
		}
		if !slices.Equal(h.Of, want) || h.Number != want[rank] || h.Count != hosts || len(h.Secret) != 32 || len(h.Job) != 32 {
			return fmt.Errorf("%+v", h)
		}
		h.meeting, h.isFirst = m, h.Ranks(h.Number)[0] == rank
		shared, err := h.Share(ctx, "word", fmt.Sprintf("of host %d, with spaces", h.Number))
		if err != nil || len(shared) != hosts || shared[2] != "of host 2, with spaces" {
			return fmt.Errorf("shared: %q, %v", shared, err)
		}
		mu.Lock()
		defer mu.Unlock()
		names[name], secrets[string(h.Secret)], jobs[h.Job] = true, true, true
		return nil
	})
	if len(names) != 1 || len(secrets) != 1 || len(jobs) != 1 {
		t.Errorf("names %v, %d secrets, jobs %v", names, len(secrets), jobs)
	}
}

// The secret of the user is not published, and that of the relays depends on the job.
func TestSecretOfTheUserStaysSecret(t *testing.T) {
	ctx := proctest.Context(t)
	secret := []byte("the secret of the user")
	derived := make(chan string, 4)
	for range 2 {
		all(t, 2, func(m meeting, rank int) error {
			_, h, err := agreeAs(ctx, m, rank, 2, secret, hostInfo{boot: fmt.Sprint(rank)})
			if err != nil {
				return err
			}
			for key, value := range m.(*memory).values {
				if strings.Contains(value, string(secret)) || strings.Contains(value, "secret=") {
					return fmt.Errorf("%s has the value %s", key, value)
				}
			}
			derived <- string(h.Secret)
			return nil
		})
	}
	if a, b, c, d := <-derived, <-derived, <-derived, <-derived; a != b || c != d || a == c || len(a) != 32 {
		t.Errorf("secrets of two jobs: %x %x %x %x", a, b, c, d)
	}
}

func TestAgreementOnOneHostHasNoTable(t *testing.T) {
	ctx := proctest.Context(t)
	all(t, 3, func(m meeting, rank int) error {
		name, h, err := agree(ctx, m, rank, 3, nil)
		if err != nil || h != nil || name == "" {
			return fmt.Errorf("%q, %+v, %v", name, h, err)
		}
		return nil
	})
}
