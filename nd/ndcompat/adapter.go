package ndcompat

import (
	"context"
	"fmt"

	"github.com/softnd/softnd/nd"
)

// InfoVersion1 and InfoVersion2 are the versions of [AdapterInfo] that [Query] accepts. Both have the same fields. The
// documentation of NetworkDirect uses version 1; existing programs use version 2.
const (
	InfoVersion1 uint32 = 1
	InfoVersion2 uint32 = 0x20000
)

// AdapterInfo is [nd.AdapterInfo] with the version of the structure. Source: ND2_ADAPTER_INFO.
type AdapterInfo struct {
	InfoVersion uint32 // the version that Query was called with
	nd.AdapterInfo
}

// Query is [nd.Adapter.Query] with the version of the structure.
//
// Errors: [nd.InvalidParameter] unless version is InfoVersion1 or InfoVersion2; those of Query.
// Source: IND2Adapter::Query.
func Query(a nd.Adapter, version uint32) (AdapterInfo, error) {
	if version != InfoVersion1 && version != InfoVersion2 {
		return AdapterInfo{}, &nd.OpError{Op: "query", Object: "adapter", Status: nd.InvalidParameter, Field: "version",
			Detail: fmt.Sprintf("structure version %#x", version), Next: "ask for InfoVersion2"}
	}
	info, err := a.Query()
	return AdapterInfo{version, info}, err
}

// Controller is an optional interface of adapters that have commands of their own. Use the function [Control].
type Controller interface {
	// Control runs the command code. in is its input. The output is written to out, and Control returns the length of the
	// output.
	//
	// Errors: [nd.NotSupported] if the provider does not know code; [nd.BufferOverflow] if out is too short, with the length
	// that is needed; other errors that the provider documents.
	// Source: INDAdapter::Control.
	Control(ctx context.Context, code uint32, in, out []byte) (int, error)
}

// Control calls [Controller.Control] of the adapter. It fails with [nd.NotSupported] if the adapter is no Controller.
func Control(ctx context.Context, a nd.Adapter, code uint32, in, out []byte) (int, error) {
	if c, ok := a.(Controller); ok {
		return c.Control(ctx, code, in, out)
	}
	return 0, &nd.OpError{Op: "control", Object: "adapter", Status: nd.NotSupported, Detail: "the adapter has no commands"}
}
