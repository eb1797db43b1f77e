package endpoint

import (
	"maps"

	"github.com/softnd/softnd/window"
)

// loans are the windows that are bound, and the regions that are fast-registered,
// on one endpoint. Mostly it is the latest that is taken back.
type loans struct {
	latest  window.Loan // nil = none
	others  map[window.Loan]struct{}
	pruneAt int // number of others at which to forget those that are bound no more
}

func (l *loans) add(loan window.Loan) {
	if l.latest == nil || l.latest == loan {
		l.latest = loan
		return
	}
	if len(l.others) >= l.pruneAt {
		maps.DeleteFunc(l.others, func(o window.Loan, _ struct{}) bool { return !o.Bound() })
		l.pruneAt = max(64, 2*len(l.others))
	}
	if l.others == nil {
		l.others = make(map[window.Loan]struct{})
	}
	l.others[l.latest] = struct{}{}
	l.latest = loan
}

func (l *loans) remove(loan window.Loan) {
	if l.latest == loan {
		l.latest = nil
		return
	}
	delete(l.others, loan)
}

// takeAll empties the list, and calls f with each.
func (l *loans) takeAll(f func(window.Loan)) {
	if l.latest != nil {
		f(l.latest)
	}
	for loan := range l.others {
		f(loan)
	}
	l.latest = nil
	clear(l.others)
}
