package nd

import (
	"context"
	"net/netip"
)

// ConnectParams has the values that each side passes to the other while they connect.
type ConnectParams struct {
	// InboundReadLimit bounds the Reads that the peer may have in progress on this side's
	// memory, OutboundReadLimit those that this side may have in progress on the peer's. Values
	// above what the adapters or the peer allow are reduced; see [Connector.ReadLimits]. With an
	// outbound limit of 0 a Read completes with [InvalidDeviceRequest].
	InboundReadLimit, OutboundReadLimit int
	// PrivateData is passed to the peer unchanged: up to MaxCallerData bytes for Connect,
	// MaxCalleeData for Accept.
	PrivateData []byte
}

// Connector connects one endpoint of this side with one of the peer, once.
//
// The active side calls Bind, Connect, CompleteConnect. The passive side gets the request into a
// fresh connector with [Listener.GetConnectionRequest], and calls Accept. Connect returns when the
// peer has accepted. Accept returns when the peer has called CompleteConnect; then both endpoints
// can transfer. Reject takes the place of Accept, or of CompleteConnect.
//
// A call that is refused because of an argument has no effect: the connector may be used again. The
// comments of the methods say in which state other errors leave the connector.
//
// A disconnection is graceful when both sides call Disconnect. This side's Disconnect flushes its
// own requests; the peer's Disconnect does not flush them. A peer that closes, exits or does not
// answer in time aborts the connection, and all outstanding requests are flushed.
// Source: NetworkDirect IND2Connector, NDK_CONNECTOR.
type Connector interface {
	// Bind sets the local address. Port 0 picks one of [EphemeralPortFirst] to
	// [EphemeralPortLast].
	//
	// Errors: [SharingViolation] when the address is in use; [TooManyAddresses] when no port is
	// free; [AddressAlreadyExists] when this pair of addresses is connected already;
	// [AddressAlreadyAssociated] while connecting or connected; [InvalidAddress] for an address
	// of another adapter.
	// Source: IND2Connector::Bind.
	Bind(addr netip.AddrPort) error

	// Connect requests a connection of ep from the listener at addr, and returns nil when the peer
	// has accepted. The peer's private data and limits can be read then; ep cannot send before
	// CompleteConnect.
	//
	// Errors. ep is unchanged after each. After these the connector is unbound again, and Connect
	// may be called again:
	//
	//   - [ConnectionRefused] when no listener has the address, its backlog is full, or the peer
	//     rejected the request (its private data can be read);
	//   - [NetworkUnreachable], [HostUnreachable], [IOTimeout].
	//
	// These have no effect:
	//
	//   - [BadNetworkName] for the unspecified address;
	//   - [InvalidBufferSize] for too much private data;
	//   - [ConnectionActive] when the connector or ep is connecting or connected;
	//   - [InvalidParameter1] for an ep of another adapter.
	//
	// When ctx ends, Connect withdraws the request and fails with [Canceled].
	//
	// Source: IND2Connector::Connect, NdkConnect.
	Connect(ctx context.Context, ep Endpoint, addr netip.AddrPort, p ConnectParams) error

	// CompleteConnect is the last step of the active side. When it returns nil, ep can transfer.
	// The time between Connect and this call is not limited.
	//
	// Errors: [ConnectionInvalid] without a successful Connect; [ConnectionAborted] when the
	// passive side has ended, or [IOTimeout]: the connector cannot be used again; [Canceled] when
	// ctx has ended: the call may be repeated.
	// Source: IND2Connector::CompleteConnect, NdkCompleteConnect.
	CompleteConnect(ctx context.Context) error

	// Accept accepts the request in this connector with ep as this side's endpoint, and returns nil
	// when the peer has called CompleteConnect. From then on the peer's requests are served: a Poll
	// of another goroutine may return a message before Accept returns.
	//
	// Errors without effect: [InvalidBufferSize] for too much private data, [ConnectionActive] when
	// ep is connecting or connected, [InvalidParameter1] for an ep of another adapter,
	// [ConnectionInvalid] when the connector has no request. Errors after which the connector is of
	// no further use: [ConnectionAborted] when the peer gave up before Accept was called;
	// [ConnectionRefused] when it rejected, closed or died afterwards; [IOTimeout]; [Canceled].
	// Source: IND2Connector::Accept, NdkAccept.
	Accept(ctx context.Context, ep Endpoint, p ConnectParams) error

	// Reject refuses the connection and passes private to the peer, up to MaxCalleeData bytes. The
	// passive side calls it instead of Accept, the active side instead of CompleteConnect. The
	// connector is of no further use.
	//
	// Errors: [InvalidBufferSize] for too much private data, without effect; [ConnectionAborted]
	// when the peer is gone already; [ConnectionInvalid] when there is nothing to reject.
	// Source: IND2Connector::Reject, NdkReject.
	Reject(private []byte) error

	// ReadLimits returns the limits in force, which both adapters may have reduced: inbound is at
	// most the peer's outbound limit, outbound at most the peer's inbound limit. It works after
	// GetConnectionRequest on the passive side, and after Connect on the active side.
	//
	// Errors: [ConnectionInvalid] at other times.
	// Source: IND2Connector::GetReadLimits, NdkGetConnectionData.
	ReadLimits() (inbound, outbound int, err error)

	// GetPrivateData copies the peer's private data into buf, exactly as sent, and returns its
	// length. It works when ReadLimits does, and also after a Connect that was rejected, until the
	// connector is closed.
	//
	// Errors: [BufferOverflow] when buf is too short: it then has the first part of the data, and
	// the number returned is the length of all of it. [ConnectionInvalid] at other times.
	// [ConnectionAborted] when the peer gave up.
	// Source: IND2Connector::GetPrivateData.
	GetPrivateData(buf []byte) (int, error)

	// LocalAddress returns this side's address while bound, connecting or connected.
	// Errors: [ConnectionInvalid] at other times. Source: IND2Connector::GetLocalAddress.
	LocalAddress() (netip.AddrPort, error)

	// PeerAddress returns the peer's address, from GetConnectionRequest or the end of Connect on.
	// Errors: [ConnectionInvalid] at other times. Source: IND2Connector::GetPeerAddress.
	PeerAddress() (netip.AddrPort, error)

	// NotifyDisconnect blocks until the peer disconnects or the connection aborts, and returns
	// nil for both. It returns at once if that happened before. [Endpoint.Err] says which it was.
	//
	// Errors: [ConnectionInvalid] when never connected; [Canceled] when ctx ends or the connector
	// is closed. Source: IND2Connector::NotifyDisconnect.
	NotifyDisconnect(ctx context.Context) error

	// Disconnect flushes this side's requests, tells the peer, and returns nil when the peer has
	// disconnected too. No transfer touches this side's memory afterwards. Call it when this side's
	// requests have completed: only the data of requests whose result is [Success] is sure to
	// arrive. Neither connector nor endpoint can be connected again.
	//
	// Errors: [ConnectionInvalid] when not connected or already disconnected; [ConnectionAborted]
	// when the connection aborted; [IOTimeout] when the peer did not answer in time, which aborts
	// the connection; [Canceled] when ctx ends: the call returns, and the disconnection continues.
	// Source: IND2Connector::Disconnect, NdkDisconnect.
	Disconnect(ctx context.Context) error

	// Close releases the connector. Before CompleteConnect it gives up the attempt. While connected
	// it flushes and disconnects without waiting for the peer, whose connection aborts. The local
	// address is free again, unless a listener has it.
	Close() error
}

