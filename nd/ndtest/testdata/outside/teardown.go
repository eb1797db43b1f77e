package tiny

import (
	"context"
	"slices"

	"github.com/softnd/softnd/nd"
)

// fail aborts the connection at both sides.
func (e *endpoint) fail(mine, theirs nd.Status) {
	if e.state == failed {
		return
	}
	e.end(failed, mine)
	if e.peer != nil && e.peer.state != failed && !e.peer.isDisconnected() {
		e.peer.end(failed, theirs)
	}
}

// isDisconnected reports whether both sides have disconnected gracefully.
func (e *endpoint) isDisconnected() bool {
	return e.state == disconnected && e.connector.phase == ended
}

// end makes the endpoint unusable.
func (e *endpoint) end(to state, why nd.Status) {
	if e.state != disconnected {
		e.state = to
	}
	e.setEnded(why)
	for _, w := range e.windows {
		w.end()
	}
	if c := e.connector; c != nil && to == failed && c.phase != ended {
		c.peerEnded, c.phase = true, aborted
	}
	e.flush()
}

// flush completes all outstanding requests.
func (e *endpoint) flush() {
	requests, receives := e.requests, e.receives
	e.requests, e.receives = nil, nil
	for _, r := range slices.Concat(requests, receives) {
		e.complete(r, nd.Result{Status: nd.Canceled})
	}
}

func (e *endpoint) Flush(context.Context) error { // it never waits
	defer e.adapter.lock()()
	if e.released {
		return refuse("flush", nd.InvalidHandle, "the endpoint is closed")
	}
	e.fail(nd.Canceled, nd.ConnectionAborted)
	return nil
}

func (e *endpoint) Close() error {
	defer e.adapter.lock()()
	if e.released {
		return nil
	}
	e.released = true
	e.fail(nd.Canceled, nd.ConnectionAborted)
	for _, q := range []*queue{e.receiving, e.initiating} {
		q.users = slices.DeleteFunc(q.users, func(user *endpoint) bool { return user == e })
	}
	return nil
}
