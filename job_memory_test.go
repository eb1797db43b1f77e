package softnd

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"testing"

	"github.com/softnd/softnd/internal/testkit/proctest"
	"github.com/softnd/softnd/nd"
)

// TestMemoryOutlivesJob: memory of one job that another job of the process has registered keeps its content when the first
// job is closed. Neither job registers memory of a closed region of the other.
func TestMemoryOutlivesJob(t *testing.T) {
	const size = 1 << 20
	ctx := proctest.Context(t)
	join := func(name string) *Job {
		j, err := Join(ctx, fmt.Sprint("softnd-test-", name, os.Getpid()), 0, 1)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := j.Close(); err != nil {
				t.Error(err)
			}
		})
		return j
	}
	owner, other := join("owner"), join("other")
	allocate := func() nd.MemoryRegion {
		r, err := owner.Adapter().Allocate(ctx, size, nd.AllowLocalWrite)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	first, second := allocate(), allocate()
	mem, unused := first.Bytes(), second.Bytes()
	if err := second.Close(); err != nil {
		t.Fatal(err)
	}
	register := func(mem []byte) (nd.MemoryRegion, error) {
		return other.Adapter().Register(ctx, mem, nd.AllowRemoteWrite)
	}
	if _, err := register(unused); !errors.Is(err, nd.AccessViolation) {
		t.Errorf("memory of a closed region of the other job: %v, want AccessViolation", err)
	}
	want := bytes.Repeat([]byte{7}, size)
	copy(mem, want)
	all, err := register(mem)
	if err != nil {
		t.Fatal(err)
	}
	if err := owner.Close(); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(mem, want) {
		t.Error("the memory has lost its content")
	}
	part, err := register(mem[size/2:])
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range []nd.MemoryRegion{all, part} {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	}
	if _, err := register(mem); !errors.Is(err, nd.AccessViolation) {
		t.Errorf("memory of no open region: %v, want AccessViolation", err)
	}
}
