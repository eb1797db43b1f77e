package measure

import (
	"runtime"

	"github.com/softnd/softnd/nd"
)

// Names of limits in reports.
const (
	rawLineLimit        = "raw_line"        // half round trip of a cache line
	rawRoundTripLimit   = "raw_round_trip"  // whole round trip of a cache line
	rawLineNoiseLimit   = "raw_line_noise"  // p99.9 of a cache line's half round trip beside allocations, to that without
	lockedExchangeLimit = "locked_exchange" // atomic exchange that no other thread contends for
	rawSwitchLimit      = "raw_switch"      // switch of a core to another process
	memcpyLimit         = "memcpy"          // copy of the size
	tcpHalfTripLimit    = "tcp_half_trip"   // half round trip of the size over TCP, by blocking calls
	tcpRoundTripLimit   = "tcp_round_trip"  // a short request, and an answer of the size
	tcpStreamLimit      = "tcp_stream"      // stream with a write(2) of the size for each operation
)

// againstRawLine compares a time with the half round trip of a cache line.
func (l *loop) againstRawLine() {
	l.limitName, l.limitUnit = rawLineLimit, "ns"
	l.limit = func(line float64) (float64, error) { return line, nil }
}

// againstRawLineRate compares a rate with one operation for each half round trip
// of a cache line.
func (l *loop) againstRawLineRate() {
	l.limitName, l.limitUnit = rawLineLimit, l.result.Unit
	l.limit = func(line float64) (float64, error) { return 1e9 / line, nil }
}

// againstRawRoundTrip compares a time with the round trip of a cache line.
func (l *loop) againstRawRoundTrip() {
	l.limitName, l.limitUnit = rawRoundTripLimit, "ns"
	l.limit = func(line float64) (float64, error) { return 2 * line, nil }
}

// againstExchange compares a time of rank 0 alone with that of an atomic exchange, which a shared core does not slow down.
func (l *loop) againstExchange(w *World) {
	l.limitName, l.limitUnit = lockedExchangeLimit, "ns"
	l.limit = func(float64) (float64, error) { return w.machine().exchange() }
	if w.crew == nil {
		l.width = w.limits.width
	}
}

// againstMeeting sets the limit of an operation of all ranks. If each of two ranks has a core, the limit is a cache line.
// If there are more ranks than cores, it is the switch of a core. If more than two ranks have a core each, there is no
// limit.
func (l *loop) againstMeeting(w *World) {
	switch ranks := w.Job.Size(); {
	case ranks > runtime.NumCPU():
		l.limitName, l.limitUnit = rawSwitchLimit, "ns"
		l.limit = func(float64) (float64, error) { return w.limits.rawSwitch() }
	case ranks == 2:
		l.againstRawLine()
	}
}

// againstMemcpy compares a time with that of a copy of n bytes.
func (l *loop) againstMemcpy(w *World, n int) {
	l.limitName, l.limitUnit = memcpyLimit, "ns"
	l.limit = func(float64) (float64, error) { return w.machine().memcpy(n) }
}

// againstMemcpyBandwidth compares a bandwidth with that of copies of n bytes.
func (l *loop) againstMemcpyBandwidth(w *World, n int) {
	l.limitName, l.limitUnit = memcpyLimit, "MB/s"
	l.limit = func(float64) (float64, error) {
		ns, err := w.machine().memcpy(n)
		return float64(n) / ns * 1e3, err
	}
}

// againstTrip compares a latency between hosts with that of the same bytes over TCP. A Read has a short request.
func (l *loop) againstTrip(x *wire, kind nd.RequestType, size int) {
	const request = 8
	l.limitName, l.limitUnit = tcpHalfTripLimit, "ns"
	l.limit = func(float64) (float64, error) {
		trip, err := x.trip(size, size)
		return trip / 2, err
	}
	if kind == nd.RequestRead {
		l.limitName = tcpRoundTripLimit
		l.limit = func(float64) (float64, error) { return x.trip(request, size) }
	}
}

// againstStream compares a rate between hosts with that of a stream over TCP. figure converts the time of one operation.
func (l *loop) againstStream(x *wire, size int, figure func(ns float64, size int) float64) {
	l.limitName, l.limitUnit = tcpStreamLimit, l.result.Unit
	l.limit = func(float64) (float64, error) {
		ns, err := x.stream(size)
		return figure(ns, size), err
	}
}
