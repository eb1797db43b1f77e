package softnd

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	"github.com/softnd/softnd/endpoint"
	"github.com/softnd/softnd/nd"
)

// Listener accepts connections from ranks that call [Job.Dial]. Its methods may be called by any
// number of goroutines at once.
type Listener struct {
	job *Job
	nd  nd.Listener
}

// Listen returns a listener, to which other ranks connect with [Job.Dial]. Dial fails until Listen has
// returned. To make sure that no rank dials too early, call [Job.Barrier] in all ranks after Listen. A
// rank has one listener at a time.
//
// Errors: [nd.SharingViolation] if this rank has an open listener; [nd.InvalidHandle] if the job is
// closed; [nd.Canceled] if ctx has ended.
func (j *Job) Listen(ctx context.Context) (*Listener, error) {
	l, err := j.listen(ctx, dialPort)
	if err != nil {
		return nil, fmt.Errorf("softnd: listen: %w", err)
	}
	return &Listener{job: j, nd: l}, nil
}

// listen returns a listener at a port of this rank.
func (j *Job) listen(ctx context.Context, port uint16) (nd.Listener, error) {
	if err := j.usable("listen"); err != nil {
		return nil, err
	}
	l, err := j.adapter.CreateListener(ctx)
	if err != nil {
		return nil, err
	}
	if err = l.Bind(netip.AddrPortFrom(endpoint.Address(j.arena.Host(), j.member.ID()), port)); err == nil {
		err = l.Listen(0)
	}
	if err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

// Accept blocks until another rank calls [Job.Dial] with the number of this rank. It creates an
// endpoint, connects it to the endpoint of Dial, and returns it together with the number of the other
// rank. Several goroutines may call Accept; requests are accepted in the order of their arrival.
// Accept skips a request whose rank has given up or died.
//
// Errors: [nd.Canceled] if ctx ends or the listener is closed; those of [nd.Adapter.CreateEndpoint],
// after which Dial fails with [nd.ConnectionRefused].
func (l *Listener) Accept(ctx context.Context, cfg nd.EndpointConfig) (ep nd.Endpoint, peer int, err error) {
	for {
		peer, c, err := l.job.nextRequest(ctx, l.nd)
		if err != nil {
			return nil, 0, fmt.Errorf("softnd: accept: %w", err)
		}
		ep, err := l.job.adapter.CreateEndpoint(ctx, cfg)
		if err != nil {
			return nil, 0, errors.Join(err, c.Reject(nil), c.Close())
		}
		err = c.Accept(ctx, ep, nd.ConnectParams{InboundReadLimit: readLimit, OutboundReadLimit: readLimit})
		if err == nil {
			return ep, peer, nil
		}
		err = errors.Join(err, ep.Close(), c.Close())
		if ctx.Err() != nil || errors.Is(err, nd.Canceled) {
			return nil, 0, fmt.Errorf("softnd: accept rank %d: %w", peer, err)
		}
	}
}

// Close ends calls of Accept with [nd.Canceled], and refuses the requests that are waiting. Accepted
// connections stay open.
func (l *Listener) Close() error { return l.nd.Close() }

// Dial creates an endpoint, and connects it to an endpoint of rank peer. It blocks until rank peer has
// accepted the connection with [Listener.Accept]. To end the connection, close the endpoint.
//
// Errors (the endpoint is closed then):
//
//   - those of [nd.Adapter.CreateEndpoint].
//   - [nd.ConnectionRefused]: the peer has no listener, or has closed it, or its Accept has failed.
//   - [nd.InvalidParameter1]: peer is this rank, or not a rank of the job.
//   - [nd.HostUnreachable], [nd.ConnectionAborted]: the peer has died or left the job, or its host
//     cannot be reached.
//   - [nd.Canceled]: ctx has ended.
//   - [nd.InvalidHandle]: the job is closed.
func (j *Job) Dial(ctx context.Context, peer int, cfg nd.EndpointConfig) (nd.Endpoint, error) {
	return j.connectWith(ctx, "dial", peer, cfg, func(ep nd.Endpoint) error {
		return j.dial(ctx, peer, dialPort, ep)
	})
}
