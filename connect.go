package softnd

// TWIN c/src/job/connect.c.

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"net/netip"
	"slices"
	"strings"

	"github.com/softnd/softnd/endpoint"
	"github.com/softnd/softnd/internal/statuspage"
	"github.com/softnd/softnd/nd"
	"github.com/softnd/softnd/shm"
)

// Connect creates an endpoint, and connects it to an endpoint of rank peer. Rank peer must call
// Connect with the number of this rank. If two ranks connect several times, the n-th call of one rank
// is connected to the n-th call of the other. To end the connection, close the endpoint.
//
// To connect to several ranks, call [Job.ConnectRanks] or [Job.ConnectAll]. If ranks call Connect for one
// peer after the other, each in an order of its own, they may wait for each other in a circle until a
// context ends. If only one of two ranks knows in advance that they are to be connected, use [Job.Listen]
// and [Job.Dial].
//
// Errors (the endpoint is closed then):
//
//   - those of [nd.Adapter.CreateEndpoint].
//   - [nd.InvalidParameter]: peer is this rank, or not a rank of the job.
//   - [nd.HostUnreachable], [nd.ConnectionAborted]: the peer has died or left the job, or its host
//     cannot be reached.
//   - [nd.Canceled]: ctx has ended.
//   - [nd.InvalidHandle]: the job is closed.
func (j *Job) Connect(ctx context.Context, peer int, cfg nd.EndpointConfig) (nd.Endpoint, error) {
	return j.connectWith(ctx, "connect", peer, cfg, func(ep nd.Endpoint) error {
		defer j.noteWait(peer)()
		if peer > j.Rank() {
			return j.explainTimeout(j.answer(ctx, peer, ep), peer)
		}
		err := j.explainTimeout(j.dial(ctx, peer, connectPort, ep), peer)
		if errors.Is(err, nd.ConnectionRefused) { // every rank listens at this port
			j.blame(peer)
		}
		if errors.Is(err, nd.HostUnreachable) && !j.isRemote(peer) {
			if who, unknown := j.processOf(peer); unknown == nil && who.Gone() {
				return hasLeft("connect", peer)
			}
		}
		return err
	})
}

// explainTimeout adds to the error of a connect whose context has passed its deadline how to connect with several ranks, because the ranks may
// wait for each other in a circle.
func (j *Job) explainTimeout(err error, peer int) error {
	var e *nd.OpError
	if !errors.Is(err, context.DeadlineExceeded) || !errors.As(err, &e) {
		return err
	}
	if rank, ok := j.waitsToo(peer); ok {
		e.Detail = strings.TrimPrefix(fmt.Sprintf("%s, and rank %d waits for this rank", e.Detail, rank), ", and ")
	}
	e.Next = fmt.Sprintf("rank %d must connect with rank %d, too; to connect with several ranks, call ConnectRanks in each, so that they do not wait in a circle", peer, j.Rank())
	return err
}

// waitsToo returns a rank, other than but, that waits until this rank connects with it.
func (j *Job) waitsToo(but int) (rank int, ok bool) {
	j.sortRequests()
	j.mu.Lock()
	defer j.mu.Unlock()
	for rank, requests := range j.waiting {
		if rank != but && slices.ContainsFunc(requests, isRequested) {
			return rank, true
		}
	}
	return 0, false
}

// hasLeft returns the error of a call that needs a rank of this host that is gone.
func hasLeft(op string, rank int) error {
	return &nd.OpError{Op: op, Object: fmt.Sprintf("rank %d", rank), Status: nd.HostUnreachable, Detail: "the rank has died or left"}
}

// blame records that a call failed because of rank peer.
func (j *Job) blame(peer int) {
	if id, ok := j.memberOf(peer); ok {
		j.member.RecordLostPeer(id)
	}
}

// checkPeer returns an error of op unless peer is another rank of the job.
func (j *Job) checkPeer(op string, peer int) error {
	if peer >= 0 && peer < j.Size() && peer != j.Rank() {
		return nil
	}
	return &nd.OpError{Op: op, Object: fmt.Sprintf("rank %d", peer), Status: nd.InvalidParameter, Field: "peer",
		Detail: fmt.Sprintf("this is rank %d, and the job has ranks 0 to %d", j.Rank(), j.Size()-1), Next: "connect to another rank"}
}

