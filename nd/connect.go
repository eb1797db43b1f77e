package nd

import (
	"context"
	"net/netip"
)

// ConnectParams has the values that each side passes to the other while they connect.
type ConnectParams struct {
	// InboundReadLimit limits the Reads of the peer that may be in progress on this side's memory.
	// OutboundReadLimit limits the Reads of this side that may be in progress on the peer's memory.
	// If an adapter or the peer allows fewer Reads, the lower limit applies: see
	// [Connector.ReadLimits]. With an outbound limit of 0, a Read completes with
	// [InvalidDeviceRequest].
	InboundReadLimit, OutboundReadLimit int
	// PrivateData is passed to the peer unchanged. Connect takes up to MaxCallerData bytes, Accept up
	// to MaxCalleeData bytes.
	PrivateData []byte
}

// Connector connects an endpoint of this side with an endpoint of the peer. It makes one connection.
//
// A connection is made in these steps:
//
//	active side        passive side
//	Bind
//	Connect                                     requests the connection
//	                   GetConnectionRequest     of the Listener, with a new Connector
//	                   Accept                   the active side's Connect returns
//	CompleteConnect                             Accept returns; both endpoints can transfer
//
// The passive side may call Reject instead of Accept. The active side may call Reject instead of
// CompleteConnect.
//
// A call that refuses an argument has no effect, and the connector may be used again. The comments
// of the methods describe the state of the connector after other errors.
//
// A disconnection is graceful if both sides call Disconnect. Each side's Disconnect flushes the
// requests of its own side only. If the peer instead closes its endpoint or connector, exits, or does
// not answer in time, the connection is aborted. All incomplete requests are then flushed.
// Source: NetworkDirect IND2Connector, NDK_CONNECTOR.
type Connector interface {
	// Bind sets the local address. With port 0, the provider chooses a free port from
	// [EphemeralPortFirst] to [EphemeralPortLast].
	//
	// Errors:
	//
	//   - [SharingViolation]: the address is in use.
	//   - [TooManyAddresses]: no port is free.
	//   - [AddressAlreadyExists]: with some providers, another connection from addr exists.
	//   - [AddressAlreadyAssociated]: the connector is connecting or connected.
	//   - [InvalidAddress]: addr is an address of another adapter.
	//
	// Source: IND2Connector::Bind.
	Bind(addr netip.AddrPort) error

	// Connect requests a connection of ep from the listener at addr. It returns nil when the peer has
	// accepted. The program can then read the peer's private data and read limits. ep cannot transfer
	// before CompleteConnect.
	//
	// No error changes ep. After the following errors, the connector is unbound. The program may
	// call Bind and then Connect again:
	//
	//   - [ConnectionRefused]: no listener has the address, its backlog is full, or the peer rejected
	//     the request. If the peer rejected it, GetPrivateData returns the private data of the Reject.
	//   - [NetworkUnreachable]: addr is in no network that the adapter reaches.
	//   - [HostUnreachable]: no process has the address, or the peer has died.
	//   - [IOTimeout].
	//
	// The following errors have no effect:
	//
	//   - [BadNetworkName]: addr is the unspecified address.
	//   - [InvalidBufferSize]: p.PrivateData is too long.
	//   - [ConnectionActive]: the connector or ep is connecting or connected.
	//   - [InvalidParameter]: ep is of another adapter.
	//
	// If ctx ends, or the endpoint is flushed or closed meanwhile, Connect withdraws the request and
	// fails with [Canceled]. The connector can then be used again. If the connector has not been bound,
	// the provider binds it to a free port, or refuses.
	//
	// Source: IND2Connector::Connect, NdkConnect.
	Connect(ctx context.Context, ep Endpoint, addr netip.AddrPort, p ConnectParams) error

	// CompleteConnect is the last step of the active side. When it returns nil, the endpoint can
	// transfer. The time between Connect and CompleteConnect is not limited.
	//
	// Errors:
	//
	//   - [ConnectionInvalid]: there was no successful Connect.
	//   - [ConnectionAborted]: the passive side has ended the attempt. The connector cannot be used
	//     again.
	//   - [IOTimeout]: the connector cannot be used again.
	//   - [Canceled]: ctx has ended. CompleteConnect may be called again.
	//
	// Source: IND2Connector::CompleteConnect, NdkCompleteConnect.
	CompleteConnect(ctx context.Context) error

	// Accept accepts the connection request that GetConnectionRequest has put into this connector. ep
	// is this side's endpoint. Accept returns nil when the peer has called CompleteConnect. From that
	// moment, the endpoint serves the peer's requests. A Poll of another goroutine may therefore take
	// the result of a Receive before Accept returns.
	//
	// The following errors have no effect:
	//
	//   - [InvalidBufferSize]: p.PrivateData is too long.
	//   - [ConnectionActive]: ep is connecting or connected.
	//   - [InvalidParameter]: ep is of another adapter.
	//   - [ConnectionInvalid]: the connector has no request.
	//
	// After the following errors, the connector cannot be used again:
	//
	//   - [ConnectionAborted]: the peer withdrew the request before Accept was called.
	//   - [ConnectionRefused]: the peer rejected the connection, closed its connector, or died, while
	//     Accept waited.
	//   - [IOTimeout], [Canceled].
	//
	// Source: IND2Connector::Accept, NdkAccept.
	Accept(ctx context.Context, ep Endpoint, p ConnectParams) error

	// Reject refuses the connection, and passes private to the peer, up to MaxCalleeData bytes. The
	// passive side calls it instead of Accept, the active side instead of CompleteConnect. The
	// connector cannot be used again.
	//
	// Errors: [InvalidBufferSize] if private is too long, without effect; [ConnectionAborted] if the
	// peer has already given up or died; [ConnectionInvalid] if there is nothing to reject.
	// Source: IND2Connector::Reject, NdkReject.
	Reject(private []byte) error

	// ReadLimits returns the read limits of the connection. The adapters and the peer may have reduced
	// them: inbound is at most the peer's outbound limit, outbound at most the peer's inbound limit.
	// ReadLimits works on the passive side after GetConnectionRequest, on the active side after Connect.
	//
	// Errors: [ConnectionInvalid] at other times.
	// Source: IND2Connector::GetReadLimits, NdkGetConnectionData.
	ReadLimits() (inbound, outbound int, err error)

	// GetPrivateData copies the peer's private data into buf, exactly as sent, and returns its
	// length. It works at the same times as ReadLimits. After a Connect that was rejected it works
	// too, until the connector is closed.
	//
	// Errors:
	//
	//   - [BufferOverflow]: buf is too short. It has the first part of the data, and GetPrivateData
	//     returns the length of all data.
	//   - [ConnectionAborted]: the peer has given up.
	//   - [ConnectionInvalid]: the connector has no private data of a peer at this time.
	//
	// Source: IND2Connector::GetPrivateData.
	GetPrivateData(buf []byte) (int, error)

	// LocalAddress returns this side's address while the connector is bound, connecting or connected.
	//
	// Errors: [ConnectionInvalid] at other times. Source: IND2Connector::GetLocalAddress.
	LocalAddress() (netip.AddrPort, error)

	// PeerAddress returns the peer's address. It works at the same times as ReadLimits.
	//
	// Errors: [ConnectionInvalid] at other times. Source: IND2Connector::GetPeerAddress.
	PeerAddress() (netip.AddrPort, error)

	// NotifyDisconnect blocks until the peer disconnects or the connection is aborted. In both cases it
	// returns nil, and [Endpoint.Err] returns the reason. It returns at once if the connection has
	// already ended.
	//
	// Errors: [ConnectionInvalid] if the connector was never connected; [Canceled] if ctx ends or the
	// connector is closed. Source: IND2Connector::NotifyDisconnect.
	NotifyDisconnect(ctx context.Context) error

	// Disconnect flushes this side's requests, notifies the peer, and blocks until the peer has called
	// Disconnect too. When it has returned nil, no transfer accesses this side's memory. Neither the
	// connector nor the endpoint can be connected again.
	//
	// Call Disconnect after this side's requests have completed. Only the data of requests whose
	// result is [Success] is sure to arrive.
	//
	// Errors:
	//
	//   - [ConnectionInvalid]: the connector is not connected, or Disconnect was already called.
	//   - [ConnectionAborted]: the connection was aborted.
	//   - [IOTimeout]: the peer did not disconnect in time. The connection is aborted.
	//   - [Canceled]: ctx has ended, and the disconnection continues; or the connector was closed.
	//
	// Source: IND2Connector::Disconnect, NdkDisconnect.
	Disconnect(ctx context.Context) error

	// Close releases the connector. If the connection is not complete, Close ends the attempt. If the
	// endpoint is connected, Close flushes its requests and aborts the connection, without waiting for
	// the peer. The local address is then free, unless a listener uses it too.
	Close() error

	extensible // implemented by embedding UnsupportedConnector
}

