package nd

// CountingEndpoint is an optional interface of endpoints that have counters. Use [StatsOf].
type CountingEndpoint interface {
	// Stats returns the counters of the endpoint. It may be called at any time, also after Close.
	Stats() EndpointStats
}

// CountingCompletionQueue is an optional interface of completion queues that have counters. Use
// [QueueStatsOf].
type CountingCompletionQueue interface {
	// Stats returns the counters of the queue. It may be called at any time, also after Close.
	Stats() CompletionQueueStats
}

// StatsOf returns the counters of an endpoint. ok is false if the endpoint has no counters.
func StatsOf(ep Endpoint) (stats EndpointStats, ok bool) {
	c, ok := ep.(CountingEndpoint)
	if ok {
		stats = c.Stats()
	}
	return stats, ok
}

// QueueStatsOf returns the counters of a completion queue. ok is false if the queue has no counters.
func QueueStatsOf(q CompletionQueue) (stats CompletionQueueStats, ok bool) {
	c, ok := q.(CountingCompletionQueue)
	if ok {
		stats = c.Stats()
	}
	return stats, ok
}

// EndpointStats are the counters of an endpoint since its creation. They are an extension: the model
// has no counters.
type EndpointStats struct {
	Number uint64 // number of the endpoint in its process
	State  string // such as "connected"
	Peer   string // the peer's endpoint and process; empty until the endpoint is connected

	RequestsPosted    uint64 // initiator requests, of all types
	RequestsCompleted uint64 // initiator requests that are complete
	RequestsImmediate uint64 // initiator requests that completed within the call that posted them
	ReceivesPosted    uint64 // receives posted, or taken from the shared receive queue
	ReceivesCompleted uint64 // receives that are complete
	PostsRefused      uint64 // posts that failed with [NoMoreEntries] because the queue was full
	AccessesRefused   uint64 // requests of either side that failed because of a token or a posted receive

	Fragments uint64 // parts of requests whose data the peer copies
	Retries   uint64 // unsuccessful attempts to run a waiting request
	Stalls    Stalls

	// Operations counts the results by type. It is nil unless the provider counts them.
	Operations *OperationStats `json:",omitempty"`
}

// Stalls counts the requests that had to wait, by the cause of the wait. A request that waits for two
// causes counts once for each.
type Stalls struct {
	Receive       uint64 // Sends that waited for a Receive of the peer: receiver not ready (RNR) in verbs
	SharedReceive uint64 // messages of the peer that waited for a receive in the shared receive queue
	Queue         uint64 // requests that waited for space in the queue to the peer
	Order         uint64 // requests that waited for Reads (ReadFence or the read limit), and Invalidates that waited for earlier requests
	Drain         uint64 // Invalidates that waited for the end of a copy in progress
}

// OperationStats counts the results of requests and receives by type.
type OperationStats struct {
	Send, Write, Read, Bind, Invalidate, FastRegister, Atomic, Receive OperationCount
}

// OperationCount counts the results of one type.
type OperationCount struct {
	Succeeded uint64
	Failed    uint64 // results with another status than [Success], [Canceled] included
	Bytes     uint64 // bytes that the successful requests transferred
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
	case RequestFetchAndAdd, RequestCompareAndSwap, RequestSwap:
		return &s.Atomic
	case RequestReceive, RequestReceiveAndInvalidate, RequestReceiveImmediate, RequestReceiveWriteImmediate:
		return &s.Receive
	}
	return nil
}

// CompletionQueueStats are the counters of a completion queue since its creation.
type CompletionQueueStats struct {
	Number  uint64 // number of the queue in its process
	Depth   int    // number of results that the queue can hold
	Queued  uint64 // results in the queue now
	Results uint64 // results added to the queue; a small message may bypass the queue, and is then not counted
	Polls   uint64 // checks for results by Poll, Wait and Notify, approximate
	Overrun bool   // a result was lost because the queue was full

	// Operations counts the results by type. It is nil unless the provider counts them.
	Operations *OperationStats `json:",omitempty"`
}
