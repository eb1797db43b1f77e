package statuspage

import (
	"encoding/binary"
	"errors"

	"github.com/softnd/softnd/internal/linux"
	"github.com/softnd/softnd/internal/testkit/failpoint"
	"github.com/softnd/softnd/shm"
)

// MaxStacks is the maximum length of the stacks that [Observer.Stacks] returns, in bytes.
const MaxStacks = 256 << 10

// Reporter writes the status page of a member.
type Reporter struct {
	member *shm.Member
	page   *sharedPage
	stacks shm.Offset // of the stacks that it has published; 0: none
}

// NewReporter empties the member's status page, and notes the present time as that of its last
// progress. A member can have only one Reporter. Until then, the page holds what a previous member
// with the same record has written.
func NewReporter(m *shm.Member) (*Reporter, error) {
	page, err := pageOf(m.Arena(), m.ID())
	if err != nil {
		return nil, err
	}
	page.reset()
	return &Reporter{member: m, page: page}, nil
}

// reset prepares the page for a new reporter. Requests stay pending: an observer may see the member before it has a reporter.
func (s *sharedPage) reset() {
	s.seq.Store((s.seq.Load() + 1) &^ 1) // odd if the previous reporter died while it wrote
	s.length.Store(0)
	s.writtenAt.Store(0)
	s.stacksLength.Store(0)
	s.lastProgress.Store(uint64(linux.HostClock()))
}

// NoteProgress records the present time as that of the member's last progress.
func (r *Reporter) NoteProgress() { r.page.lastProgress.Store(uint64(linux.HostClock())) }

// Write replaces the content of the page. If p is too long for it, Write omits what explains least.
// Not safe for concurrent use.
func (r *Reporter) Write(p Page) { r.page.write(p.encode()) }

// write replaces the text of the page, of at most maxText bytes.
func (s *sharedPage) write(text []byte) {
	s.seq.Add(1) // ORDER status-odd: before the words; pairs with the second load in sharedPage.read
	failpoint.Reach(failpoint.StatusOdd)
	for i := 0; 8*i < len(text); i++ {
		var word [8]byte
		copy(word[:], text[8*i:])
		s.text[i].Store(binary.NativeEndian.Uint64(word[:]))
	}
	s.length.Store(uint64(len(text)))
	s.writtenAt.Store(uint64(linux.HostClock()))
	failpoint.Reach(failpoint.StatusWritten)
	s.seq.Add(1) // ORDER status-even: after the words; pairs with the first load in sharedPage.read
	failpoint.Reach(failpoint.StatusEven)
}

// StacksRequested reports whether an observer waits for the member's stacks. It costs two loads.
func (r *Reporter) StacksRequested() bool {
	return r.page.requested.Load() != r.page.answered.Load()
}

// PublishStacks answers all requests for the member's stacks so far. It copies stacks into the
// member's heap, where they stay until the next call or [Reporter.FreeStacks]. Not safe for
// concurrent use.
//
// Errors: [shm.NoMemoryError] if the heap has no room. Observers get an empty answer then.
func (r *Reporter) PublishStacks(stacks []byte) error {
	s := r.page
	request := s.requested.Load()
	err := r.FreeStacks()
	var shortage error
	if len(stacks) > 0 {
		r.stacks, shortage = r.member.Alloc(uint64(len(stacks)))
	}
	if r.stacks != 0 {
		copy(r.member.Arena().HeapBytes(r.stacks, uint64(len(stacks))), stacks)
		s.stacks.Store(uint64(r.stacks))
		s.stacksLength.Store(uint64(len(stacks)))
	}
	failpoint.Reach(failpoint.StacksStored)
	s.answered.Store(request) // ORDER stacks-answered: after the stacks; pairs with the load in Observer.Stacks
	failpoint.Reach(failpoint.StacksAnswered)
	return errors.Join(err, shortage)
}

// FreeStacks gives the memory of the published stacks back to the program. It answers no request.
// Not safe for concurrent use.
func (r *Reporter) FreeStacks() (err error) {
	r.page.stacksLength.Store(0)
	if r.stacks != 0 { // the private copy of the offset: a peer may overwrite the shared one
		err = r.member.Free(r.stacks)
		r.stacks = 0
	}
	return err
}