// Listener waits for connection requests at one address.
// Source: NetworkDirect IND2Listener, NDK_LISTENER.
type Listener interface {
	// Bind sets the address, once. Port 0 picks one of [EphemeralPortFirst] to
	// [EphemeralPortLast]. The unspecified address means all addresses of this adapter.
	//
	// Errors: [SharingViolation] when another listener has the address;
	// [AddressAlreadyAssociated] when this one is bound; [TooManyAddresses] when no port is free;
	// [InvalidAddress] for an address that is not the adapter's.
	// Source: IND2Listener::Bind.
	Bind(addr netip.AddrPort) error

	// Listen starts accepting requests into the backlog. backlog bounds the requests that wait for
	// GetConnectionRequest; further ones are refused. 0 means no limit. A provider may impose a
	// lower limit than backlog.
	//
	// Errors: [InvalidDeviceState] when not bound or listening already; [InvalidParameter1] for a
	// negative backlog. Source: IND2Listener::Listen, NdkListen.
	Listen(backlog int) error

	// LocalAddress returns the address at which the listener accepts requests, with the port in use.
	// Errors: [InvalidDeviceState] when not listening. Source: IND2Listener::GetLocalAddress.
	LocalAddress() (netip.AddrPort, error)

	// GetConnectionRequest blocks until there is a request and puts it into c, a fresh connector
	// of the same adapter. Several calls may wait; they are served in the order of the calls.
	//
	// Errors: [InvalidDeviceState] when not listening; [InvalidParameter1] when c is not fresh or
	// of another adapter; [Canceled] when ctx ends or the listener is closed; c is unused then.
	// Source: IND2Listener::GetConnectionRequest, NdkConnectEventCallback.
	GetConnectionRequest(ctx context.Context, c Connector) error

	// PauseEvents(true) holds requests back: they are queued, up to the backlog, and
	// GetConnectionRequest does not return them until PauseEvents(false). Waiting calls keep waiting.
	//
	// Errors: [NotSupported]; [InvalidDeviceState] when not listening.
	// Source: NdkControlConnectEvents.
	PauseEvents(pause bool) error

	// Close ends waiting calls with [Canceled] and refuses the requests that GetConnectionRequest
	// has not returned. Connections made through the listener stay; the provider decides whether
	// they keep its address in use.
	Close() error
}
