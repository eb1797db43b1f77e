package nd

import (
	"errors"
	"reflect"
	"testing"
)

// A provider that embeds the types answers optional calls with NotSupported, or with a zero value. The text names the call.
func TestUnsupportedCalls(t *testing.T) {
	calls := 0
	for _, object := range []any{UnsupportedProvider{}, UnsupportedAdapter{}, UnsupportedCompletionQueue{}, UnsupportedSharedReceiveQueue{}, UnsupportedEndpoint{},
		UnsupportedConnector{}, UnsupportedListener{}, UnsupportedMemoryRegion{}, UnsupportedMemoryWindow{}, UnsupportedLogicalMapping{}} {
		v := reflect.ValueOf(object)
		for i := range v.NumMethod() {
			call, name := v.Method(i), v.Type().Name()+"."+v.Type().Method(i).Name
			var args []reflect.Value
			for j := range call.Type().NumIn() {
				args = append(args, reflect.Zero(call.Type().In(j)))
			}
			results := call.Call(args)
			calls++
			if len(results) == 1 && results[0].Kind() != reflect.Interface {
				if !results[0].IsZero() {
					t.Errorf("%s returns %v, want the zero value", name, results[0])
				}
				continue
			}
			err, _ := results[len(results)-1].Interface().(error)
			var e *OpError
			if !errors.Is(err, NotSupported) || !errors.As(err, &e) || e.Op == "" || e.Object == "" || e.Next == "" {
				t.Errorf("%s returns %v", name, err)
			}
		}
	}
	if calls < 10 {
		t.Errorf("%d calls are optional", calls)
	}
}
