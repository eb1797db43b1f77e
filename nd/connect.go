package nd

import (
	"context"
	"net/netip"
)

// ConnectParams is what the two sides tell each other while a connection is made.
type ConnectParams struct {
	// InboundReadLimit bounds the Reads that the peer may have in progress here,
	// OutboundReadLimit those that this side may have in progress there. Values above what the
	// adapters or the peer allow are reduced silently; see [Connector.ReadLimits]. With an
	// outbound limit of 0 a Read completes with [InvalidDeviceRequest].
	InboundReadLimit, OutboundReadLimit int
	// PrivateData goes to the peer as it is: MaxCallerData bytes at most for Connect,
	// MaxCalleeData for Accept.
	PrivateData []byte
}

// Connector joins one endpoint of this side with one of the peer, once.
//
// The active side calls Bind, Connect, CompleteConnect. The passive side gets the request into a
// fresh connector by [Listener.GetConnectionRequest] and calls Accept. Connect returns when the
// peer has accepted, Accept returns when the peer has completed; at that moment both endpoints
// can transfer. Reject takes the place of Accept, or of CompleteConnect.
//
// A wrong argument has no effect: the same connector may be used again. After a failed
// establishment see the methods.
//
// Disconnecting is graceful when both sides call Disconnect. A notice alone flushes nothing at
// the side that gets it; the flush comes with its own Disconnect. A peer that closes, exits or
// does not answer in time aborts the connection, and everything outstanding is flushed.
// Source: NetworkDirect IND2Connector, NDK_CONNECTOR.
type Connector interface {
	// Bind sets the local address. Port 0 picks one of [EphemeralPortFirst] to
	// [EphemeralPortLast].
	//
	// Errors: [SharingViolation] when the address is in use; [TooManyAddresses] when no port is
	// free; [AddressAlreadyExists] when the connection that would result exists;
	// [AddressAlreadyAssociated] while connecting or connected; [InvalidAddress] for an address
	// of another adapter.
	// Source: IND2Connector::Bind.
	Bind(addr netip.AddrPort) error

	// Connect asks the listener at addr for a connection with ep, and returns nil when it has
	// accepted. Its private data and limits can be read then; ep cannot send before
	// CompleteConnect.
	//
	// Errors: [ConnectionRefused] when nobody listens, the backlog is full or the peer rejected
	// (its data can be read); [NetworkUnreachable]; [HostUnreachable]; [IOTimeout]. After these
	// four the connector is unbound again and may retry. [BadNetworkName] for the unspecified
	// address, [InvalidBufferSize] for too much private data, [ConnectionActive] when the
	// connector or ep is connecting or connected, [InvalidParameter1] for an ep of another
	// adapter: without effect. [Canceled] when ctx ends, which withdraws the request. ep is
	// unchanged after each.
	// Source: IND2Connector::Connect, NdkConnect.
	Connect(ctx context.Context, ep Endpoint, addr netip.AddrPort, p ConnectParams) error

	// CompleteConnect is the active side's last step; ep can transfer when it returns nil. The
	// caller may take its time before the call.
	//
	// Errors: [ConnectionInvalid] without a successful Connect; [ConnectionAborted] when the
	// passive side is gone; [IOTimeout]: after these two the connector is of no further use.
	// [Canceled] when ctx has ended; the call may be made again.
	// Source: IND2Connector::CompleteConnect, NdkCompleteConnect.
	CompleteConnect(ctx context.Context) error

	// Accept answers the request that this connector holds, with ep as this side's endpoint, and
	// returns nil when the peer has completed. From then on requests of the peer are served: a
	// Poll of another goroutine may show a message before Accept returns.
	//
	// Errors: [InvalidBufferSize] for too much private data, [ConnectionActive] when ep is
	// connecting or connected, [InvalidParameter1] for an ep of another adapter: without effect.
	// [ConnectionInvalid] when the connector holds no request. [ConnectionAborted] when the peer
	// gave up before Accept was called; [ConnectionRefused] when it rejected, closed or died afterwards;
	// [IOTimeout]; [Canceled]: the connector is of no further use.
	// Source: IND2Connector::Accept, NdkAccept.
	Accept(ctx context.Context, ep Endpoint, p ConnectParams) error

	// Reject turns the peer down and sends it private, MaxCalleeData bytes at most. The passive
	// side calls it instead of Accept, the active side instead of CompleteConnect. The connector
	// is of no further use.
	//
	// Errors: [InvalidBufferSize], without effect; [ConnectionAborted] when the peer is gone
	// already; [ConnectionInvalid] when there is nothing to reject.
	// Source: IND2Connector::Reject, NdkReject.
	Reject(private []byte) error

	// ReadLimits returns the limits in force, capped by both adapters: inbound is at most the
	// peer's outbound limit, outbound at most the peer's inbound limit. The passive side may ask
	// once GetConnectionRequest returned, the active side once Connect returned.
	//
	// Errors: [ConnectionInvalid] at other times.
	// Source: IND2Connector::GetReadLimits, NdkGetConnectionData.
	ReadLimits() (inbound, outbound int, err error)

	// GetPrivateData copies the peer's private data and returns its length, exactly as sent. It
	// can be asked for when ReadLimits can, and also after a Connect that was rejected, until the
	// connector is closed.
	//
	// Errors: [BufferOverflow] when buf is too short: it holds the first part, and the number
	// returned is the length needed. [ConnectionInvalid] at other times. [ConnectionAborted] when
	// the peer gave up.
	// Source: IND2Connector::GetPrivateData.
	GetPrivateData(buf []byte) (int, error)

	// LocalAddress returns this side's address while bound, connecting or connected.
	// Errors: [ConnectionInvalid] at other times. Source: IND2Connector::GetLocalAddress.
	LocalAddress() (netip.AddrPort, error)

	// PeerAddress returns the peer's address, from GetConnectionRequest or the end of Connect on.
	// Errors: [ConnectionInvalid] at other times. Source: IND2Connector::GetPeerAddress.
	PeerAddress() (netip.AddrPort, error)

	// NotifyDisconnect blocks until the peer disconnects or the connection aborts, and returns
	// nil for both, at once if it happened before. [Endpoint.Err] tells which.
	//
	// Errors: [ConnectionInvalid] when never connected; [Canceled] when ctx ends or the connector
	// is closed. Source: IND2Connector::NotifyDisconnect.
	NotifyDisconnect(ctx context.Context) error

	// Disconnect flushes this side's requests, tells the peer, and returns nil when the peer has
	// disconnected too; no transfer touches this side's memory afterwards. Call it when your own
	// requests have completed: data whose completion was [Success] arrives all the same, the rest
	// is lost. Neither connector nor endpoint can be connected again.
	//
	// Errors: [ConnectionInvalid] when not connected or already disconnected; [ConnectionAborted]
	// when the connection aborted; [IOTimeout] when the peer did not answer in time, which aborts
	// it; [Canceled] when ctx ends: the call stops waiting, the disconnection goes on.
	// Source: IND2Connector::Disconnect, NdkDisconnect.
	Disconnect(ctx context.Context) error

	// Close releases the connector. Before CompleteConnect it gives the attempt up; while
	// connected it disconnects without waiting for the peer, for whom that is an abort, and
	// flushes. The local address is free again, unless a listener holds it.
	Close() error
}

