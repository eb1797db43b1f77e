package endpoint

import (
	"github.com/softnd/softnd/internal/goruntime"
	"github.com/softnd/softnd/nd"
)

// postponed returns nil unless the calling goroutine panics. If it panics, postponed returns
// [nd.Pending], and calls release a second later if the process still runs. The peers must not
// learn of the close, and fail, before the panic is printed.
func (p *Provider) postponed(object string, release func() error) error {
	late := func() {
		if !p.waiters.IsClosed() { // otherwise the arena and the object's memory may be unmapped
			_ = release()
		}
	}
	if !goruntime.PostponeIfPanicking(late) {
		return nil
	}
	return &nd.OpError{Op: "close", Object: object, Status: nd.Pending, Detail: "the goroutine panics: the object is closed in a second if the process still runs"}
}
