package endpoint

import (
	"github.com/softnd/softnd/internal/panicking"
	"github.com/softnd/softnd/nd"
)

// postponed returns nil unless the calling goroutine panics. Then it returns [nd.Pending],
// and release is called a second later if the process still lives: the peers must not
// learn of the end, and fail, before the panic has been printed.
func (p *Provider) postponed(object string, release func() error) error {
	late := func() {
		if !p.waiters.IsClosed() { // else the arena may be gone, and what the object held with it
			_ = release()
		}
	}
	if !panicking.Postpone(late) {
		return nil
	}
	return &nd.OpError{Op: "close", Object: object, Status: nd.Pending, Detail: "the goroutine panics: the object is closed in a second if the process still runs"}
}
