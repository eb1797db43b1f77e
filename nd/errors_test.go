package nd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"testing"
)

func TestOpErrorText(t *testing.T) {
	for _, tc := range []struct {
		err  OpError
		want string
	}{
		{
			OpError{Op: "write", Object: "endpoint 3", Detail: "2 bytes past the window (asked [96,106), granted [0,104))", Status: AccessViolation, Next: "check the length"},
			"nd: write on endpoint 3: 2 bytes past the window (asked [96,106), granted [0,104)): access violation: check the length",
		},
		{
			OpError{Op: "create endpoint", Object: "adapter", Detail: "2000, at most 1024", Status: InvalidParameter, Field: "InlineSize", Next: "see Adapter.Query", Err: io.EOF},
			"nd: create endpoint on adapter: 2000, at most 1024: invalid parameter (InlineSize) (EOF): see Adapter.Query",
		},
		{OpError{Op: "connect", Status: ConnectionRefused}, "nd: connect: connection refused"},
		{OpError{Object: "window 7", Status: DeviceBusy}, "nd: window 7: device busy"},
		{OpError{Status: IOTimeout}, "nd: I/O timeout"},
		{OpError{Op: "allocate", Status: NoMemory, Err: io.ErrShortWrite}, "nd: allocate: no memory (short write)"},
	} {
		if got := tc.err.Error(); got != tc.want {
			t.Errorf("got  %q\nwant %q", got, tc.want)
		}
	}
}

func TestOpErrorIs(t *testing.T) {
	cause := fmt.Errorf("reserve pages: %w", io.ErrUnexpectedEOF)
	var err error = &OpError{Op: "register", Status: NoMemory, Err: cause}
	err = fmt.Errorf("setting up: %w", err)
	for _, target := range []error{NoMemory, cause, io.ErrUnexpectedEOF} {
		if !errors.Is(err, target) {
			t.Errorf("errors.Is does not find %v", target)
		}
	}
	for _, target := range []error{AccessViolation, Success, context.Canceled} {
		if errors.Is(err, target) {
			t.Errorf("errors.Is finds %v", target)
		}
	}
	var op *OpError
	if !errors.As(err, &op) || op.Status != NoMemory {
		t.Errorf("errors.As gives %v", op)
	}
	if got := StatusOf(err); got != NoMemory {
		t.Errorf("StatusOf = %v, want NoMemory", got)
	}
	if got := (&OpError{Op: "x"}).Unwrap(); len(got) != 0 {
		t.Errorf("an empty error unwraps to %v", got)
	}
}

func TestCanceledError(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	err := CanceledError(ctx, "accept", "connector 2")
	if !errors.Is(err, Canceled) || !errors.Is(err, context.Canceled) {
		t.Errorf("%v: want Canceled and context.Canceled in it", err)
	}
	if got, want := err.Error(), "nd: accept on connector 2: canceled (context canceled)"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}

	ctx, cancel = context.WithTimeout(t.Context(), 0)
	defer cancel()
	<-ctx.Done()
	if err := CanceledError(ctx, "notify", ""); !errors.Is(err, Canceled) || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v: want Canceled and context.DeadlineExceeded in it", err)
	}

	ctx, cancelCause := context.WithCancelCause(t.Context())
	cancelCause(io.ErrClosedPipe)
	err = CanceledError(ctx, "notify", "completion queue 1")
	for _, target := range []error{Canceled, ctx.Err(), io.ErrClosedPipe} {
		if !errors.Is(err, target) {
			t.Errorf("%v: errors.Is does not find %v", err, target)
		}
	}
}

func TestStatusOf(t *testing.T) {
	for _, tc := range []struct {
		err  error
		want Status
	}{
		{nil, Success},
		{ConnectionAborted, ConnectionAborted},
		{&OpError{Op: "bind", Status: SharingViolation, Err: IOTimeout}, SharingViolation},
		{fmt.Errorf("x: %w", context.DeadlineExceeded), Canceled},
		{context.Canceled, Canceled},
		{io.EOF, Unsuccessful},
	} {
		if got := StatusOf(tc.err); got != tc.want {
			t.Errorf("StatusOf(%v) = %v, want %v", tc.err, got, tc.want)
		}
	}
}
