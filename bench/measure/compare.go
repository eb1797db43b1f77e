package measure

// Names of limits in reports.
const (
	RawLine      = "raw_line"       // half round trip of a cache line
	RawRoundTrip = "raw_round_trip" // whole round trip of a cache line
	RawLineNoise = "raw_line_noise" // p99.9 of a cache line's half round trip beside allocations, to that without
	Memcpy       = "memcpy"         // copy of the size
)

// AgainstRawLine compares a time with the half round trip of a cache line.
func (l *Loop) AgainstRawLine(w *World) {
	l.LimitName, l.LimitUnit, l.Limit = RawLine, "ns", w.RawLineNs
}

// AgainstRawRoundTrip compares a time with the round trip of a cache line.
func (l *Loop) AgainstRawRoundTrip(w *World) {
	l.LimitName, l.LimitUnit = RawRoundTrip, "ns"
	l.Limit = func() (float64, error) {
		half, err := w.RawLineNs()
		return 2 * half, err
	}
}

// AgainstMemcpy compares a time with that of a copy of n bytes.
func (l *Loop) AgainstMemcpy(w *World, n int) {
	l.LimitName, l.LimitUnit = Memcpy, "ns"
	l.Limit = func() (float64, error) { return w.MemcpyNs(n) }
}

// AgainstMemcpyBandwidth compares a bandwidth with that of copies of n bytes.
func (l *Loop) AgainstMemcpyBandwidth(w *World, n int) {
	l.LimitName, l.LimitUnit = Memcpy, "MB/s"
	l.Limit = func() (float64, error) {
		ns, err := w.MemcpyNs(n)
		if err != nil || ns == 0 { // 0 on rank 1, who only takes part
			return 0, err
		}
		return float64(n) / ns * 1e3, nil
	}
}
