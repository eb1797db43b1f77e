package endpoint

import (
	"context"
	"net/netip"
	"testing"

	"github.com/softnd/softnd/nd"
)

// TestRefusedCalls: calls without an effect, each with the status that names its cause.
func TestRefusedCalls(t *testing.T) {
	s := newUnconnected(t)
	p := s.provider
	ended, end := context.WithCancel(s.ctx)
	end()
	open := func(ctx context.Context, id nd.AdapterID) error {
		_, err := p.OpenAdapter(ctx, id)
		return err
	}
	wantStatus(t, open(s.ctx, p.adapterID()+1), nd.InvalidParameter)
	wantStatus(t, open(ended, p.adapterID()), nd.Canceled)
	for size, want := range map[int]nd.Status{-1: nd.InvalidParameter, 0: nd.InvalidBufferSize} {
		_, err := s.adapter.Allocate(s.ctx, size, nd.AllowLocalWrite)
		wantStatus(t, err, want)
	}
	_, err := s.adapter.Allocate(ended, 1, nd.AllowLocalWrite)
	wantStatus(t, err, nd.Canceled)

	l := must(s.adapter.CreateListener(s.ctx))
	wantStatus(t, l.Close(), nd.Success)
	wantStatus(t, l.Bind(netip.AddrPort{}), nd.InvalidHandle)
	c := must(s.adapter.CreateConnector(s.ctx))
	_, err = c.PeerAddress()
	wantStatus(t, err, nd.ConnectionInvalid)
	wantStatus(t, c.Close(), nd.Success)

	wantStatus(t, p.Close(), nd.Success)
	wantStatus(t, open(s.ctx, p.adapterID()), nd.InvalidHandle)
	if _, err := s.adapter.Allocate(s.ctx, 1, nd.AllowLocalWrite); err == nil {
		t.Error("memory of a closed provider")
	}
}