// connectWith creates an endpoint for op and connects it with one of peer by calling connect.
func (j *Job) connectWith(ctx context.Context, op string, peer int, cfg nd.EndpointConfig, connect func(nd.Endpoint) error) (nd.Endpoint, error) {
	if err := j.checkPeer(op, peer); err != nil {
		return nil, err
	}
	if err := j.usable(op); err != nil {
		return nil, err
	}
	ep, err := j.adapter.CreateEndpoint(ctx, cfg)
	if err != nil {
		return nil, err
	}
	if err := connect(ep); err != nil {
		if errors.Is(err, nd.HostUnreachable) || errors.Is(err, nd.ConnectionAborted) {
			j.blame(peer)
		}
		return nil, errors.Join(fmt.Errorf("softnd: %s to rank %d from rank %d: %w", op, peer, j.Rank(), err), ep.Close())
	}
	return ep, nil
}

// ConnectAll connects this rank to every other rank, and returns the endpoints, indexed by rank. The
// element of this rank is nil. It is [Job.ConnectRanks] with all other ranks.
func (j *Job) ConnectAll(ctx context.Context, cfg nd.EndpointConfig) ([]nd.Endpoint, error) {
	peers := make([]int, 0, j.Size())
	for peer := range j.Size() {
		if peer != j.Rank() {
			peers = append(peers, peer)
		}
	}
	endpoints, err := j.ConnectRanks(ctx, peers, cfg)
	if err != nil {
		return nil, err
	}
	return slices.Insert(endpoints, j.Rank(), nd.Endpoint(nil)), nil
}

// ConnectRanks connects this rank to each of peers, and returns the endpoints in the order of peers. Each of
// these ranks must call ConnectRanks, too, with this rank among its peers, or ConnectAll. The order of peers
// does not matter: the ranks do not deadlock, unless one of them calls [Job.Connect] meanwhile. A rank that is in
// peers twice gets two connections, if this rank is twice in the list of that rank.
//
// Each endpoint has the configuration cfg, except that its Context is the number of the peer's rank. The
// completion queues of cfg need room for the results of all endpoints.
//
// If ConnectRanks fails, end the process or close the job. Otherwise ranks that are not yet connected to
// this rank keep waiting for it until their ctx ends.
//
// Errors: those of Connect. All endpoints are closed then. ConnectRanks checks all of peers before it connects to the first.
func (j *Job) ConnectRanks(ctx context.Context, peers []int, cfg nd.EndpointConfig) ([]nd.Endpoint, error) {
	if err := j.usable("connect"); err != nil {
		return nil, err
	}
	for _, peer := range peers {
		if err := j.checkPeer("connect", peer); err != nil {
			return nil, err
		}
	}
	order := make([]int, len(peers)) // ascending: the lowest rank with a missing connection and its lowest such peer always wait for each other
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(peers[a], peers[b]) })
	endpoints := make([]nd.Endpoint, len(peers))
	for _, i := range order {
		var err error
		cfg.Context = uint64(peers[i])
		if endpoints[i], err = j.Connect(ctx, peers[i], cfg); err != nil {
			for _, ep := range endpoints {
				if ep != nil {
					err = errors.Join(err, ep.Close())
				}
			}
			return nil, err
		}
	}
	return endpoints, nil
}

// readLimit asks for as many concurrent Reads as the adapters allow.
const readLimit = math.MaxInt32

// dial connects ep with the peer's listener at port.
func (j *Job) dial(ctx context.Context, peer int, port uint16, ep nd.Endpoint) error {
	address, ok := j.addressOf(peer)
	if !ok {
		return &nd.OpError{Op: "connect", Object: fmt.Sprintf("rank %d", peer), Status: nd.HostUnreachable, Detail: "the rank has not joined the job", Next: "connect after Init has returned in both ranks"}
	}
	c, err := j.adapter.CreateConnector(ctx)
	if err != nil {
		return err
	}
	params := nd.ConnectParams{InboundReadLimit: readLimit, OutboundReadLimit: readLimit, PrivateData: binary.LittleEndian.AppendUint32(nil, uint32(j.Rank()))}
	if err = c.Connect(ctx, ep, netip.AddrPortFrom(address, port), params); err == nil {
		err = c.CompleteConnect(ctx)
	}
	if err != nil {
		return errors.Join(err, c.Close())
	}
	return nil
}

