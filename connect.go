package softnd

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"net/netip"
	"slices"

	"github.com/softnd/softnd/endpoint"
	"github.com/softnd/softnd/internal/statuspage"
	"github.com/softnd/softnd/nd"
)

// Connect makes an endpoint that is connected with one of the peer's, who
// calls Connect for this rank too; the n-th call here meets the n-th call
// there. Closing the endpoint ends the connection.
//
// One goroutine that connects with several peers does so in the order of
// their ranks, in every rank; then nobody waits in a circle.
//
// Errors: those of [nd.Adapter.CreateEndpoint]; [nd.InvalidParameter1] for a
// rank that is none, or this one; [nd.HostUnreachable] or
// [nd.ConnectionAborted] when the peer has died or left; [nd.Canceled].
func (j *Job) Connect(ctx context.Context, peer int, cfg nd.EndpointConfig) (nd.Endpoint, error) {
	if peer < 0 || peer >= j.Size() || peer == j.Rank() {
		return nil, &nd.OpError{Op: "connect", Object: fmt.Sprintf("rank %d", peer), Status: nd.InvalidParameter1,
			Detail: fmt.Sprintf("this is rank %d of %d", j.Rank(), j.Size()), Next: "connect to another rank"}
	}
	if err := j.usable("connect"); err != nil {
		return nil, err
	}
	ep, err := j.adapter.CreateEndpoint(ctx, cfg)
	if err != nil {
		return nil, err
	}
	if peer < j.Rank() {
		err = j.dial(ctx, peer, ep)
	} else {
		err = j.answer(ctx, peer, ep)
	}
	if err != nil {
		if id, ok := j.group.Member(peer); ok && (errors.Is(err, nd.HostUnreachable) || errors.Is(err, nd.ConnectionAborted) || errors.Is(err, nd.ConnectionRefused)) {
			j.member.RecordLostPeer(id)
		}
		return nil, errors.Join(fmt.Errorf("softnd: connect rank %d with rank %d: %w", j.Rank(), peer, err), ep.Close())
	}
	return ep, nil
}

// readLimit asks for as many Reads as the adapters grant: they reduce it.
const readLimit = math.MaxInt32

func (j *Job) dial(ctx context.Context, peer int, ep nd.Endpoint) error {
	id, ok := j.group.Member(peer)
	if !ok {
		return &nd.OpError{Op: "connect", Object: fmt.Sprintf("rank %d", peer), Status: nd.HostUnreachable, Detail: "the rank is not there"}
	}
	c, err := j.adapter.CreateConnector(ctx)
	if err != nil {
		return err
	}
	params := nd.ConnectParams{InboundReadLimit: readLimit, OutboundReadLimit: readLimit, PrivateData: binary.LittleEndian.AppendUint32(nil, uint32(j.Rank()))}
	if err = c.Connect(ctx, ep, netip.AddrPortFrom(endpoint.Address(id), port), params); err == nil {
		err = c.CompleteConnect(ctx)
	}
	if err != nil {
		return errors.Join(err, c.Close())
	}
	return nil
}

func (j *Job) answer(ctx context.Context, peer int, ep nd.Endpoint) error {
	id, ok := j.group.Member(peer)
	if !ok {
		return &nd.OpError{Op: "accept", Object: fmt.Sprintf("rank %d", peer), Status: nd.HostUnreachable, Detail: "the rank is not there"}
	}
	who, err := j.arena.Peer(id)
	if err != nil {
		return err
	}
	var c nd.Connector
	err = j.provider.WaitFor(ctx, statuspage.Call{Op: "accept", Object: fmt.Sprintf("rank %d", peer), Peer: id}, func() bool {
		j.sortRequests()
		c = j.requestFrom(peer)
		return c != nil || who.Gone()
	})
	switch {
	case err != nil:
		return canceled(ctx, err, "accept", fmt.Sprintf("rank %d", peer))
	case c == nil:
		return &nd.OpError{Op: "accept", Object: fmt.Sprintf("rank %d", peer), Status: nd.HostUnreachable, Detail: "the rank has died or left"}
	}
	if err := c.Accept(ctx, ep, nd.ConnectParams{InboundReadLimit: readLimit, OutboundReadLimit: readLimit}); err != nil {
		return errors.Join(err, c.Close())
	}
	return nil
}

// sortRequests takes all connection requests that have arrived, and keeps them
// by the rank that they come from.
func (j *Job) sortRequests() {
	now, cancel := context.WithCancel(context.Background())
	cancel() // do not wait
	for {
		c, err := j.adapter.CreateConnector(context.Background())
		if err != nil {
			return
		}
		if j.listener.GetConnectionRequest(now, c) != nil {
			c.Close()
			return
		}
		var b [4]byte
		if n, err := c.GetPrivateData(b[:]); err != nil || n != len(b) {
			c.Close() // not one of our ranks, or gone again
			continue
		}
		rank := int(binary.LittleEndian.Uint32(b[:]))
		if !j.comesFrom(c, rank) {
			c.Close()
			continue
		}
		j.keep(rank, c)
	}
}

// keep keeps a request of a rank, in place of those that the rank has given up.
func (j *Job) keep(rank int, c nd.Connector) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.waiting[rank] = append(slices.DeleteFunc(j.waiting[rank], givenUp), c)
}

// givenUp reports whether the side that has made a request has given it up, and closes it
// then: the other side keeps memory for it until this one has let go.
func givenUp(c nd.Connector) bool {
	if _, err := c.GetPrivateData(make([]byte, 4)); err == nil {
		return false
	}
	c.Close()
	return true
}

// comesFrom tells whether a request was made by the member that holds a rank.
func (j *Job) comesFrom(c nd.Connector, rank int) bool {
	if rank < 0 || rank >= j.Size() {
		return false
	}
	id, ok := j.group.Member(rank)
	addr, err := c.PeerAddress()
	return ok && err == nil && addr.Addr() == endpoint.Address(id)
}

// requestFrom takes the oldest request of a rank, nil if there is none.
func (j *Job) requestFrom(rank int) nd.Connector {
	j.mu.Lock()
	defer j.mu.Unlock()
	for len(j.waiting[rank]) > 0 {
		c := j.waiting[rank][0]
		j.waiting[rank] = j.waiting[rank][1:]
		if !givenUp(c) {
			return c
		}
	}
	return nil
}
