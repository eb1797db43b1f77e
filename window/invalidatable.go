package window

import "github.com/softnd/softnd/nd"

// Loan is what the requests of an endpoint give to peers and take back: a
// bound [Window], or a [Region] that is registered by [Region.Prepare].
type Loan interface {
	// Invalidate ends the access, which must have begun on the given endpoint
	// (0 = whichever it was), and returns the remote token. When that is
	// Drained, the caller calls Release. ok is false when there is nothing to end.
	Invalidate(endpoint uint64) (token nd.Token, ok bool)
	// TakeBack is Invalidate and, if the token is drained by then, Release.
	TakeBack(endpoint uint64) (token nd.Token, drained, ok bool)
	// Expire does the same because the endpoint has ended, and so cannot be
	// held up by what was made of the loan meanwhile.
	Expire(endpoint uint64) (token nd.Token, ok bool)
	Drained(token nd.Token) bool
	Release()
	// madeOn tells whether the access has begun on an endpoint, and not ended.
	madeOn(endpoint uint64) bool
	// Bound tells whether the access is in effect or has yet to be released.
	Bound() bool
}

// Pending is a loan that has been checked and has its token, but may not have
// taken effect yet. Each must see either Run or Abandon.
type Pending interface {
	// Run puts it into effect. It tells whether it could.
	Run() bool
	Abandon()
}

// FindBound returns the loan of this space that was made on an endpoint under
// a remote token; nil if there is none, or if it is a region to which windows
// are bound: it cannot be invalidated.
func (s *Space) FindBound(token nd.Token, endpoint uint64) Loan {
	return s.find(token, Remote, endpoint)
}

// FindLocal returns the fast registration of this space that was made on an
// endpoint under a local token; nil if there is none, as for FindBound.
func (s *Space) FindLocal(token nd.Token, endpoint uint64) Loan {
	return s.find(token, Local, endpoint)
}

func (s *Space) find(token nd.Token, kind Rights, endpoint uint64) Loan {
	_, tm, word := s.table.lookup(token)
	if tm == nil || tm.owner != s.owner || word.rights()&kind == 0 || tm.loan == nil || !tm.loan.madeOn(endpoint) {
		return nil
	}
	if r, ok := tm.loan.(*Region); ok && r.hasWindows() {
		return nil
	}
	return tm.loan
}
