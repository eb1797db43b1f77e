package ndcheck

import (
	"net/netip"
	"testing"
	"time"

	"github.com/softnd/softnd/nd"
)

// present is a lock of a journal that some ranks have entered.
type present map[int]bool

func (p present) Lock() bool              { return true }
func (p present) Unlock()                 {}
func (p present) Enter(rank int)          { p[rank] = true }
func (p present) IsPresent(rank int) bool { return p[rank] }

// busy is a lock that another process may keep.
type busy struct {
	present
	isTaken bool
}

func (b *busy) Lock() bool { return !b.isTaken }

func journalWith(t testing.TB, lock Lock) *Journal {
	t.Helper()
	j, err := NewJournal(make([]byte, JournalSize), lock)
	if err != nil {
		t.Fatal(err)
	}
	return j
}

// addressAt returns an address of a process.
func addressAt(rank int) netip.Addr { return netip.AddrFrom4([4]byte{127, 0, 0, byte(rank + 1)}) }

// An access of a process that has died conflicts with nothing, and gives its place free.
func TestAccessesEndWithTheirProcess(t *testing.T) {
	lock := present{}
	j := journalWith(t, lock)
	j.enter(0, addressAt(0))
	j.enter(1, addressAt(1))
	first, _ := j.open(access{posted: 1, write: true, rank: 0, owner: 1, endpoint: 1, address: 100, size: 8})
	if _, conflicts := j.open(access{posted: 1, write: true, rank: 1, owner: 1, endpoint: 1, address: 104, size: 8}); len(conflicts) != 1 {
		t.Fatalf("%d conflicts while the process lives", len(conflicts))
	}
	lock[0] = false
	if _, conflicts := j.open(access{posted: 1, write: true, rank: 1, owner: 1, endpoint: 2, address: 100, size: 4}); len(conflicts) != 0 {
		t.Errorf("conflicts after its death: %v", conflicts)
	}
	if again, _ := j.open(access{posted: 1, write: true, rank: 1, owner: 1, endpoint: 1, address: 4096, size: 8}); again != first {
		t.Errorf("the next access has number %d, want %d", again, first)
	}
}

// Accesses of dead processes leave a full table, also if their bytes are those of no other access.
func TestFullOfDeadAccesses(t *testing.T) {
	lock := present{}
	j := journalWith(t, lock)
	j.enter(0, addressAt(0))
	j.enter(1, addressAt(1))
	fill := func(rank, n int) (number uint32) {
		for i := range n {
			number, _ = j.open(access{posted: 1, rank: rank, owner: 1, endpoint: 1, address: uint64(i+1) << 20, size: 8})
		}
		return number
	}
	fill(0, maxAccesses/2)
	fill(1, maxAccesses/2)
	if number := fill(0, 1); number != 0 {
		t.Fatalf("access %d is in a full table", number)
	}
	lock[1] = false
	if number := fill(0, sweepEvery); number == 0 {
		t.Error("the dead process still fills the table")
	}
	if number := fill(0, maxAccesses/2-1); number == 0 {
		t.Error("not all places of the dead process are free")
	}
	if number := fill(0, 1); number != 0 {
		t.Error("a place of the process that lives is free")
	}
}

// A process that is a rank again ends what the rank had before.
func TestEnterAgain(t *testing.T) {
	j := journalWith(t, present{})
	j.enter(0, addressAt(0))
	j.issue(tokenRecord{token: 7, rank: 0})
	j.issue(tokenRecord{token: 8, rank: 1})
	j.open(access{posted: 1, write: true, rank: 0, owner: 1, endpoint: 1, address: 100, size: 8})
	j.enter(0, addressAt(2))
	if r, ok, _ := j.findToken(7); !ok || r.live {
		t.Errorf("the token of the dead process: %v, %+v", ok, r)
	}
	if r, ok, _ := j.findToken(8); !ok || !r.live {
		t.Errorf("the token of another process: %v, %+v", ok, r)
	}
	if _, conflicts := j.open(access{posted: 1, write: true, rank: 1, owner: 1, endpoint: 1, address: 100, size: 8}); len(conflicts) != 0 {
		t.Errorf("conflicts: %v", conflicts)
	}
}

// A stopped process that keeps the lock costs no change and no certainty.
func TestChangesWaitForTheLock(t *testing.T) {
	lock := &busy{present: present{}}
	j := journalWith(t, lock)
	number, _ := j.open(access{posted: 1, write: true, rank: 0, owner: 0, endpoint: 1, address: 100, size: 8})
	lock.isTaken = true
	j.issue(tokenRecord{token: 7})
	j.close(number)
	if _, ok, certain := j.findToken(7); ok || certain {
		t.Error("the journal was read without the lock")
	}
	lock.isTaken = false
	if _, ok, _ := j.findToken(7); !ok {
		t.Error("the token is lost")
	}
	if _, conflicts := j.open(access{posted: 1, write: true, rank: 0, owner: 0, endpoint: 2, address: 100, size: 8}); len(conflicts) != 0 {
		t.Errorf("the access is still in flight: %v", conflicts)
	}
}

