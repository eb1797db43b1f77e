package endpoint

import (
	"sync"
	"testing"

	"github.com/softnd/softnd/internal/testkit/proctest"
	"github.com/softnd/softnd/nd"
)

// A request that comes while another goroutine reads the inbox, and that is not read when the program closes the listener, is refused,
// although the program makes no call.
func TestListenerCloseRefusesUnreadRequest(t *testing.T) {
	p := newPair(t, setup{Unwired: true})
	a, b := p.a, p.b
	addr := b.listen(2)
	provider := b.provider
	connector, ep := a.newConnector(), a.newEndpoint()
	provider.inboxMu.Lock()
	unlock := sync.OnceFunc(provider.inboxMu.Unlock)
	defer unlock() // before the cleanups, if the test fails
	end := soon(func() error { return connector.Connect(a.ctx, ep, addr, nd.ConnectParams{}) })
	proctest.Eventually(t, "the request is in the inbox", provider.member.HasMail)
	err := b.listener.Close()
	unlock()
	b.good(err)
	wantStatus(t, proctest.Receive(t, "Connect ends", end), nd.ConnectionRefused)
}
