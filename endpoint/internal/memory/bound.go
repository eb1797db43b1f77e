package memory

import (
	"maps"

	"github.com/softnd/softnd/window"
)

// BoundSet holds the windows that are bound and the regions that are fast-registered on one
// endpoint. Usually the latest is invalidated first.
type BoundSet struct {
	latest  *window.Invalidatable // nil = none
	others  map[*window.Invalidatable]struct{}
	pruneAt int // size of others at which members that are not bound are removed
}

func (l *BoundSet) Add(i *window.Invalidatable) {
	if l.latest == nil || l.latest == i {
		l.latest = i
		return
	}
	if len(l.others) >= l.pruneAt {
		maps.DeleteFunc(l.others, func(o *window.Invalidatable, _ struct{}) bool { return !o.Bound() })
		l.pruneAt = max(64, 2*len(l.others))
	}
	if l.others == nil {
		l.others = make(map[*window.Invalidatable]struct{})
	}
	l.others[l.latest] = struct{}{}
	l.latest = i
}

func (l *BoundSet) Remove(i *window.Invalidatable) {
	if l.latest == i {
		l.latest = nil
		return
	}
	delete(l.others, i)
}

// Clear empties the set and calls f with each member.
func (l *BoundSet) Clear(f func(*window.Invalidatable)) {
	if l.latest != nil {
		f(l.latest)
	}
	for i := range l.others {
		f(i)
	}
	l.latest = nil
	clear(l.others)
}