// answer waits for the peer's request and accepts it with ep.
func (j *Job) answer(ctx context.Context, peer int, ep nd.Endpoint) error {
	call := statuspage.Call{Op: "accept", Object: fmt.Sprintf("rank %d", peer)}
	who, err := j.processOf(peer)
	if err != nil {
		return err
	}
	if !j.isRemote(peer) {
		call.Peer = who.ID()
	}
	var c nd.Connector
	isOver := func() bool {
		c = j.requestFrom(peer)
		return c != nil || who.Gone()
	}
	if j.isRemote(peer) {
		err = j.waitForRemote(ctx, peer, call, isOver)
	} else {
		err = j.provider.WaitFor(ctx, call, isOver)
	}
	switch {
	case errors.Is(err, nd.HostUnreachable):
		return err
	case err != nil:
		return endpoint.Canceled(ctx, err, "accept", call.Object)
	case c == nil && j.isRemote(peer):
		return &nd.OpError{Op: "accept", Object: call.Object, Status: nd.HostUnreachable, Detail: "the relay of this host has died"}
	case c == nil:
		return hasLeft("accept", peer)
	}
	if err := c.Accept(ctx, ep, nd.ConnectParams{InboundReadLimit: readLimit, OutboundReadLimit: readLimit}); err != nil {
		return errors.Join(err, c.Close())
	}
	return nil
}

// processOf returns the process without which a rank cannot connect: its own, or this host's relay.
func (j *Job) processOf(rank int) (*shm.Peer, error) {
	if j.isRemote(rank) {
		relay, err := j.arena.Relay()
		if err != nil {
			return nil, &nd.OpError{Op: "accept", Object: fmt.Sprintf("rank %d", rank), Status: nd.HostUnreachable, Err: err, Detail: "this host has no relay"}
		}
		return relay, nil
	}
	id, ok := j.memberOf(rank)
	if !ok {
		return nil, &nd.OpError{Op: "accept", Object: fmt.Sprintf("rank %d", rank), Status: nd.HostUnreachable, Detail: "the rank has not joined the job", Next: "connect after Init has returned in both ranks"}
	}
	return j.arena.Peer(id)
}

// sortRequests takes all connection requests that have arrived, and keeps them by the rank that
// made them.
func (j *Job) sortRequests() {
	now, cancel := context.WithCancel(context.Background())
	cancel() // so that nextRequest does not wait
	for {
		rank, c, err := j.nextRequest(now, j.listener)
		if err != nil {
			return
		}
		j.keep(rank, c)
	}
}

// nextRequest waits for a connection request of another rank, and returns it with that rank. It
// closes requests of others.
func (j *Job) nextRequest(ctx context.Context, l nd.Listener) (rank int, c nd.Connector, err error) {
	for {
		if c, err = j.adapter.CreateConnector(context.WithoutCancel(ctx)); err != nil {
			return 0, nil, err
		}
		if err = l.GetConnectionRequest(ctx, c); err != nil {
			return 0, nil, errors.Join(err, c.Close())
		}
		var b [4]byte
		if n, err := c.GetPrivateData(b[:]); err == nil && n == len(b) {
			if rank = int(binary.LittleEndian.Uint32(b[:])); j.comesFrom(c, rank) {
				return rank, c, nil
			}
		}
		c.Close() // the request is not from a rank, or has been given up
	}
}

// keep keeps a request of a rank, in place of those that the rank has given up.
func (j *Job) keep(rank int, c nd.Connector) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.waiting[rank] = append(slices.DeleteFunc(j.waiting[rank], closeIfWithdrawn), c)
}

// closeIfWithdrawn reports whether the peer has given a request up, and closes the request then: the peer
// keeps memory for it until this process closes it.
func closeIfWithdrawn(c nd.Connector) bool {
	if isRequested(c) {
		return false
	}
	c.Close()
	return true
}