// Listener waits for connection requests at one address.
// Source: NetworkDirect IND2Listener, NDK_LISTENER.
type Listener interface {
	// Bind sets the address of the listener, once. With port 0, the provider chooses a free port from
	// [EphemeralPortFirst] to [EphemeralPortLast]. The unspecified address stands for all addresses of
	// this adapter.
	//
	// Errors:
	//
	//   - [SharingViolation]: another listener has the address.
	//   - [AddressAlreadyAssociated]: this listener already has an address.
	//   - [TooManyAddresses]: no port is free.
	//   - [InvalidAddress]: addr is not an address of the adapter.
	//
	// Source: IND2Listener::Bind.
	Bind(addr netip.AddrPort) error

	// Listen starts to queue connection requests for GetConnectionRequest. If backlog requests are
	// queued, the listener refuses further requests. A provider may have a lower limit than backlog, and
	// 0 means that limit.
	//
	// Errors: [InvalidDeviceState] if the listener is not bound, or is already listening;
	// [InvalidParameter] if backlog is negative. Source: IND2Listener::Listen, NdkListen.
	Listen(backlog int) error

	// LocalAddress returns the address at which the listener accepts requests, with its actual port.
	//
	// Errors: [InvalidDeviceState] if the listener is not listening.
	// Source: IND2Listener::GetLocalAddress.
	LocalAddress() (netip.AddrPort, error)

	// GetConnectionRequest blocks until there is a request, and puts it into c. c is a connector of the
	// same adapter that has not been used. If several calls wait, they get requests in the order of
	// the calls.
	//
	// Errors (after each, c is unused):
	//
	//   - [InvalidDeviceState]: the listener is not listening.
	//   - [InvalidParameter]: c is already used, or of another adapter.
	//   - [Canceled]: ctx has ended, or the listener was closed.
	//
	// Source: IND2Listener::GetConnectionRequest, NdkConnectEventCallback.
	GetConnectionRequest(ctx context.Context, c Connector) error

	// PauseEvents with true makes GetConnectionRequest return no requests, until PauseEvents is called
	// with false. Meanwhile, requests are queued up to the backlog, and calls of GetConnectionRequest
	// keep waiting.
	//
	// Errors: [NotSupported]; [InvalidDeviceState] if the listener is not listening.
	// Source: NdkControlConnectEvents.
	PauseEvents(pause bool) error

	// Close ends waiting calls of GetConnectionRequest with [Canceled], and refuses the requests that
	// no call has returned. Connections that were made through the listener stay. Whether these
	// connections keep the listener's address in use depends on the provider.
	Close() error

	extensible // implemented by embedding UnsupportedListener
}
