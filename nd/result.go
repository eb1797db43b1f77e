package nd

import "strconv"

// Result is an entry of a completion queue: the outcome of one request.
type Result struct {
	// Status is [Success], or the kind of the failure. The comments of the methods of [Endpoint] list
	// the statuses of their results.
	Status Status
	// BytesTransferred is the number of bytes that a successful Send, Receive, Read or Write has
	// transferred, and 8 for a successful atomic. It is 0 for other results. A provider may set it for Receive only.
	BytesTransferred uint32
	// EndpointContext is the Context of the endpoint's [EndpointConfig].
	EndpointContext uint64
	// RequestContext is the argument reqCtx of the post.
	RequestContext uint64
	// RequestType is the type of the request.
	RequestType RequestType
	// InvalidatedToken is the remote token that the message has invalidated, if RequestType is
	// [RequestReceiveAndInvalidate]. If the result has immediate data, it holds that: use [Result.Immediate]. Otherwise it
	// is 0. No message has both.
	InvalidatedToken Token
}

// Immediate returns the immediate data of a message or Write. ok is false unless RequestType is
// [RequestReceiveImmediate] or [RequestReceiveWriteImmediate].
func (r Result) Immediate() (data uint32, ok bool) {
	if r.RequestType == RequestReceiveImmediate || r.RequestType == RequestReceiveWriteImmediate {
		return uint32(r.InvalidatedToken), true
	}
	return 0, false
}

// SetImmediate makes r the result of a receive with immediate data. t is [RequestReceiveImmediate] or
// [RequestReceiveWriteImmediate]. SetImmediate is for providers.
func (r *Result) SetImmediate(t RequestType, data uint32) {
	r.RequestType, r.InvalidatedToken = t, Token(data)
}

// Err returns nil if the result is a success, and otherwise an [OpError]. It names the request, its
// status, what the status means for a request of its type, and what to do. [Explain] adds the cause that
// the endpoint knows, such as the token or the peer's death. If you need the status only, use
// [Status.Err].
func (r Result) Err() error {
	if r.Status == Success {
		return nil
	}
	err := r.opError()
	err.Detail, err.Next = r.meaning()
	return err
}

// Explain returns the error of r.Err() with the cause of its failure. The cause is ep.Err(), and the text
// of the error ends with the Next of that cause. If ep is nil, or has no cause, Explain returns r.Err().
// [errors.Is] finds the status of r, and every error that it finds in ep.Err().
//
// ep is the endpoint of the request, which the program can identify by EndpointContext. For a receive of
// a shared receive queue, it is the endpoint that received the message.
func Explain(ep Endpoint, r Result) error {
	if r.Status == Success || ep == nil {
		return r.Err()
	}
	cause := ep.Err()
	if cause == nil {
		return r.Err()
	}
	err := r.opError()
	err.setCause(cause)
	return err
}

func (r Result) opError() *OpError {
	return &OpError{Object: r.RequestType.String() + " " + strconv.FormatUint(r.RequestContext, 10), Status: r.Status}
}

// meaning returns what the status of a failed result says of a request of its type, and what to do.
func (r Result) meaning() (detail, next string) {
	switch r.Status {
	case AccessViolation:
		if r.RequestType == RequestSend || !r.RequestType.Initiator() {
			return "the local token of an entry does not cover its buffer, or lacks a right", "check the region of each entry"
		}
		return "the remote token, or the local token of an entry, does not allow the access", "check token, range and rights"
	case BufferOverflow:
		return "the message is larger than the buffers", "post larger receives"
	case Canceled:
		return "the connection has ended", "see the first failed result, or Endpoint.Err"
	case DataChecksumError:
		return "the data changed in flight", "do not change a buffer before its request is complete"
	case DataOverrun:
		return "more data than the adapter can send", "split the request"
	case InternalError:
		return "the endpoint or its completion queue is broken", "see Endpoint.Err"
	case InvalidDeviceRequest:
		return "the state of the window, region or connection does not allow the request", "see the comment of the post"
	case IOTimeout:
		return "the peer posted no Receive in time, or did not answer", "post receives before the peer sends"
	case NotSupported:
		return "the peer's adapter does not have this request", "check AdapterFlags at both sides"
	case RemoteError:
		return "the request failed at the peer", "see the results of the peer"
	}
	return "", "see Endpoint.Err"
}

// setCause sets the cause of e, and takes the cause's Next.
func (e *OpError) setCause(err error) {
	e.Err = err
	if cause, ok := err.(*OpError); ok {
		e.Err, e.Next = causeWithoutNext{cause}, cause.Next
	}
}

