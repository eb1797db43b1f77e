package launcher

import (
	"os"
	"strings"
	"testing"
)

// What has been prepared and is not run leaves nothing behind.
func TestPreparedInVain(t *testing.T) {
	for range 5 {
		p := Prepare(3)
		p.Close()
		p.Close()
	}
	if left, err := descendants(os.Getpid()); err != nil || len(left) > 0 {
		t.Errorf("%v, %v", left, err)
	}
}

func TestPreparedForAnotherJob(t *testing.T) {
	p := Prepare(3)
	cfg := config("plan", 2)
	if r, err := p.Run(t.Context(), cfg); r != nil || err == nil || !strings.Contains(err.Error(), "Config has 2 ranks, Prepare was called for 3") {
		t.Errorf("%v, %v", r, err)
	}
	if left, err := descendants(os.Getpid()); err != nil || len(left) > 0 {
		t.Errorf("%v, %v", left, err)
	}
}
