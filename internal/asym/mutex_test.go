package asym

import (
	"os"
	"runtime"
	"sync"
	"testing"
)

func TestMain(m *testing.M) {
	Register()
	os.Exit(m.Run())
}

// An owner that is disturbed all the time, by locks and by tries, never shares the lock.
func TestMutexExcludes(t *testing.T) {
	var m Mutex
	var counter, tries int // plain: the lock is to guard it
	const owned, disturbed = 300_000, 3_000
	var all sync.WaitGroup
	stop := make(chan struct{})
	all.Go(func() {
		for range owned {
			m.Lock()
			counter++
			m.Unlock()
		}
		close(stop)
	})
	for range 2 {
		all.Go(func() {
			for range disturbed {
				m.Lock()
				counter++
				m.Unlock()
			}
		})
	}
	all.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			if m.TryLock() {
				counter++
				tries++
				m.Unlock()
			}
		}
	})
	all.Wait()
	if want := owned + 2*disturbed + tries; counter != want {
		t.Errorf("%d increments are left of %d", counter, want)
	}
}

func TestTryLockOfOneThatIsHeld(t *testing.T) {
	var m Mutex
	for range 1000 { // the owner by now
		once(&m)
	}
	m.Lock()
	tried := make(chan bool)
	go func() { tried <- m.TryLock() }()
	if <-tried {
		t.Fatal("a lock that its owner holds was given to another")
	}
	m.Unlock()
	go func() {
		ok := m.TryLock()
		if ok {
			m.Unlock()
		}
		tried <- ok
	}()
	if !<-tried {
		t.Fatal("a free lock was refused")
	}
}

func TestLockWaitsForTheOwner(t *testing.T) {
	var m Mutex
	for range 1000 {
		once(&m)
	}
	m.Lock()
	guarded, locked := 0, make(chan int)
	go func() {
		m.Lock()
		locked <- guarded
		m.Unlock()
	}()
	guarded = 1
	m.Unlock()
	if <-locked != 1 {
		t.Error("the lock was given away while its owner was inside")
	}
}

func BenchmarkMutex(b *testing.B) {
	var m Mutex
	for b.Loop() {
		once(&m)
	}
}

func BenchmarkHeavy(b *testing.B) {
	for b.Loop() {
		Heavy()
	}
}

// Goroutines that become the owner one after the other, each while the one
// before may still take itself for it.
func TestOwnersReplaceEachOther(t *testing.T) {
	var m Mutex
	var counter int // plain: the lock is to guard it
	const owners, turns, streak = 4, 2_000, 100
	var all sync.WaitGroup
	for range owners {
		all.Go(func() {
			for range turns {
				for range streak {
					m.Lock()
					counter++
					m.Unlock()
				}
				runtime.Gosched()
			}
		})
	}
	all.Wait()
	if want := owners * turns * streak; counter != want {
		t.Errorf("%d increments are left of %d", counter, want)
	}
}

// once locks and unlocks.
func once(m *Mutex) {
	m.Lock()
	defer m.Unlock()
}

// An owner whose stack moves all the time, inside and outside, while others get what it leaves, and the lock.
func TestOwnerMoves(t *testing.T) {
	var m Mutex
	var counter int // plain: the lock is to guard it
	const turns, streak = 300, 100
	var all sync.WaitGroup
	stop := make(chan struct{})
	all.Go(func() { // small stacks, and some that grow
		for {
			select {
			case <-stop:
				return
			default:
			}
			var few sync.WaitGroup
			for depth := range 8 {
				few.Go(func() { deep(4*depth, func() { once(&m) }) })
			}
			few.Wait()
		}
	})
	all.Go(func() {
		for range turns {
			runtime.GC() // which lets stacks shrink
		}
	})
	var owners sync.WaitGroup
	for range 2 {
		owners.Go(func() {
			for i := range turns {
				for range streak {
					m.Lock()
					counter++
					deep(i%32, func() { counter++ })
					m.Unlock()
				}
				deep(i%32, func() { once(&m) })
			}
		})
	}
	owners.Wait()
	close(stop)
	all.Wait()
	if want := 2 * 2 * turns * streak; counter != want {
		t.Errorf("the counter is %d, want %d", counter, want)
	}
}

// deep calls f with 512 bytes more of stack for each level.
func deep(levels int, f func()) {
	var room [512]byte
	if levels > 0 {
		deep(levels-1, f)
	} else {
		f()
	}
	runtime.KeepAlive(&room)
}