// causeWithoutNext is a cause whose text leaves out Next, which the error of the result has.
type causeWithoutNext struct{ cause *OpError }

func (c causeWithoutNext) Error() string {
	e := *c.cause
	e.Next = ""
	return e.Error()
}

func (c causeWithoutNext) Unwrap() error { return c.cause }

// RequestType is the type of a request in its [Result]. The numbers 0 to 5 are those of version 2 of
// NetworkDirect.
// Source: ND2_REQUEST_TYPE.
type RequestType uint32

const (
	RequestReceive    RequestType = 0
	RequestSend       RequestType = 1 // Send, SendAndInvalidate and SendImmediate
	RequestBind       RequestType = 2
	RequestInvalidate RequestType = 3 // Invalidate and InvalidateRegion
	RequestRead       RequestType = 4
	RequestWrite      RequestType = 5 // Write and WriteImmediate

	// RequestReceiveAndInvalidate is the type of a Receive whose message was sent by
	// SendAndInvalidate. Its number is that of NDK, because version 2 does not have the type.
	// Source: NDK_OPERATION_TYPE.
	RequestReceiveAndInvalidate RequestType = 0x8001
	// RequestFastRegister is the type of a FastRegister. Its number is this package's own. Version 2 does
	// not have the type. NDK has it as number 4, which version 2 uses for a Read. Source: NDK_OPERATION_TYPE.
	RequestFastRegister RequestType = 0x8002

	// RequestFetchAndAdd, RequestCompareAndSwap and RequestSwap are the types of the requests with these names. The model
	// does not have them. Their numbers are this package's own, as are the next two.
	RequestFetchAndAdd    RequestType = 0x8003 // Source: IBV_WC_FETCH_ADD of verbs.
	RequestCompareAndSwap RequestType = 0x8004 // Source: IBV_WC_COMP_SWAP of verbs.
	RequestSwap           RequestType = 0x8005 // Source: none.
	// RequestReceiveImmediate is the type of a Receive whose message was sent by SendImmediate.
	// Source: IBV_WC_RECV with IBV_WC_WITH_IMM of verbs.
	RequestReceiveImmediate RequestType = 0x8006
	// RequestReceiveWriteImmediate is the type of a Receive that a WriteImmediate of the peer has used. Its
	// BytesTransferred is the length of the Write; the buffers of the Receive are untouched.
	// Source: IBV_WC_RECV_RDMA_WITH_IMM of verbs.
	RequestReceiveWriteImmediate RequestType = 0x8007
)

// Initiator reports whether t is the type of an initiator request. The results of initiator requests go
// to the completion queue [EndpointConfig].InitiatorCQ, all other results to [EndpointConfig].ReceiveCQ.
func (t RequestType) Initiator() bool {
	switch t {
	case RequestReceive, RequestReceiveAndInvalidate, RequestReceiveImmediate, RequestReceiveWriteImmediate:
		return false
	}
	return true
}

// AllowedFlags returns the flags that a request of this type takes. A post with any other flag fails, but
// WriteImmediate also takes SendAndSolicitEvent. A Receive takes no flags.
func (t RequestType) AllowedFlags() OpFlags {
	switch t {
	case RequestSend:
		return everyRequest | SendAndSolicitEvent | Inline
	case RequestBind:
		return everyRequest | AllowRead | AllowWrite | AllowAtomic | ThisEndpointOnly
	case RequestRead:
		return everyRequest | ReadLocalInvalidate
	case RequestWrite:
		return everyRequest | Inline
	case RequestInvalidate, RequestFastRegister, RequestFetchAndAdd, RequestCompareAndSwap, RequestSwap:
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
	RequestReceive:               "RequestReceive",
	RequestSend:                  "RequestSend",
	RequestBind:                  "RequestBind",
	RequestInvalidate:            "RequestInvalidate",
	RequestRead:                  "RequestRead",
	RequestWrite:                 "RequestWrite",
	RequestReceiveAndInvalidate:  "RequestReceiveAndInvalidate",
	RequestFastRegister:          "RequestFastRegister",
	RequestFetchAndAdd:           "RequestFetchAndAdd",
	RequestCompareAndSwap:        "RequestCompareAndSwap",
	RequestSwap:                  "RequestSwap",
	RequestReceiveImmediate:      "RequestReceiveImmediate",
	RequestReceiveWriteImmediate: "RequestReceiveWriteImmediate",
}
