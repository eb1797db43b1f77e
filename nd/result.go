package nd

import "strconv"

// Result is one entry of a completion queue: the outcome of one work request.
type Result struct {
	// Status is [Success], or why the request failed; see [Endpoint] for the set per request.
	Status Status
	// BytesTransferred counts the payload of a successful Send, Receive, Read or Write, and is 0
	// otherwise. Programs meant for other providers rely on it for Receive only.
	BytesTransferred uint32
	// EndpointContext is the Context of the endpoint's [EndpointConfig].
	EndpointContext uint64
	// RequestContext is the reqCtx given when the request was posted.
	RequestContext uint64
	// RequestType says what the request was.
	RequestType RequestType
	// InvalidatedToken is the remote token that died before this entry became visible. Set for
	// [RequestReceiveAndInvalidate] only, 0 otherwise.
	InvalidatedToken Token
}

// Err returns why the request failed, nil for [Success]: an [OpError] with the status of the
// result and, behind it, the cause that ep gives for the end of its connection. ep is the endpoint
// that the request was posted on, or that the message came in on; see EndpointContext. [Status.Err]
// has the status alone.
//
// [errors.Is] finds the status, and every error that it finds in [Endpoint.Err].
func (r Result) Err(ep Endpoint) error {
	if r.Status == Success {
		return nil
	}
	return &OpError{Object: r.RequestType.String() + " " + strconv.FormatUint(r.RequestContext, 10), Status: r.Status, Err: ep.Err()}
}

// RequestType tells completions apart. The numbers 0 to 5 are those of version 2 of the model.
// Source: ND2_REQUEST_TYPE.
type RequestType uint32

const (
	RequestReceive    RequestType = 0
	RequestSend       RequestType = 1 // also SendAndInvalidate, at its sender
	RequestBind       RequestType = 2
	RequestInvalidate RequestType = 3 // windows and fast-register regions
	RequestRead       RequestType = 4
	RequestWrite      RequestType = 5

	// RequestReceiveAndInvalidate is a Receive that took a SendAndInvalidate. Version 2 has no
	// number for it; this is NDK's. Source: NDK_OPERATION_TYPE.
	RequestReceiveAndInvalidate RequestType = 0x8001
	// RequestFastRegister has no number in version 2, and NDK's, 4, is a Read there. This one is
	// softnd's own: it is none of version 2's and, with two bits far apart, none of NDK's powers
	// of two. Source: NDK_OPERATION_TYPE.
	RequestFastRegister RequestType = 0x8002
)

// Initiator reports whether the completion goes to the endpoint's initiator queue; receives go
// to the receive queue.
func (t RequestType) Initiator() bool {
	return t != RequestReceive && t != RequestReceiveAndInvalidate
}

// AllowedFlags returns the flags that a request of this type takes; posting with any other bit
// is refused. Receives take none.
func (t RequestType) AllowedFlags() OpFlags {
	switch t {
	case RequestSend:
		return everyRequest | SendAndSolicitEvent | Inline
	case RequestBind:
		return everyRequest | AllowRead | AllowWrite | ThisEndpointOnly
	case RequestRead:
		return everyRequest | ReadLocalInvalidate
	case RequestWrite:
		return everyRequest | Inline
	case RequestInvalidate, RequestFastRegister:
		return everyRequest
	}
	return 0
}

// NDK returns the operation type in NDK's numbers, 0 for a value that is no constant of this
// package.
func (t RequestType) NDK() NDKOperationType {
	for _, p := range requestTypePairs {
		if p.model == t {
			return p.ndk
		}
	}
	return 0
}

// String returns the constant's name.
func (t RequestType) String() string {
	for _, p := range requestTypePairs {
		if p.model == t {
			return p.name
		}
	}
	return "RequestType(0x" + strconv.FormatUint(uint64(t), 16) + ")"
}

// NDKOperationType is the type of a completion in the kernel flavour's numbers, which differ
// from those of [RequestType] throughout. 0 is never valid. Source: NDK_OPERATION_TYPE.
type NDKOperationType uint32

const (
	NDKOperationReceive              NDKOperationType = 1
	NDKOperationSend                 NDKOperationType = 2
	NDKOperationFastRegister         NDKOperationType = 4
	NDKOperationBind                 NDKOperationType = 8
	NDKOperationInvalidate           NDKOperationType = 16
	NDKOperationRead                 NDKOperationType = 32
	NDKOperationWrite                NDKOperationType = 64
	NDKOperationReceiveAndInvalidate NDKOperationType = 0x8001
)

// RequestType returns the type in the numbers of this package; false for an unknown value.
func (t NDKOperationType) RequestType() (RequestType, bool) {
	for _, p := range requestTypePairs {
		if p.ndk == t {
			return p.model, true
		}
	}
	return 0, false
}

// String returns the constant's name.
func (t NDKOperationType) String() string {
	for _, p := range requestTypePairs {
		if p.ndk == t {
			return "NDKOperation" + p.name[len("Request"):]
		}
	}
	return "NDKOperationType(0x" + strconv.FormatUint(uint64(t), 16) + ")"
}

// requestTypePairs gives both numbers of each type, and the name that they share.
var requestTypePairs = []struct {
	model RequestType
	ndk   NDKOperationType
	name  string
}{
	{RequestReceive, NDKOperationReceive, "RequestReceive"},
	{RequestSend, NDKOperationSend, "RequestSend"},
	{RequestBind, NDKOperationBind, "RequestBind"},
	{RequestInvalidate, NDKOperationInvalidate, "RequestInvalidate"},
	{RequestRead, NDKOperationRead, "RequestRead"},
	{RequestWrite, NDKOperationWrite, "RequestWrite"},
	{RequestReceiveAndInvalidate, NDKOperationReceiveAndInvalidate, "RequestReceiveAndInvalidate"},
	{RequestFastRegister, NDKOperationFastRegister, "RequestFastRegister"},
}
