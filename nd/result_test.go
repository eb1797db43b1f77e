package nd

import (
	"errors"
	"reflect"
	"testing"
)

func TestRequestTypeNumbers(t *testing.T) {
	rows := []struct {
		typ       RequestType
		want      uint32
		initiator bool
	}{
		{RequestReceive, 0, false},
		{RequestSend, 1, true},
		{RequestBind, 2, true},
		{RequestInvalidate, 3, true},
		{RequestRead, 4, true},
		{RequestWrite, 5, true},
		{RequestReceiveAndInvalidate, 0x8001, false},
		{RequestFastRegister, 0x8002, true},
		{RequestFetchAndAdd, 0x8003, true},
		{RequestCompareAndSwap, 0x8004, true},
		{RequestSwap, 0x8005, true},
		{RequestReceiveImmediate, 0x8006, false},
		{RequestReceiveWriteImmediate, 0x8007, false},
	}
	if len(rows) != len(requestTypeNames) {
		t.Errorf("%d types have a row, and %d a name", len(rows), len(requestTypeNames))
	}
	for _, tc := range rows {
		if uint32(tc.typ) != tc.want {
			t.Errorf("%v is %#x, want %#x", tc.typ, uint32(tc.typ), tc.want)
		}
		if got := tc.typ.Initiator(); got != tc.initiator {
			t.Errorf("%v.Initiator() = %v", tc.typ, got)
		}
	}
}

// The fields of ND2_ADAPTER_INFO in its order.
func TestAdapterInfoFields(t *testing.T) {
	want := []struct {
		name string
		kind reflect.Kind
	}{
		{"VendorID", reflect.Uint16},
		{"DeviceID", reflect.Uint16},
		{"AdapterID", reflect.Uint64},
		{"MaxRegistrationSize", reflect.Uint64},
		{"MaxWindowSize", reflect.Uint64},
		{"MaxInitiatorSGE", reflect.Uint32},
		{"MaxReceiveSGE", reflect.Uint32},
		{"MaxReadSGE", reflect.Uint32},
		{"MaxTransferLength", reflect.Uint32},
		{"MaxInlineDataSize", reflect.Uint32},
		{"MaxInboundReadLimit", reflect.Uint32},
		{"MaxOutboundReadLimit", reflect.Uint32},
		{"MaxReceiveQueueDepth", reflect.Uint32},
		{"MaxInitiatorQueueDepth", reflect.Uint32},
		{"MaxSharedReceiveQueueDepth", reflect.Uint32},
		{"MaxCompletionQueueDepth", reflect.Uint32},
		{"InlineRequestThreshold", reflect.Uint32},
		{"LargeRequestThreshold", reflect.Uint32},
		{"MaxCallerData", reflect.Uint32},
		{"MaxCalleeData", reflect.Uint32},
		{"AdapterFlags", reflect.Uint32},
		{"MaxInterHostConnections", reflect.Uint32}, // an addition of this package
	}
	typ := reflect.TypeFor[AdapterInfo]()
	if typ.NumField() != len(want) || len(want) != 22 {
		t.Fatalf("AdapterInfo has %d fields, want 22", typ.NumField())
	}
	for i, w := range want {
		if f := typ.Field(i); f.Name != w.name || f.Type.Kind() != w.kind {
			t.Errorf("field %d is %s %v, want %s %v", i, f.Name, f.Type.Kind(), w.name, w.kind)
		}
	}
}

// whyEndpoint is an endpoint that only says why a request has failed.
type whyEndpoint struct {
	Endpoint
	err error
}

func (e whyEndpoint) Err() error            { return e.err }
func (e whyEndpoint) Done() <-chan struct{} { return nil }

func TestResultErr(t *testing.T) {
	why := &OpError{Op: "write", Object: "endpoint 3", Status: AccessViolation, Detail: "2 bytes past the window"}
	r := Result{Status: Canceled, RequestType: RequestSend, RequestContext: 7}
	err := Explain(whyEndpoint{err: why}, r)
	if !errors.Is(err, Canceled) || !errors.Is(err, AccessViolation) || StatusOf(err) != Canceled {
		t.Errorf("%v does not lead to both statuses", err)
	}
	const want = "nd: RequestSend 7: canceled (nd: write on endpoint 3: 2 bytes past the window: access violation)"
	if err.Error() != want {
		t.Errorf("%q, want %q", err, want)
	}
	const alone = "nd: RequestSend 7: the connection has ended: canceled: see the first failed result, or Endpoint.Err"
	for name, err := range map[string]error{"no endpoint": r.Err(), "nil": Explain(nil, r), "an endpoint without a cause": Explain(whyEndpoint{}, r)} {
		if err.Error() != alone {
			t.Errorf("with %s: %q, want %q", name, err, alone)
		}
	}
	r.Status = Success
	if err := errors.Join(Explain(whyEndpoint{err: why}, r), r.Err()); err != nil {
		t.Errorf("a success has the error %v", err)
	}
}

// Each status that the comments of the posts list for results has a meaning and a next step of its own.
func TestResultErrSaysWhatToDo(t *testing.T) {
	for _, s := range []Status{AccessViolation, BufferOverflow, Canceled, DataChecksumError, DataOverrun, InternalError, InvalidDeviceRequest, IOTimeout, NotSupported, RemoteError} {
		for typ := range requestTypeNames {
			var op *OpError
			if err := (Result{Status: s, RequestType: typ}).Err(); !errors.As(err, &op) || op.Status != s || op.Detail == "" || op.Next == "" {
				t.Errorf("%v of %v: %v", s, typ, err)
			}
		}
	}
	if size := reflect.TypeFor[Result]().Size(); size != 32 {
		t.Errorf("a result has %d bytes, want 32", size)
	}
}

// The immediate data of a result takes the place of the token, and no other result has any.
func TestImmediateData(t *testing.T) {
	for _, typ := range []RequestType{RequestReceiveImmediate, RequestReceiveWriteImmediate} {
		var r Result
		if r.SetImmediate(typ, 0xfedcba98); r.RequestType != typ {
			t.Errorf("the type is %v", r.RequestType)
		}
		if data, ok := r.Immediate(); !ok || data != 0xfedcba98 {
			t.Errorf("%v has %#x, %v", typ, data, ok)
		}
	}
	if data, ok := (Result{RequestType: RequestReceiveAndInvalidate, InvalidatedToken: 5}).Immediate(); ok {
		t.Errorf("a token is taken for immediate data %#x", data)
	}
}