// A full table of tokens forgets the oldest, and the journal says that it is not complete.
func TestFullTables(t *testing.T) {
	j := journalWith(t, nil)
	for i := range uint32(2 * maxTokens) {
		j.issue(tokenRecord{token: nd.Token(i + 1)})
	}
	if _, ok, _ := j.findToken(2 * maxTokens); !ok {
		t.Error("the newest token is not known")
	}
	forgotten := 0
	for i := range uint32(2 * maxTokens) {
		if _, ok, certain := j.findToken(nd.Token(i + 1)); !ok {
			forgotten++
			if certain {
				t.Fatalf("the journal claims that token %d was never issued", i+1)
			}
		}
	}
	if forgotten < maxTokens {
		t.Errorf("%d tokens are forgotten, and there is room for %d", forgotten, maxTokens)
	}
	certain := 0
	for i := range uint32(1000) {
		if _, _, isCertain := j.findToken(nd.Token(1<<31 + i)); isCertain {
			certain++
		}
	}
	if certain < 500 {
		t.Errorf("the journal is certain about %d of 1000 tokens that were never issued", certain)
	}
	var numbers []uint32
	for i := range maxAccesses + 1 {
		n, _ := j.open(access{posted: 1, rank: 1, owner: 1, endpoint: 1, address: uint64(i+1) << 20, size: 8})
		numbers = append(numbers, n)
	}
	if numbers[maxAccesses-1] == 0 || numbers[maxAccesses] != 0 {
		t.Errorf("accesses %d and %d", numbers[maxAccesses-1], numbers[maxAccesses])
	}
	j.close(numbers...)
	if used := j.field(accessesUsed); used != 0 {
		t.Errorf("%d access records in use", used)
	}
}

// The memory may have any content: another process can write over it. No call panics or hangs.
func FuzzJournal(f *testing.F) {
	f.Add(uint32(0), uint32(0), []byte{})
	f.Add(uint32(accessesUsed), uint32(7), []byte{255, 255, 255, 255, 255, 255, 255, 255})
	f.Add(uint32(ranksAt), uint32(5), []byte{1, 0, 0, 0, 127, 0, 0, 1})
	f.Add(uint32(findingsAt), uint32(9), []byte("{\"finding\":{\"rule\":{\"id\":\"N101\"}}}\n"))
	f.Add(uint32(findingsAt), uint32(9), []byte("{\"expect\":{\"rules\":[\"N101\"]}}\n"))
	memory := make([]byte, JournalSize)
	f.Fuzz(func(t *testing.T, at, token uint32, scribble []byte) {
		clear(memory)
		j, err := NewJournal(memory, present{0: true})
		if err != nil {
			t.Fatal(err)
		}
		j.enter(0, addressAt(0))
		j.issue(tokenRecord{token: nd.Token(token)})
		number, _ := j.open(access{posted: 1, rank: 0, owner: 0, endpoint: 1, address: 1, size: 8})
		j.add(record{Finding: &Finding{Rule: conflict, What: "x"}})
		for i := 0; len(scribble) > 0 && i < 1<<12; i++ { // over the header and the beginning of each table
			for _, table := range []int{0, ranksAt, tokensAt, accessesAt, findingsAt} {
				memory[table+(int(at)+i)%(1<<12)] = scribble[i%len(scribble)]
			}
		}
		if used := j.field(accessesUsed); used > 0 {
			copy(j.accessSlot(min(used, maxAccesses)-1), scribble)
		}
		done := time.AfterFunc(time.Minute, func() { panic("a call hangs") })
		defer done.Stop()
		j.enter(1, addressAt(1))
		j.findToken(nd.Token(token))
		j.issue(tokenRecord{token: nd.Token(token + 1)})
		j.finish(1, batch{wrote: []wrote{{token: nd.Token(token), posted: 1}}})
		j.order([]uint32{number})
		j.announce(nd.Token(token), 1, "x", 1)
		j.withdraw(nd.Token(token), 1, "x", 1)
		j.open(access{posted: 1, write: true, rank: 1, owner: 0, endpoint: 1, address: 1, size: 1 << 40})
		j.openRemote(nd.Token(token), &access{write: true, rank: 1, endpoint: 1, address: 1, size: 1 << 40}, 0)
		j.close(number)
		j.setWait(0, wait{to: addressAt(1)})
		j.setWait(1, wait{to: addressAt(0)})
		j.cycle(0)
		j.rankOf(addressAt(1))
		j.add(record{Finding: &Finding{Rule: conflict, What: "y"}})
		j.add(record{Expect: &Expectation{Rules: []string{"N1"}}})
		j.Unmet()
		j.mayHaveChanged(0, 1, []span{{1, 1 << 40}})
		for _, f := range mustFind(j) {
			_ = f.String()
		}
		if j.HasWatched(-1) || j.HasWatched(maxRanks) {
			t.Error("a rank that does not exist was watched")
		}
	})
}

func mustFind(j *Journal) []Finding {
	found, _ := j.Findings()
	return found
}
