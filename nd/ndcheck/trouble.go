package ndcheck

// A program that has seen a failure may give up its objects in any state. Until it goes on, the checker does not report
// what the objects of the adapter are left with. Afterwards, only the objects that have failed are exempt: endpoints
// with hasFailed, and queues with trouble. The program goes on when a request succeeds that it has posted after the
// failure, or when it waits again for the same queue.

// fails notes that the program sees a failure. The caller holds checker.mu.
func (a *adapter) fails() { a.trouble = now() }

// fails notes that a wait of the program has failed. The caller holds checker.mu.
func (q *queue) fails() {
	q.adapter.fails()
	q.trouble = q.adapter.trouble
}

// waited notes the end of a wait.
func (q *queue) waited(err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	switch {
	case q.isClosing: // by the program, in another goroutine
	case err != nil:
		q.fails()
	case q.trouble != 0:
		if q.adapter.trouble == q.trouble {
			q.adapter.trouble = 0
		}
		q.trouble = 0
	}
}

// goesOn notes that the program takes the success of a request from the queue. The caller holds checker.mu.
func (q *queue) goesOn(r *request) {
	if r.posted > q.adapter.trouble {
		q.adapter.trouble = 0
	}
	if r.posted > q.trouble {
		q.trouble = 0
	}
}

// inTrouble reports whether the program may leave results in the queue. The caller holds checker.mu.
func (q *queue) inTrouble() bool { return q != nil && (q.trouble != 0 || q.adapter.trouble != 0) }

// inTrouble reports whether the program may give up the endpoint. The caller holds checker.mu.
func (ep *endpoint) inTrouble() bool {
	return ep.hasFailed || ep.adapter.trouble != 0 || ep.receiveQueue.inTrouble() || ep.initiatorQueue.inTrouble()
}