// isRequested reports whether the peer waits for an answer to a request.
func isRequested(c nd.Connector) bool {
	_, err := c.GetPrivateData(make([]byte, 4))
	return err == nil
}

// comesFrom reports whether a request that names a rank comes from the address of that rank.
func (j *Job) comesFrom(c nd.Connector, rank int) bool {
	if rank < 0 || rank >= j.Size() {
		return false
	}
	want, ok := j.addressOf(rank)
	addr, err := c.PeerAddress()
	return ok && err == nil && addr.Addr() == want
}

// requestFrom takes the oldest request of a rank that has arrived. It returns nil if there is none.
func (j *Job) requestFrom(rank int) nd.Connector {
	j.sortRequests()
	j.mu.Lock()
	defer j.mu.Unlock()
	for len(j.waiting[rank]) > 0 {
		c := j.waiting[rank][0]
		j.waiting[rank] = j.waiting[rank][1:]
		if !closeIfWithdrawn(c) {
			return c
		}
	}
	return nil
}

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
//   - [nd.InvalidParameter]: peer is this rank, or not a rank of the job.
//   - [nd.HostUnreachable], [nd.ConnectionAborted]: the peer has died or left the job, or its host
//     cannot be reached.
//   - [nd.Canceled]: ctx has ended.
//   - [nd.InvalidHandle]: the job is closed.
func (j *Job) Dial(ctx context.Context, peer int, cfg nd.EndpointConfig) (nd.Endpoint, error) {
	return j.connectWith(ctx, "dial", peer, cfg, func(ep nd.Endpoint) error {
		return j.dial(ctx, peer, dialPort, ep)
	})
}

// PublishName gives addr, such as the address of a listener, a name by which [Job.LookupName] finds it in all ranks of this host, and
// in members of the arena that are no ranks, in Go and C. The name has 1 to 64 characters out of A-Z a-z 0-9 . _ and -. It ends with a call
// of withdraw, and with this rank. PublishName and withdraw are safe for concurrent use.
//
// Errors:
//
//   - [nd.SharingViolation]: a process has the name; of two that publish it at the same time, both can get this error;
//   - [nd.InsufficientResources]: this rank has published 16 names;
//   - [nd.InvalidParameter]: another name;
//   - [nd.InvalidAddress]: addr is no IPv4 address with a port;
//   - [nd.InvalidHandle]: the job is closed;
//   - [NoMemoryError].
func (j *Job) PublishName(name string, addr netip.AddrPort) (withdraw func(), err error) {
	withdraw, err = j.member.PublishName(name, addr)
	if _, isNoMemory := errors.AsType[*NoMemoryError](err); err == nil || isNoMemory {
		return withdraw, err
	}
	if closed := j.usable("publish name"); closed != nil {
		return nil, closed
	}
	status := nd.InvalidParameter
	switch {
	case errors.Is(err, shm.ErrTaken):
		status = nd.SharingViolation
	case errors.Is(err, shm.ErrFull):
		status = nd.InsufficientResources
	case !addr.Addr().Is4() || addr.Addr().IsUnspecified() || addr.Port() == 0:
		status = nd.InvalidAddress
	}
	return nil, &nd.OpError{Op: "publish name", Object: "job", Status: status, Err: err}
}

// LookupName returns the address behind a name. It waits until a process publishes the name, ctx ends, or the job is closed. Safe for
// concurrent use.
//
// Errors: [nd.Canceled] if ctx has ended, [nd.InvalidHandle] if the job is closed, [nd.InvalidParameter] for a name that no process can
// publish.
func (j *Job) LookupName(ctx context.Context, name string) (netip.AddrPort, error) {
	addr, err := j.member.LookupName(ctx, name)
	switch {
	case err == nil:
		return addr, nil
	case ctx.Err() != nil:
		return addr, nd.CanceledError(ctx, "look up name", "job")
	}
	if closed := j.usable("look up name"); closed != nil {
		return addr, closed
	}
	return addr, &nd.OpError{Op: "look up name", Object: "job", Status: nd.InvalidParameter, Err: err}
}
