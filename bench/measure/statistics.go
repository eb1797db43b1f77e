package measure

import "time"

// nsPerOp returns the time of one of n operations.
func nsPerOp(elapsed time.Duration, n int) float64 {
	return float64(elapsed.Nanoseconds()) / float64(n)
}

// perSecond returns the rate of n operations.
func perSecond(elapsed time.Duration, n int) float64 { return float64(n) / elapsed.Seconds() }

// mbPerSecond returns the bandwidth of n operations of size bytes. A MB is 1e6 bytes.
func mbPerSecond(elapsed time.Duration, n, size int) float64 {
	return float64(n) * float64(size) / elapsed.Seconds() / 1e6
}
