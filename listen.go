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

// Listen makes this rank reachable by [Job.Dial] of other ranks. Dial fails until Listen has
// returned. To make sure that it has, call [Job.Barrier] in all ranks after Listen. A rank has one
// listener at a time.
//
// Errors: [nd.SharingViolation] if this rank has an open listener; [nd.InvalidHandle] after the
// job's Close; [nd.Canceled] if ctx has ended.
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
	if err = l.Bind(netip.AddrPortFrom(endpoint.Address(j.member.ID()), port)); err == nil {
		err = l.Listen(0)
	}
	if err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

// Accept waits for a rank that calls [Job.Dial] for this one, and returns a new endpoint that is
// connected with that rank's, and the rank. Calls of several goroutines are served in the order of
// the requests. Accept skips a request whose rank has given up or died.
//
// Errors: those of [nd.Adapter.CreateEndpoint], after which the request is refused; [nd.Canceled]
// if ctx ends or the listener is closed.
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

// Close ends calls of Accept with [nd.Canceled] and refuses the requests that are waiting.
// Connections that were accepted stay.
func (l *Listener) Close() error { return l.nd.Close() }

// Dial creates an endpoint and connects it with one that rank peer accepts with [Listener.Accept].
// It blocks until the peer has accepted. Closing the endpoint ends the connection.
//
// Errors: those of [nd.Adapter.CreateEndpoint]; [nd.ConnectionRefused] if the peer has no listener,
// or closes it; [nd.InvalidParameter1] if peer is this rank, or no rank of the job;
// [nd.HostUnreachable] or [nd.ConnectionAborted] if the peer has died or left the job;
// [nd.Canceled] if ctx ends; [nd.InvalidHandle] after Close. No endpoint is left then.
func (j *Job) Dial(ctx context.Context, peer int, cfg nd.EndpointConfig) (nd.Endpoint, error) {
	return j.connectWith(ctx, "dial", peer, cfg, func(ep nd.Endpoint) error {
		return j.dial(ctx, peer, dialPort, ep)
	})
}
