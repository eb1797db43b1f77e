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

// Err returns nil for [Success]. Otherwise it returns an [OpError] with the status of the result
// and the cause that ep gives for the end of its connection ([Endpoint.Err]). ep is the endpoint
// that the request was posted on, or that received the message; see EndpointContext. If ep is nil,
// the error has no cause. [Status.Err] returns the status alone.
//
// [errors.Is] finds the status, and every error that it finds in ep.Err().
func (r Result) Err(ep Endpoint) error {
	if r.Status == Success {
		return nil
	}
	err := &OpError{Object: r.RequestType.String() + " " + strconv.FormatUint(r.RequestContext, 10), Status: r.Status}
	if ep != nil {
		err.Err = ep.Err()
	}
	return err
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

// String returns the constant's name.
func (t RequestType) String() string {
	if name, ok := requestTypeNames[t]; ok {
		return name
	}
	return "RequestType(0x" + strconv.FormatUint(uint64(t), 16) + ")"
}

var requestTypeNames = map[RequestType]string{
	RequestReceive:              "RequestReceive",
	RequestSend:                 "RequestSend",
	RequestBind:                 "RequestBind",
	RequestInvalidate:           "RequestInvalidate",
	RequestRead:                 "RequestRead",
	RequestWrite:                "RequestWrite",
	RequestReceiveAndInvalidate: "RequestReceiveAndInvalidate",
	RequestFastRegister:         "RequestFastRegister",
}
