package softnd

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/softnd/softnd/endpoint"
	"github.com/softnd/softnd/internal/meet/relayclient"
	"github.com/softnd/softnd/internal/statuspage"
	"github.com/softnd/softnd/nd"
)

// relayedLeaders makes collective calls through the relay of this host: the relays of all hosts match them. TWIN c/src/job/hostrelay.c.
type relayedLeaders struct{ job *Job }

// await waits for the answer to the latest message.
func (x relayedLeaders) await(ctx context.Context, op string) (a *relayclient.Answer, err error) {
	var failed error
	j := x.job
	limit := uint64(j.hosts.Count)*(j.maxPack()+8) + relayclient.MaxReason
	err = j.provider.WaitFor(ctx, statuspage.Call{Op: op, Round: j.group.Round()}, func() bool {
		a, failed = j.hosts.relay.Poll(limit)
		return a != nil || failed != nil
	})
	switch {
	case err != nil:
		return nil, endpoint.Canceled(ctx, err, op, "job")
	case failed != nil:
		return nil, &nd.OpError{Op: op, Object: "job", Status: nd.ConnectionAborted, Err: failed, Next: "start the job again"}
	}
	return a, nil
}

// exchange implements leaders.
func (x relayedLeaders) exchange(ctx context.Context, op string, kind callKind, blob []byte) ([][]byte, error) {
	j := x.job
	j.hosts.relay.Post(kind, 0, blob)
	a, err := x.await(ctx, op)
	if err != nil {
		return nil, err
	}
	return j.packsOf(a, op, kind)
}

// packsOf returns the packs of all hosts, or the error that an answer of the relay means.
func (j *Job) packsOf(a *relayclient.Answer, op string, kind callKind) ([][]byte, error) {
	host := int(a.Host)
	switch {
	case a.Outcome == relayclient.Met:
		return cutPacks(a.Bytes, j.hosts.Count)
	case host >= j.hosts.Count:
	case a.Outcome == relayclient.FailedAt:
		return nil, failedAt(op, host, nd.Status(a.Status), string(a.Bytes))
	case a.Outcome == relayclient.AnotherCall:
		theirs := callKind(a.Status)
		return nil, &nd.OpError{Op: op, Object: "job", Status: nd.InvalidDeviceState, Err: fmt.Errorf("the ranks of host %d call %v, those of this host %v", host, theirs, kind), Next: sameCalls}
	case a.Outcome == relayclient.TooLong:
		return nil, j.tooLong(fmt.Errorf("host %d passes more", host))
	case a.Outcome == relayclient.Lost:
		return nil, &nd.OpError{Op: "collective call", Object: fmt.Sprintf("host %d", host), Status: nd.ConnectionAborted,
			Detail: fmt.Sprintf("rank %d, the first of that host, has died or left, or the host is not reachable", j.hosts.Ranks(host)[0])}
	}
	return nil, &nd.OpError{Op: op, Object: "job", Status: nd.InternalError, Err: errors.New("the answer of the relay of this host is damaged")}
}

// failLimit is the time for which fail waits until all hosts know.
const failLimit = time.Second

// fail implements leaders.
func (x relayedLeaders) fail(cause error) {
	ctx, stop := context.WithTimeout(context.Background(), failLimit)
	defer stop()
	text := cause.Error()
	x.job.hosts.relay.Post(relayclient.Failed, uint32(nd.StatusOf(cause)), []byte(text[:min(len(text), relayclient.MaxReason)]))
	_, _ = x.await(ctx, "fail") // else Close could come before
}
