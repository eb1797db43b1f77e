package endpoint

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/softnd/softnd/nd"
	"github.com/softnd/softnd/shm"
)

// TestAccessErrorNamesRangeAndToken checks the error of a refused transfer at both sides. It names the endpoint, the operation, the
// token, the requested range, the permitted range, and the check that failed.
func TestAccessErrorNamesRangeAndToken(t *testing.T) {
	t.Parallel()
	const n = 1234
	const size = 256 << 10                  // of the first regions
	type texts struct{ a, b, fault string } // fault is said at both sides
	rangeText := func(length int, far nd.WindowDescriptor, permits string) string {
		return fmt.Sprintf("%d bytes at %#x with %v, which grants %s", length, far.Address, far.Token, permits)
	}
	all := func(d nd.WindowDescriptor) string {
		return fmt.Sprintf("%d bytes at %#x to read and write", size, d.Address)
	}
	const localToken = "nothing to a peer, since it is the local token of a region (pass the remote token of the peer's region or window)"
	const beyond = ": the range is outside the granted memory"
	for name, offend := range map[string]func(p *pair) texts{
		"write out of range": func(p *pair) texts {
			far := at(p.b.memory, size-n+1)
			p.a.must(order{Do: doWrite, Parts: mine(0, n), Far: far})
			text := rangeText(n, far, all(p.b.memory))
			return texts{"write on endpoint 1: " + text, "write", text + beyond}
		},
		"small write out of range": func(p *pair) texts {
			far := at(p.b.memory, size-7)
			p.a.must(order{Do: doWrite, Parts: mine(0, 8), Far: far})
			text := rangeText(8, far, all(p.b.memory))
			return texts{"write on endpoint 1: " + text, "write", text + beyond}
		},
		"read with a stale token": func(p *pair) texts {
			w := p.b.newWindow()
			far := p.b.bind(w, 0, n, nd.AllowRead)
			p.b.invalidate(w)
			p.a.must(order{Do: doRead, Parts: mine(0, n), Far: far})
			return texts{"read on endpoint 1: " + rangeText(n, far, fmt.Sprintf("nothing (invalidated; it covered %d bytes at %#x)", n, far.Address)),
				"read", "the token is not valid"}
		},
		"read through a window for writing": func(p *pair) texts {
			far := p.b.bind(p.b.newWindow(), 100, n, nd.AllowWrite)
			p.a.must(order{Do: doRead, Parts: mine(0, 10), Far: at(far, 5)})
			// It may have been taken away by the time that a looks.
			return texts{fmt.Sprintf("read on endpoint 1: 10 bytes at %#x with %v, which grants ", far.Address+5, far.Token),
				"read", "the token does not grant this right"}
		},
		"entry beyond its region": func(p *pair) texts {
			own := p.a.memory
			own.Token = nd.Token(p.a.must(order{Do: doRegionInfo}).Sum)
			p.a.must(order{Do: doWrite, Parts: mine(size-1, 2), Far: p.b.memory})
			return texts{"write on endpoint 1: ", "write: ", "scatter/gather entry of " + rangeText(2, at(own, size-1), all(own)) + beyond}
		},
		"entry without a token": func(p *pair) texts {
			own := p.a.memory
			own.Token = bogus
			p.a.must(order{Do: doRead, Parts: []part{{Len: n, Token: bogus}}, Far: p.b.memory})
			return texts{"read on endpoint 1: ", "read: ", "scatter/gather entry of " + rangeText(n, own, "nothing (no region or window has had this token: pass it unchanged, as its owner sent it): the token is not valid")}
		},
		"write with the peer's local token": func(p *pair) texts {
			far := p.b.memory
			far.Token = nd.Token(p.b.must(order{Do: doRegionInfo}).Sum)
			p.a.must(order{Do: doWrite, Parts: mine(0, n), Far: far})
			text := rangeText(n, far, localToken)
			return texts{"write on endpoint 1: " + text, "write", text}
		},
		"read with a local token of its own": func(p *pair) texts {
			far := p.b.memory
			far.Token = nd.Token(p.a.must(order{Do: doRegionInfo}).Sum)
			p.a.must(order{Do: doRead, Parts: mine(0, n), Far: far})
			return texts{"read on endpoint 1: " + rangeText(n, far, localToken), "read", ": the token is not valid"}
		},
		"entry with a remote token": func(p *pair) texts {
			own := p.a.memory
			p.a.must(order{Do: doWrite, Parts: []part{{Len: n, Token: own.Token}}, Far: p.b.memory})
			return texts{"write on endpoint 1: ", "write: ", "scatter/gather entry of " +
				rangeText(n, own, "nothing here, since it is a remote token (pass the local token of the region)")}
		},
		"receive without a token": func(p *pair) texts {
			own := p.b.memory
			own.Token = bogus
			p.b.must(order{Do: doReceive, Parts: []part{{Len: n, Token: bogus}}})
			p.a.must(order{Do: doSend, Parts: mine(0, n)})
			return texts{"send on endpoint 1: ", "receive on endpoint 1: ", "entry of " + rangeText(n, own, "nothing (no region or window has had this token: pass it unchanged, as its owner sent it): the token is not valid")}
		},
		"receive too small": func(p *pair) texts {
			p.b.must(order{Do: doReceive, Parts: mine(0, 1000)})
			p.a.must(order{Do: doSend, Parts: mine(0, n)})
			return texts{"send on endpoint 1: ", "receive on endpoint 1: ", "a message of 1234 bytes for a receive of 1000"}
		},
		"invalidation of a token of no window": func(p *pair) texts {
			p.b.must(order{Do: doReceive, Parts: mine(0, n)})
			p.a.must(order{Do: doSendRevoking, Parts: mine(0, n), Far: p.b.memory})
			return texts{"send and invalidate on endpoint 1: a message of 1234 bytes that invalidates " + p.b.memory.Token.String(),
				"receive on endpoint 1: ", p.b.memory.Token.String() + ", which names no bound window or registered region of this endpoint"}
		},
	} {
		t.Run(name, func(t *testing.T) {
			onEvery(t, setup{}, func(t *testing.T, p *pair) {
				want := offend(p)
				p.a.must(order{Do: doNotify})
				p.b.must(order{Do: doNotify})
				for side, words := range map[*side][]string{p.a: {want.a, want.fault}, p.b: {want.b, want.fault}} {
					got := side.do(order{Do: doWhy}).Text
					for _, words := range words {
						if !strings.Contains(got, words) {
							t.Errorf("%s says %q, want %q", side.name, got, words)
						}
					}
				}
			})
		})
	}
}

// TestBindErrorNamesRegion checks that the error of a refused Bind describes the region.
func TestBindErrorNamesRegion(t *testing.T) {
	p := newPair(t, setup{})
	s := p.a
	mem := make([]byte, 1000)
	mr := must(s.adapter.Register(context.Background(), mem, nd.AllowRemoteRead))
	defer mr.Close(s.ctx)
	mw := must(s.adapter.CreateMemoryWindow(context.Background()))
	defer mw.Close(s.ctx)
	err := s.endpointAt(0).Bind(1, mr, mw, mem[10:30], nd.AllowWrite)
	wantStatus(t, err, nd.AccessViolation)
	want := fmt.Sprintf("bind on endpoint 1: AllowWrite for 20 bytes at %#x with %v, which grants 1000 bytes at %#x to read",
		shm.AddressOf(mem)+10, mr.LocalToken(), shm.AddressOf(mem))
	if !strings.Contains(err.Error(), want) {
		t.Errorf("%q, want %q", err, want)
	}
}
