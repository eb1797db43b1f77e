package launcher

import (
	"slices"
	"syscall"
	"time"
)

// Occasion is why a job that does not go on is to be explained.
type Occasion int

// Occasions of [Config.Explain].
const (
	TimeOver Occasion = iota // Config.Timeout has passed; then the job is stopped
	Quit                     // SIGQUIT has come; then it is passed on
	Signaled                 // another signal that ends the job has come; then it is passed on
	Asked                    // through Config.Ask; the job goes on
)

// explainTime is how long the end of a job waits for its explanation.
const explainTime = 5 * time.Second

// explanation is one under way.
type explanation struct {
	done  chan []string
	limit <-chan time.Time // for how long what follows is put off
	then  func()           // what follows; nil: nothing, or not any more
	next  *Occasion        // has come meanwhile
}

// explain has the job explained, and goes on with then afterwards: the ranks have not
// been asked to end until then. What the caller does for it may take any time, and
// supervision goes on meanwhile.
func (f *front) explain(why Occasion, then func()) {
	f.goOn()
	if f.cfg.Explain == nil {
		then()
		return
	}
	limit := f.cfg.explainTime
	if limit == 0 {
		limit = explainTime
	}
	e := &f.explanation
	e.then, e.limit = then, time.After(limit)
	if e.done != nil {
		e.next = &why
		return
	}
	f.beginExplaining(why)
}

func (f *front) beginExplaining(why Occasion) {
	done := make(chan []string, 1)
	f.explanation.done = done
	r := *f.report
	r.Ranks = slices.Clone(r.Ranks)
	go func() { done <- f.cfg.Explain(why, &r) }()
}

// explained takes the result.
func (f *front) explained(hang []string) {
	f.report.Hang = hang
	e := &f.explanation
	e.done = nil
	if e.next != nil && e.then != nil {
		why := *e.next
		e.next = nil
		f.beginExplaining(why)
		return
	}
	f.goOn()
}

// answer explains the job because somebody has asked for it, unless that is being done.
func (f *front) answer() {
	if f.cfg.Explain != nil && f.explanation.done == nil {
		f.beginExplaining(Asked)
	}
}

// goOn does what was put off for an explanation, if anything was.
func (f *front) goOn() {
	then := f.explanation.then
	f.explanation.then, f.explanation.limit, f.explanation.next = nil, nil, nil
	if then != nil {
		then()
	}
}

// endBy ends the job by a signal. The first one is put off until the job is explained,
// unless the job is about to end already: a user in a hurry does not wait.
func (f *front) endBy(sig syscall.Signal) {
	pass := func() { f.end(order{Kind: orderSignal, Signal: sig}) }
	why := Signaled
	if sig == syscall.SIGQUIT {
		why = Quit
	}
	down := f.ending || f.report.First >= 0 || f.explanation.then != nil
	if f.asked || down && why != Quit {
		f.goOn()
		pass()
		return
	}
	f.asked = true
	f.explain(why, pass)
}
