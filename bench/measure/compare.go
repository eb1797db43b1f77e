package measure

import "runtime"

// Names of limits in reports.
const (
	RawLine        = "raw_line"        // half round trip of a cache line
	RawRoundTrip   = "raw_round_trip"  // whole round trip of a cache line
	RawLineNoise   = "raw_line_noise"  // p99.9 of a cache line's half round trip beside allocations, to that without
	LockedExchange = "locked_exchange" // atomic exchange that no other thread contends for
	RawSwitch      = "raw_switch"      // handing over a core to another process
	Memcpy         = "memcpy"          // copy of the size
)

// AgainstRawLine compares a time with the half round trip of a cache line.
func (l *Loop) AgainstRawLine() {
	l.LimitName, l.LimitUnit = RawLine, "ns"
	l.Limit = func(line float64) (float64, error) { return line, nil }
}

// AgainstRawLineRate compares a rate with one operation for each half round trip
// of a cache line.
func (l *Loop) AgainstRawLineRate() {
	l.LimitName, l.LimitUnit = RawLine, l.Result.Unit
	l.Limit = func(line float64) (float64, error) { return 1e9 / line, nil }
}

// AgainstRawRoundTrip compares a time with the round trip of a cache line.
func (l *Loop) AgainstRawRoundTrip() {
	l.LimitName, l.LimitUnit = RawRoundTrip, "ns"
	l.Limit = func(line float64) (float64, error) { return 2 * line, nil }
}

// AgainstExchange compares a time with that of an atomic exchange.
func (l *Loop) AgainstExchange(w *World) {
	l.LimitName, l.LimitUnit = LockedExchange, "ns"
	l.Limit = func(float64) (float64, error) { return w.Limits.Exchange() }
}

// AgainstMeeting compares a time in which all ranks have had their turn: with a
// cache line where each has a core, with the handing over of a core where there
// are more ranks than cores. Nothing is compared where more than two ranks have a
// core each.
func (l *Loop) AgainstMeeting(w *World) {
	switch ranks := w.Job.Size(); {
	case ranks > runtime.NumCPU():
		l.LimitName, l.LimitUnit = RawSwitch, "ns"
		l.Limit = func(float64) (float64, error) { return w.Limits.Switch() }
	case ranks == 2:
		l.AgainstRawLine()
	}
}

// AgainstMemcpy compares a time with that of a copy of n bytes.
func (l *Loop) AgainstMemcpy(w *World, n int) {
	l.LimitName, l.LimitUnit = Memcpy, "ns"
	l.Limit = func(float64) (float64, error) { return w.Limits.Memcpy(n) }
}

// AgainstMemcpyBandwidth compares a bandwidth with that of copies of n bytes.
func (l *Loop) AgainstMemcpyBandwidth(w *World, n int) {
	l.LimitName, l.LimitUnit = Memcpy, "MB/s"
	l.Limit = func(float64) (float64, error) {
		ns, err := w.Limits.Memcpy(n)
		return float64(n) / ns * 1e3, err
	}
}
