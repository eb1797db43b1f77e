package cq

import (
	"reflect"
	"testing"

	"github.com/softnd/softnd/nd"
)

// TestCompletionKeepsAllFields: a queued result preserves all fields of a result, also fields added in
// the future.
func TestCompletionKeepsAllFields(t *testing.T) {
	var from, to nd.Result
	v := reflect.ValueOf(&from).Elem()
	for i := range v.NumField() {
		v.Field(i).SetUint((1<<63 + uint64(i+1)<<32) >> (64 - v.Field(i).Type().Bits()))
	}
	from.RequestType &^= hasDetails // no request type uses this bit
	c := Result{Slots: &Slots{Context: from.EndpointContext}}
	c.Set(&from)
	if c.Get(&to); to != from {
		t.Errorf("%v became %v", from, to)
	}
	// A result without details does not show those of the slot's previous one.
	c.SetSuccess(nd.RequestSend, 5, 6)
	if c.Get(&to); to != (nd.Result{BytesTransferred: 5, EndpointContext: from.EndpointContext, RequestContext: 6, RequestType: nd.RequestSend}) {
		t.Errorf("a success became %v", to)
	}
}
