package measure

import "time"

// NsPerOp is the time of one of n operations.
func NsPerOp(elapsed time.Duration, n int) float64 {
	return float64(elapsed.Nanoseconds()) / float64(n)
}

// PerSecond is the rate of n operations.
func PerSecond(elapsed time.Duration, n int) float64 { return float64(n) / elapsed.Seconds() }

// MBPerSecond is the bandwidth of n operations of size bytes; MB is 1e6 bytes.
func MBPerSecond(elapsed time.Duration, n, size int) float64 {
	return float64(n) * float64(size) / elapsed.Seconds() / 1e6
}
