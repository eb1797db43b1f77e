package nd

// CountingEndpoint is implemented by endpoints that count their work. Use [StatsOf].
type CountingEndpoint interface {
	// Stats returns the counters of the endpoint. It may be called at any time, also after Close.
	Stats() EndpointStats
}

// CountingCompletionQueue is implemented by completion queues that count their results. Use
// [QueueStatsOf].
type CountingCompletionQueue interface {
	// Stats returns the counters of the queue. It may be called at any time, also after Close.
	Stats() CompletionQueueStats
}

// StatsOf returns the counters of an endpoint. It reports false if the provider has none.
func StatsOf(ep Endpoint) (stats EndpointStats, ok bool) {
	c, ok := ep.(CountingEndpoint)
	if ok {
		stats = c.Stats()
	}
	return stats, ok
}

// QueueStatsOf returns the counters of a completion queue. It reports false if the provider has none.
func QueueStatsOf(q CompletionQueue) (stats CompletionQueueStats, ok bool) {
	c, ok := q.(CountingCompletionQueue)
	if ok {
		stats = c.Stats()
	}
	return stats, ok
}

// EndpointStats are the counters of an endpoint since its creation. The model has no counters; these
// are an extension.
type EndpointStats struct {
	Number uint64 // of the endpoint in its process
	State  string // such as "connected"
	Peer   string // the peer's endpoint and process; empty before the connection

	RequestsPosted    uint64 // requests of the initiator queue, of all types
	RequestsCompleted uint64 // of those, requests with a final status
	RequestsImmediate uint64 // of those, requests that completed within the call that posted them
	ReceivesPosted    uint64 // or taken from the shared receive queue
	ReceivesCompleted uint64 // of those, receives with a final status
	PostsRefused      uint64 // posts that failed with [NoMoreEntries] because the queue was full
	AccessesRefused   uint64 // requests of this side or the peer that failed because of a token or a posted receive

	Fragments uint64 // parts of requests that the peer was asked to copy
	Retries   uint64 // unsuccessful attempts to run a waiting request
	Stalls    Stalls

	// Operations counts the results by type. It is nil unless the provider counts them.
	Operations *OperationStats `json:",omitempty"`
}

// Stalls counts the requests that had to wait, by what they waited for. A request that waits for
// two causes counts once for each.
type Stalls struct {
	Receive       uint64 // Sends for which the peer had no receive posted: receiver not ready (RNR) in verbs
	SharedReceive uint64 // messages of the peer for which the shared receive queue was empty
	Queue         uint64 // requests for which the path to the peer was full
	Order         uint64 // requests behind Reads in flight, because of a fence or the read limit, and Invalidates behind requests in flight
	Drain         uint64 // Invalidates that waited for the end of an access in progress
}

// OperationStats counts the results of requests and receives by type.
type OperationStats struct {
	Send, Write, Read, Bind, Invalidate, FastRegister, Receive OperationCount
}

// OperationCount counts the results of one type.
type OperationCount struct {
	Succeeded uint64
	Failed    uint64 // with another status than [Success]; [Canceled] counts
	Bytes     uint64 // that the successful ones transferred
}

// Of returns the count of a request type, and nil for an unknown type.
func (s *OperationStats) Of(t RequestType) *OperationCount {
	switch t {
	case RequestSend:
		return &s.Send
	case RequestWrite:
		return &s.Write
	case RequestRead:
		return &s.Read
	case RequestBind:
		return &s.Bind
	case RequestInvalidate:
		return &s.Invalidate
	case RequestFastRegister:
		return &s.FastRegister
	case RequestReceive, RequestReceiveAndInvalidate:
		return &s.Receive
	}
	return nil
}

// CompletionQueueStats are the counters of a completion queue since its creation.
type CompletionQueueStats struct {
	Number  uint64 // of the queue in its process
	Depth   int    // results that the queue can hold
	Queued  uint64 // results in the queue now
	Results uint64 // results added to the queue; a message that a poll takes from the ring bypasses it
	Polls   uint64 // calls that took or waited for results, approximate
	Overrun bool   // a result was lost because the queue was full

	// Operations counts the results by type. It is nil unless the provider counts them.
	Operations *OperationStats `json:",omitempty"`
}
