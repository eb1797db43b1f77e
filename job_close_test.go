package softnd

import (
	"errors"
	"testing"

	"github.com/softnd/softnd/internal/proctest"
	"github.com/softnd/softnd/nd"
)

// A Close that is deferred past a panic takes effect when the panic has been recovered.
func TestCloseWaitsForPanic(t *testing.T) {
	ctx := t.Context()
	j, err := Init(ctx)
	if err != nil {
		t.Fatal(err)
	}
	region, err := j.Adapter().Allocate(ctx, 4096, nd.AllowLocalWrite)
	if err != nil {
		t.Fatal(err)
	}
	func() {
		defer func() {
			if recover() == nil {
				t.Error("no panic arrives")
			}
		}()
		defer func() {
			if err := j.Close(); !errors.Is(err, nd.Pending) {
				t.Errorf("Job.Close while a panic unwinds: %v, want Pending", err)
			}
		}()
		defer func() {
			if err := region.Close(); !errors.Is(err, nd.Pending) {
				t.Errorf("MemoryRegion.Close while a panic unwinds: %v, want Pending", err)
			}
		}()
		panic("for the test")
	}()
	if err := j.Barrier(ctx); err != nil {
		t.Errorf("the job right after the panic: %v", err)
	}
	proctest.Eventually(t, "the job is closed", func() bool { return errors.Is(j.Barrier(ctx), nd.InvalidHandle) })
	const want = "nd: barrier on job: the job is closed: invalid handle: make the call before Job.Close"
	if err := j.Barrier(ctx); err == nil || err.Error() != want {
		t.Errorf("Barrier: %v, want %s", err, want)
	}
	if err := j.Close(); err != nil {
		t.Errorf("Close again: %v", err)
	}
}
