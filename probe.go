package softnd

import (
	"context"
	"errors"
	"net/netip"
	"time"

	"github.com/softnd/softnd/endpoint"
	"github.com/softnd/softnd/internal/statuspage"
	"github.com/softnd/softnd/nd"
)

// probeInterval is how long a rank waits for a request of a rank of another host before it checks that the rank has not
// left.
const probeInterval = time.Second

// waitForRemote is WaitFor for a request of a rank of another host. The memory of this host does not show whether that
// rank has left, so probe checks it again and again. The error is nd.HostUnreachable if the rank has left.
func (j *Job) waitForRemote(ctx context.Context, peer int, call statuspage.Call, ready func() bool) error {
	for {
		wait, stop := context.WithTimeout(ctx, probeInterval)
		err := j.provider.WaitFor(wait, call, ready)
		isOver := err == nil || wait.Err() == nil || ctx.Err() != nil
		stop()
		if isOver {
			return err
		}
		if err := j.probe(ctx, peer); errors.Is(err, nd.HostUnreachable) {
			return err
		}
	}
}

// probe sends a rank of another host a request to port 0, at which no process can listen. Its error is nd.ConnectionRefused if
// the process runs, and nd.HostUnreachable if it has left or there is no link to its host. The objects are not those of
// the program, so neither the checker nor Stats sees them.
func (j *Job) probe(ctx context.Context, peer int) (err error) {
	ctx, stop := context.WithTimeout(ctx, probeInterval)
	defer stop()
	to, ok := j.addressOf(peer)
	a, err := j.probeAdapter(ctx)
	if err != nil || !ok {
		return err
	}
	q, err := a.CreateCompletionQueue(ctx, 2)
	if err != nil {
		return err
	}
	defer q.Close()
	ep, err := a.CreateEndpoint(ctx, nd.EndpointConfig{ReceiveCQ: q, InitiatorCQ: q, ReceiveDepth: 1, InitiatorDepth: 1})
	if err != nil {
		return err
	}
	defer ep.Close()
	c, err := a.CreateConnector(ctx)
	if err != nil {
		return err
	}
	defer c.Close()
	return c.Connect(ctx, ep, netip.AddrPortFrom(to, 0), nd.ConnectParams{})
}

// probeAdapter returns the adapter of all probes of the job, which a member cannot open for each.
func (j *Job) probeAdapter(ctx context.Context) (a nd.Adapter, err error) {
	j.hosts.probes.Lock()
	defer j.hosts.probes.Unlock()
	if j.hosts.probes.adapter == nil {
		j.hosts.probes.adapter, err = j.openHidden(ctx)
	}
	return j.hosts.probes.adapter, err
}

// openHidden opens an adapter for calls that are not the program's.
func (j *Job) openHidden(ctx context.Context) (nd.Adapter, error) {
	id, err := j.provider.ResolveAddress(endpoint.Address(j.arena.Host(), j.member.ID()))
	if err != nil {
		return nil, err
	}
	a, err := j.provider.OpenAdapter(ctx, id)
	if err != nil {
		return nil, err
	}
	a.(interface{ Hide() }).Hide()
	return a, nil
}