// Listener waits for connection requests at one address.
// Source: NetworkDirect IND2Listener, NDK_LISTENER.
type Listener interface {
	// Bind sets the address, once. Port 0 picks one of [EphemeralPortFirst] to
	// [EphemeralPortLast]; the unspecified address stands for all addresses of this adapter.
	//
	// Errors: [SharingViolation] when another listener has the address;
	// [AddressAlreadyAssociated] when this one is bound; [TooManyAddresses] when no port is free;
	// [InvalidAddress] for an address that is not the adapter's.
	// Source: IND2Listener::Bind.
	Bind(addr netip.AddrPort) error

	// Listen starts taking requests. backlog bounds the requests that are waiting for
	// GetConnectionRequest; more are refused. 0 means without limit; a provider may clamp it.
	//
	// Errors: [InvalidDeviceState] when not bound or listening already; [InvalidParameter1] for a
	// negative backlog. Source: IND2Listener::Listen, NdkListen.
	Listen(backlog int) error

	// LocalAddress returns the address that requests come in on, with the port in use.
	// Errors: [InvalidDeviceState] when not listening. Source: IND2Listener::GetLocalAddress.
	LocalAddress() (netip.AddrPort, error)

	// GetConnectionRequest blocks until a request is there and puts it into c, a fresh connector
	// of the same adapter. Several calls may wait; they are served in the order of arrival.
	//
	// Errors: [InvalidDeviceState] when not listening; [InvalidParameter1] when c is not fresh or
	// of another adapter; [Canceled] when ctx ends or the listener is closed; c is unused then.
	// Source: IND2Listener::GetConnectionRequest, NdkConnectEventCallback.
	GetConnectionRequest(ctx context.Context, c Connector) error

	// PauseEvents with true holds requests back: they are queued up to the backlog and not handed
	// out until PauseEvents with false. Waiting calls keep waiting.
	//
	// Errors: [NotSupported]; [InvalidDeviceState] when not listening.
	// Source: NdkControlConnectEvents.
	PauseEvents(pause bool) error

	// Close ends waiting calls with [Canceled] and refuses the requests that were not handed out.
	// Connections made through the listener live on; whether they keep its address busy is the
	// provider's choice.
	Close() error
}
