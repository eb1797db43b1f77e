package asym

import (
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
)

func TestMain(m *testing.M) {
	Register()
	os.Exit(m.Run())
}

// A goroutine that often has the bias never shares the lock with others that lock it or try to.
func TestMutexExcludes(t *testing.T) {
	withAndWithoutBias(t, func(t *testing.T) {
		var m BiasedMutex
		var counter, tries int // plain: the lock guards them
		const biased, others = 300_000, 3_000
		var all sync.WaitGroup
		stop := make(chan struct{})
		all.Go(func() {
			for range biased {
				m.Lock()
				counter++
				m.Unlock()
			}
			close(stop)
		})
		for range 2 {
			all.Go(func() {
				for range others {
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
		if want := biased + 2*others + tries; counter != want {
			t.Errorf("the counter is %d, want %d", counter, want)
		}
	})
}

func TestTryLockFailsWhileLocked(t *testing.T) {
	withAndWithoutBias(t, func(t *testing.T) {
		var m BiasedMutex
		for range 1000 { // more than it takes to get the bias
			lockOnce(&m)
		}
		m.Lock()
		tried := make(chan bool)
		go func() { tried <- m.TryLock() }()
		if <-tried {
			t.Fatal("TryLock succeeds while another goroutine holds the lock")
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
			t.Fatal("TryLock fails although the lock is free")
		}
	})
}

func TestLockWaitsForBiasedHolder(t *testing.T) {
	withAndWithoutBias(t, func(t *testing.T) {
		var m BiasedMutex
		for range 1000 {
			lockOnce(&m)
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
			t.Error("Lock returns while another goroutine holds the lock")
		}
	})
}

// The bias passes from one goroutine to the next, each time while the previous one may still rely on it.
func TestBiasChangesHands(t *testing.T) {
	withAndWithoutBias(t, func(t *testing.T) {
		var m BiasedMutex
		var counter int // plain: the lock guards it
		const goroutines, turns, streak = 4, 2_000, 100
		var all sync.WaitGroup
		for range goroutines {
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
		if want := goroutines * turns * streak; counter != want {
			t.Errorf("the counter is %d, want %d", counter, want)
		}
	})
}

func lockOnce(m *BiasedMutex) {
	m.Lock()
	defer m.Unlock()
}

// The stacks of goroutines with the bias move all the time, while they hold the lock and while they do not. Other
// goroutines get the memory of the old stacks, and lock too.
func TestMutexExcludesWhileStacksMove(t *testing.T) {
	withAndWithoutBias(t, func(t *testing.T) {
		var m BiasedMutex
		var counter int // plain: the lock guards it
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
					few.Go(func() { deep(4*depth, func() { lockOnce(&m) }) })
				}
				few.Wait()
			}
		})
		all.Go(func() {
			for range turns {
				runtime.GC() // lets stacks shrink
			}
		})
		var holders sync.WaitGroup
		for range 2 {
			holders.Go(func() {
				for i := range turns {
					for range streak {
						m.Lock()
						counter++
						deep(i%32, func() { counter++ })
						m.Unlock()
					}
					deep(i%32, func() { lockOnce(&m) })
				}
			})
		}
		holders.Wait()
		close(stop)
		all.Wait()
		if want := 2 * 2 * turns * streak; counter != want {
			t.Errorf("the counter is %d, want %d", counter, want)
		}
	})
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

// BenchmarkMutex compares one uncontended lock and unlock: the biased lock, and the two portable locks that could
// replace it. docs/decisions/biased-locks.md has the figures and the rule.
func BenchmarkMutex(b *testing.B) {
	var guarded int
	b.Run("biased", func(b *testing.B) {
		var m BiasedMutex
		for b.Loop() {
			m.Lock()
			guarded++
			m.Unlock()
		}
	})
	b.Run("biased, inlined", func(b *testing.B) {
		var m BiasedMutex
		for b.Loop() {
			if !m.LockBiased() {
				m.Lock()
			}
			guarded++
			m.Unlock()
		}
	})
	b.Run("compare-and-swap", func(b *testing.B) {
		var m casMutex
		for b.Loop() {
			m.lock()
			guarded++
			m.unlock()
		}
	})
	b.Run("sync", func(b *testing.B) {
		var m sync.Mutex
		for b.Loop() {
			m.Lock()
			guarded++
			m.Unlock()
		}
	})
}

// casMutex is the portable design: one compare-and-swap to lock, one releasing store to unlock.
type casMutex struct{ locked atomic.Uint32 }

func (m *casMutex) lock() {
	if !m.locked.CompareAndSwap(0, 1) {
		m.lockSlow()
	}
}

func (m *casMutex) lockSlow() {
	for !m.locked.CompareAndSwap(0, 1) {
		runtime.Gosched()
	}
}

func (m *casMutex) unlock() { StoreRelease32(&m.locked, 0) }

func BenchmarkHeavy(b *testing.B) {
	for b.Loop() {
		Heavy()
	}
}
