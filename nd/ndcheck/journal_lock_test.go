package ndcheck

import (
	"sync"
	"testing"
)

// keptOnce is a lock that another process keeps until the first attempt has failed.
type keptOnce struct {
	present
	first sync.Once
}

func (k *keptOnce) Lock() bool {
	isFree := true
	k.first.Do(func() { isFree = false })
	return isFree
}

// A change that waits for the lock is made by whichever goroutine gets it, also while the one that asked for it returns.
func TestWithdrawWithoutTheLock(t *testing.T) {
	lock := &keptOnce{present: present{}}
	lock.Lock()
	j := journalWith(t, lock)
	for range 1000 {
		j.issue(tokenRecord{token: 7})
		lock.first = sync.Once{}
		var calls sync.WaitGroup
		calls.Go(func() {
			if r, ok := j.withdraw(7, 0, "x", 1); ok && r.token != 7 {
				t.Errorf("the record was %+v", r)
			}
		})
		calls.Go(func() { j.findToken(7) })
		calls.Wait()
		if r, ok, _ := j.findToken(7); !ok || r.live {
			t.Fatalf("the token is live: %v, %+v", ok, r)
		}
	}
}
