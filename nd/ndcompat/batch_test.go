package ndcompat

import (
	"testing"
	"time"

	"github.com/softnd/softnd/nd"
)

// slowEndpoint is an endpoint whose Writes take a while. It counts the requests that nothing has started yet.
type slowEndpoint struct {
	nd.Endpoint
	posting, proceed chan struct{}
	delayed          int
}

func (ep *slowEndpoint) Write(_ uint64, _ nd.SGL, _ uint64, _ nd.Token, flags nd.OpFlags) error {
	close(ep.posting)
	<-ep.proceed
	if flags.Has(nd.Defer) {
		ep.delayed++
	}
	return nil
}

func (ep *slowEndpoint) Send(_ uint64, _ nd.SGL, flags nd.OpFlags) error {
	if flags&unknownOpFlag != 0 {
		ep.delayed = 0
		return nd.InvalidParameter
	}
	return nil
}

// SubmitRequestBatch also starts a request whose post has begun before it.
func TestSubmitStartsPostsInProgress(t *testing.T) {
	ep := &slowEndpoint{posting: make(chan struct{}), proceed: make(chan struct{})}
	b := &Batch{Endpoint: ep}
	b.StartRequestBatch()
	posted, submitted := make(chan struct{}), make(chan struct{})
	go func() { _ = b.Write(0, nd.SGL{}, 0, 0, 0); close(posted) }()
	<-ep.posting
	go func() { b.SubmitRequestBatch(); close(submitted) }()
	select {
	case <-submitted: // it has not waited for the post
	case <-time.After(50 * time.Millisecond):
	}
	close(ep.proceed)
	<-posted
	<-submitted
	if ep.delayed != 0 {
		t.Errorf("%d requests are still delayed", ep.delayed)
	}
}
