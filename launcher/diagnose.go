package launcher

import (
	"slices"
	"syscall"
	"time"
)

// Trigger is the event for which [Config.Diagnose] is called.
type Trigger int

// Triggers of [Config.Diagnose].
const (
	TriggerTimeout Trigger = iota // Config.Timeout expired; the job is stopped afterwards
	triggerQuit                   // SIGQUIT arrived; it is forwarded afterwards
	TriggerSignal                 // another signal that ends the job arrived; it is forwarded afterwards
	TriggerRequest                // a value from Config.DiagnoseNow arrived; the job continues
)

// diagnosisTimeout limits how long a diagnosis delays the end of a job.
const diagnosisTimeout = 5 * time.Second

// diagnosis is the state of a call of Config.Diagnose.
type diagnosis struct {
	done  chan []string    // nil: no call is running
	limit <-chan time.Time // when then is called at the latest
	then  func()           // ends the job; nil if nothing is postponed
	next  *Trigger         // arrived during the call; nil if none did
}

// diagnose calls Config.Diagnose and then continues with then, which asks the ranks to end. The
// front end handles events meanwhile.
func (f *frontEnd) diagnose(trigger Trigger, then func()) {
	f.resumeEnd()
	if f.cfg.Diagnose == nil {
		then()
		return
	}
	limit := f.cfg.diagnosisTimeout
	if limit == 0 {
		limit = diagnosisTimeout
	}
	e := &f.diagnosis
	e.then, e.limit = then, time.After(limit)
	if e.done != nil {
		e.next = &trigger
		return
	}
	f.startDiagnosis(trigger)
}

func (f *frontEnd) startDiagnosis(trigger Trigger) {
	done := make(chan []string, 1)
	f.diagnosis.done = done
	r := *f.report
	r.Ranks = slices.Clone(r.Ranks)
	go func() { done <- f.cfg.Diagnose(trigger, &r) }()
}

// diagnosed records the result of Config.Diagnose.
func (f *frontEnd) diagnosed(hang []string) {
	f.report.Hang = hang
	e := &f.diagnosis
	e.done = nil
	if e.next != nil && e.then != nil {
		trigger := *e.next
		e.next = nil
		f.startDiagnosis(trigger)
		return
	}
	f.resumeEnd()
}

// diagnoseNow calls Config.Diagnose on request, unless a call is running.
func (f *frontEnd) diagnoseNow() {
	if f.cfg.Diagnose != nil && f.diagnosis.done == nil {
		f.startDiagnosis(TriggerRequest)
	}
}

// resumeEnd calls the function that was postponed for a diagnosis, if any.
func (f *frontEnd) resumeEnd() {
	then := f.diagnosis.then
	f.diagnosis.then, f.diagnosis.limit, f.diagnosis.next = nil, nil, nil
	if then != nil {
		then()
	}
}

// endBySignal ends the job by a signal. The first signal is forwarded after a diagnosis, unless
// the job is about to end for another reason.
func (f *frontEnd) endBySignal(sig syscall.Signal) {
	forward := func() { f.end(order{Kind: orderSignal, Signal: sig}) }
	trigger := TriggerSignal
	if sig == syscall.SIGQUIT {
		trigger = triggerQuit
	}
	ending := f.isEnding() || f.diagnosis.then != nil
	if f.signaled || ending && trigger != triggerQuit {
		f.resumeEnd()
		forward()
		return
	}
	f.signaled = true
	f.diagnose(trigger, forward)
}
