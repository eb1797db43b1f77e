package endpoint

import (
	"testing"
)

// An adapter of a host without a relay says that it reaches no other host. Package carry tests one with a relay.
func TestQueryWithoutRelay(t *testing.T) {
	p := newPair(t, setup{})
	info, err := p.a.adapter.Query()
	if err != nil || info.MaxInterHostConnections != 0 {
		t.Errorf("MaxInterHostConnections is %d, want 0: %v", info.MaxInterHostConnections, err)
	}
}
