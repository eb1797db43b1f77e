package softnd

import "github.com/softnd/softnd/nd"

// Stats has the counters of a rank. It can be encoded as JSON.
type Stats struct {
	Rank, Size int

	Endpoints        []nd.EndpointStats        // of the open endpoints
	Closed           nd.EndpointStats          // sums over the closed endpoints
	ClosedEndpoints  int                       // number of closed endpoints
	CompletionQueues []nd.CompletionQueueStats // of the completion queues that open endpoints use
}

// Stats returns the counters of all endpoints and completion queues of this rank. For the counters of
// one object, call [nd.StatsOf] or [nd.QueueStatsOf]. The counters do not slow requests down, except
// those that [WithStats] adds.
//
// Stats takes the lock of each endpoint and queue for a moment. After that, the next call on the
// endpoint or queue is slower by some microseconds. Call Stats only a few times per second. Stats may
// be called after Close.
func (j *Job) Stats() Stats {
	s := j.provider.Stats()
	return Stats{Rank: j.Rank(), Size: j.Size(),
		Endpoints: s.Endpoints, Closed: s.Closed, ClosedEndpoints: s.ClosedEndpoints, CompletionQueues: s.CompletionQueues}
}
