package ndcheck

import (
	"math"
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

// A Write of a process that cannot have the lock may change bytes, as its peer sees at once.
func TestWriteWithoutTheLock(t *testing.T) {
	lock := &busy{present: present{}}
	writer := journalWith(t, lock)
	owner := &Journal{lock: present{}, memory: writer.memory}
	owner.enter(0, addressAt(0))
	lock.isTaken = true
	if _, _, isKnown := writer.openRemote(7, &access{write: true, rank: 1, address: 100, size: 8, posted: 50}, 0); isKnown {
		t.Fatal("the access is in the journal")
	}
	if !owner.mayHaveChanged(0, 50, []span{{100, 8}}) || owner.mayHaveChanged(0, 51, []span{{100, 8}}) {
		t.Error("the Write is not known since its post only")
	}
	begin := now()
	writer.finish(1, batch{wrote: []wrote{{token: 7, posted: 50, owner: 0}}})
	if !owner.mayHaveChanged(0, begin, []span{{100, 8}}) || owner.mayHaveChanged(0, now()+1, []span{{100, 8}}) {
		t.Error("the Write is not known until its end only")
	}
}

// enterLate returns the journal of a process that begins and enters as rank 0 while a stopped one keeps the lock.
func enterLate(t *testing.T) (j *Journal, lock *busy, memory []byte) {
	t.Helper()
	lock, memory = &busy{present: present{}, isTaken: true}, make([]byte, JournalSize)
	if _, err := NewJournal(memory, present{}); err != nil {
		t.Fatal(err)
	}
	j, err := NewJournal(memory, lock)
	if err != nil {
		t.Fatal(err)
	}
	j.enter(0, addressAt(0))
	return j, lock, memory
}

// A process that begins while a stopped one keeps the lock uses the journal when it can.
func TestBeginWithoutTheLock(t *testing.T) {
	j, lock, memory := enterLate(t)
	if j.HasWatched(0) {
		t.Error("the journal was changed without the lock")
	}
	lock.isTaken = false
	if j.rankOf(addressAt(0)) != 0 {
		t.Error("the rank is not known")
	}
	lock.isTaken = true
	copy(memory, "another version")
	if _, err := NewJournal(memory, lock); err == nil {
		t.Error("a journal of another version was accepted")
	}
	if _, err := NewJournal(make([]byte, JournalSize), lock); err == nil {
		t.Error("a journal without a version was accepted")
	}
}

// A rank that waits for the lock to enter keeps what is noted without the lock.
func TestNotesBeforeLateEnter(t *testing.T) {
	j, lock, _ := enterLate(t)
	j.learn(0, 50)
	j.missWrite(0, 60)
	lock.isTaken = false
	if !j.HasWatched(0) || j.learnedAt(0) != 50 || j.missedWrite(0) != 60 {
		t.Errorf("the rank has learned something at %d, and may have been written to at %d", j.learnedAt(0), j.missedWrite(0))
	}
}

// A Write whose end an earlier process of the rank could not know has ended with that process.
func TestEnterAfterEndlessWrite(t *testing.T) {
	j := journalWith(t, nil)
	j.missWrite(0, math.MaxInt64)
	j.enter(0, addressAt(0))
	if at := j.missedWrite(0); at > now() {
		t.Errorf("the rank may be written to until %d", at)
	}
}

// A process notes a Write to a rank while the rank enters.
func TestMissedWriteBesideEnter(t *testing.T) {
	j := journalWith(t, nil)
	for rank := range 200 {
		var calls sync.WaitGroup
		calls.Go(func() { j.enter(rank, addressAt(rank)) })
		calls.Go(func() { j.missWrite(rank, 60) })
		calls.Go(func() { j.learn(rank, 50) })
		calls.Wait()
		if j.missedWrite(rank) != 60 || j.learnedAt(rank) != 50 {
			t.Fatalf("rank %d has learned something at %d, and may have been written to at %d", rank, j.learnedAt(rank), j.missedWrite(rank))
		}
	}
}
