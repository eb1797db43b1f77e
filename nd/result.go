package nd

import "strconv"

// Result is one entry of a completion queue: the outcome of one work request.
type Result struct {
	// Status is [Success], or says why the request failed. The methods of [Endpoint] list which
	// statuses their results have.
	Status Status
	// BytesTransferred is the length of the payload of a successful Send, Receive, Read or Write,
	// in bytes, and 0 for other results. Other providers may set it for Receive only.
	BytesTransferred uint32
	// EndpointContext is the Context of the endpoint's [EndpointConfig].
	EndpointContext uint64
	// RequestContext is the reqCtx given when the request was posted.
	RequestContext uint64
	// RequestType is the type of the request.
	RequestType RequestType
	// InvalidatedToken is the remote token that was invalidated before this entry became visible.
	// It is 0 unless RequestType is [RequestReceiveAndInvalidate].
	InvalidatedToken Token
}

// Err returns nil for [Success], and an [OpError] for a failure. The error has the status of the
// result, and [Endpoint.Err] of ep as its cause; its text ends with the cause's Next. ep is the
// endpoint that the request was posted on, or that received the message; see EndpointContext. If ep
// is nil, the error has no cause. [Status.Err] returns the status alone.
//
// [errors.Is] finds the status, and every error that it finds in ep.Err().
func (r Result) Err(ep Endpoint) error {
	if r.Status == Success {
		return nil
	}
	err := &OpError{Object: r.RequestType.String() + " " + strconv.FormatUint(r.RequestContext, 10), Status: r.Status}
	if ep != nil {
		err.Err = ep.Err()
		if cause, ok := err.Err.(*OpError); ok {
			err.Err, err.Next = causeWithoutNext{cause}, cause.Next
		}
	}
	return err
}

// causeWithoutNext is a cause whose text leaves out Next, which the error of the result has.
type causeWithoutNext struct{ cause *OpError }

func (c causeWithoutNext) Error() string {
	e := *c.cause
	e.Next = ""
	return e.Error()
}

func (c causeWithoutNext) Unwrap() error { return c.cause }

// RequestType is the type of a request, as its result reports it. The numbers 0 to 5 are those of
// version 2 of the model.
// Source: ND2_REQUEST_TYPE.
type RequestType uint32

const (
	RequestReceive    RequestType = 0
	RequestSend       RequestType = 1 // also SendAndInvalidate, at its sender
	RequestBind       RequestType = 2
	RequestInvalidate RequestType = 3 // windows and fast-register regions
	RequestRead       RequestType = 4
	RequestWrite      RequestType = 5

	// RequestReceiveAndInvalidate is a Receive that received a SendAndInvalidate. Version 2 has no
	// number for it; this is NDK's. Source: NDK_OPERATION_TYPE.
	RequestReceiveAndInvalidate RequestType = 0x8001
	// RequestFastRegister is a type of NDK. NDK's number, 4, is a Read in version 2, so this number
	// is softnd's own. Source: NDK_OPERATION_TYPE.
	RequestFastRegister RequestType = 0x8002
)

// Initiator reports whether results of this type go to the completion queue for initiator requests.
// Those of receives go to the one for receives.
func (t RequestType) Initiator() bool {
	return t != RequestReceive && t != RequestReceiveAndInvalidate
}

// AllowedFlags returns the flags that a request of this type takes. A post with any other bit is
// refused. Receives take none.
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
