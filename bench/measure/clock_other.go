//go:build !amd64

package measure

import "time"

var clockStart = time.Now()

// ticks are nanoseconds of the monotonic clock.
func ticks() uint64 { return uint64(time.Since(clockStart)) }
