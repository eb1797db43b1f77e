package softnd

import "github.com/softnd/softnd/nd"

// Stats are the counters of a rank. They can be encoded as JSON.
type Stats struct {
	Rank, Size int

	Endpoints        []nd.EndpointStats        // the open endpoints
	Closed           nd.EndpointStats          // sums of the closed endpoints
	ClosedEndpoints  int                       // number of the closed endpoints
	CompletionQueues []nd.CompletionQueueStats // those that open endpoints use
}

// Stats returns the counters of all endpoints and completion queues of this rank. [nd.StatsOf] and
// [nd.QueueStatsOf] return those of one object. The counters cost nothing until Stats is called, except
// those that [WithStats] adds.
//
// Stats takes the lock of each endpoint and queue for a moment. The next calls of the goroutines that use
// them are slower by some microseconds, so call it only a few times per second. Stats may be called
// after Close.
func (j *Job) Stats() Stats {
	s := j.provider.Stats()
	return Stats{Rank: j.Rank(), Size: j.Size(),
		Endpoints: s.Endpoints, Closed: s.Closed, ClosedEndpoints: s.ClosedEndpoints, CompletionQueues: s.CompletionQueues}
}
