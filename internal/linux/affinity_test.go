package linux

import (
	"runtime"
	"slices"
	"testing"
)

func TestBindRestoresAffinity(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	before, err := CPUs()
	if err != nil || len(before) == 0 {
		t.Fatalf("%v, %v", before, err)
	}
	last := before[len(before)-1]
	restore, err := BindThread([]int{last})
	if err != nil {
		t.Fatal(err)
	}
	if got, err := CPUs(); err != nil || !slices.Equal(got, []int{last}) {
		t.Errorf("bound to %v, %v; want processor %d", got, err, last)
	}
	if err := restore(); err != nil {
		t.Error(err)
	}
	if got, err := CPUs(); err != nil || !slices.Equal(got, before) {
		t.Errorf("restored to %v, %v; want %v", got, err, before)
	}
}

func TestBindWithoutProcessorsDoesNothing(t *testing.T) {
	restore, err := BindThread(nil)
	if err != nil || restore() != nil {
		t.Error(err)
	}
}
