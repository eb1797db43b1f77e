//go:build linux

package ndcheck_test

import (
	"sync"
	"testing"
	"time"

	"github.com/softnd/softnd/nd"
)

// fastRegistration returns a request to register the first n bytes of a mapping of s.mr, in a new region.
func (s *side) fastRegistration(n int) nd.FastRegistration {
	a := s.job.Adapter()
	mapping, err := a.BuildLogicalAddressMapping(s.ctx, s.mr.Bytes())
	s.must(err)
	mr, err := a.CreateMemoryRegion(s.ctx)
	s.must(err)
	s.must(mr.InitializeFastRegister(s.ctx, len(mapping.Pages()), true))
	return nd.FastRegistration{Region: mr, Pages: mapping.Pages(), Offset: mapping.Offset(), Length: n, BaseAddress: 1 << 20,
		Rights: nd.AllowLocalWrite | nd.AllowRemoteWrite}
}

// registerAgain registers memory, ends that by end, and registers half of it, all without a result in between. It returns
// descriptors with the token of each registration.
func (s *side) registerAgain(end func(mr nd.MemoryRegion)) (before, after nd.WindowDescriptor) {
	f := s.fastRegistration(memory)
	s.must(s.ep.FastRegister(1, f, nd.SilentSuccess))
	before = nd.WindowDescriptor{Address: f.BaseAddress, Length: memory, Token: f.Region.RemoteToken()}
	end(f.Region)
	f.Length = memory / 2
	s.must(s.ep.FastRegister(3, f, nd.SilentSuccess))
	after = nd.WindowDescriptor{Address: f.BaseAddress, Length: memory / 2, Token: f.Region.RemoteToken()}
	s.must(s.ep.Send(4, nd.SGL{}, 0))
	s.done()
	return before, after
}

// writeTo writes 8 bytes to memory of the peer.
func (s *side) writeTo(d nd.WindowDescriptor, offset uint64) {
	s.must(s.ep.Write(1, s.sge(0, 8), d.Address+offset, d.Token, 0))
	s.result(s.init)
	s.barrier()
}

// A region gets new tokens when FastRegister is posted, although the request that ends its registration has no result yet.
func TestRegisterAgain(t *testing.T) {
	invalidate := func(s *side, mr nd.MemoryRegion, _ nd.WindowDescriptor) {
		s.must(s.ep.InvalidateRegion(2, mr, nd.SilentSuccess))
	}
	read := func(s *side, mr nd.MemoryRegion, from nd.WindowDescriptor) {
		sge := nd.SGE{Buffer: s.mr.Bytes()[:8], Token: mr.LocalToken()}
		s.must(nd.ReadFrom(s.ep, 2, nd.One(sge), from, nd.ReadLocalInvalidate|nd.SilentSuccess))
	}
	for name, p := range map[string]struct {
		end    func(s *side, mr nd.MemoryRegion, from nd.WindowDescriptor)
		isOld  bool // the peer uses the token of the first registration
		offset uint64
		rule   string
	}{
		"invalidated, the old token":               {invalidate, true, 0, "N101"},
		"invalidated, beyond the new registration": {invalidate, false, memory - 8, "N102"},
		"invalidated, the new registration":        {invalidate, false, 0, ""},
		"read into, the old token":                 {read, true, 0, "N101"},
		"read into, beyond the new registration":   {read, false, memory - 8, "N102"},
		"read into, the new registration":          {read, false, 0, ""},
	} {
		t.Run(name, func(t *testing.T) {
			expectRule(t, p.rule, watch(t, nd.EndpointConfig{}, 64, func(s *side) {
				from := s.get()
				before, after := s.registerAgain(func(mr nd.MemoryRegion) { p.end(s, mr, from) })
				if p.isOld {
					after = before
				}
				s.give(after)
				s.barrier()
			}, func(s *side) {
				s.must(s.ep.Receive(1, nd.SGL{}))
				s.give(s.bind(64, 8, nd.AllowRead).Descriptor())
				s.received()
				s.writeTo(s.get(), p.offset)
			}))
		})
	}
}

// A fast registration ends with the connection that has made it, also for peers on other connections.
func TestRegistrationEnds(t *testing.T) {
	for name, end := range map[string]func(s *side){
		"closed":  func(s *side) { s.must(s.ep.Close()) },
		"flushed": func(s *side) { s.must(s.ep.Flush(s.ctx)) },
	} {
		t.Run(name, func(t *testing.T) {
			found := watch(t, nd.EndpointConfig{}, 64, func(s *side) {
				s.second()
				d := nd.WindowDescriptor{Address: 1 << 20, Length: memory, Token: s.registerFast().RemoteToken()}
				end(s)
				s.give(d)
				s.barrier()
			}, func(s *side) {
				s.ep = s.second()
				s.writeTo(s.get(), 0)
			})
			expectRule(t, "N101", found)
			if len(found) == 1 && found[0].OtherRank != 0 {
				t.Error(found)
			}
		})
	}
}

// Tokens of a connection that the peer has disconnected stay valid until this side ends the connection, too.
func TestTokensAfterDisconnect(t *testing.T) {
	registered := func(s *side) nd.WindowDescriptor {
		return nd.WindowDescriptor{Address: 1 << 20, Length: memory, Token: s.registerFast().RemoteToken()}
	}
	bound := func(s *side) nd.WindowDescriptor { return s.bind(0, 64, nd.AllowWrite).Descriptor() }
	hears := func(s *side) { s.must(s.ep.Connector().NotifyDisconnect(s.ctx)) }
	posts := func(s *side) {
		for s.ep.Err() == nil && s.ctx.Err() == nil {
			time.Sleep(time.Millisecond)
		}
		s.must(s.ep.Send(1, nd.SGL{}, 0))
		s.mustBe(s.init, nd.Canceled)
	}
	both := func(first func(s *side)) func(s *side) {
		return func(s *side) { first(s); s.must(s.ep.Connector().Disconnect(s.ctx)) }
	}
	for name, p := range map[string]struct {
		grant  func(s *side) nd.WindowDescriptor
		end    func(s *side)
		offset uint64
		rule   string
	}{
		"registered, within":                 {registered, hears, 0, ""},
		"registered, beyond":                 {registered, hears, memory - 4, "N102"},
		"registered, beyond, after a post":   {registered, posts, memory - 4, "N102"},
		"registered, after a Disconnect":     {registered, both(hears), 0, "N101"},
		"bound, beyond":                      {bound, hears, 60, "N102"},
		"bound, beyond, after a post":        {bound, posts, 60, "N102"},
		"bound, after a Disconnect":          {bound, both(hears), 0, "N101"},
		"bound, after a post and Disconnect": {bound, both(posts), 0, "N101"},
	} {
		t.Run(name, func(t *testing.T) {
			expectRule(t, p.rule, watch(t, nd.EndpointConfig{}, 64, func(s *side) {
				s.second()
				d := p.grant(s)
				s.tell()
				p.end(s)
				s.give(d)
				s.barrier()
				_ = s.ep.Connector().Disconnect(s.ctx) // it may have disconnected already
			}, func(s *side) {
				ep := s.second()
				s.hear()
				var disconnect sync.WaitGroup
				defer disconnect.Wait()
				first := s.ep.Connector()
				disconnect.Go(func() { _ = first.Disconnect(s.ctx) })
				s.ep = ep
				s.writeTo(s.get(), p.offset)
			}))
		})
	}
}

// A registration whose end is in the queue ends with the connection, although a later FastRegister has given the region other tokens.
func TestReplacedRegistrationEnds(t *testing.T) {
	for name, end := range map[string]func(s *side){
		"closed":      func(s *side) { s.must(s.ep.Close()) },
		"flushed":     func(s *side) { s.must(s.ep.Flush(s.ctx)) },
		"by the peer": func(s *side) { s.tell(); s.mustBe(s.init, nd.Canceled) },
	} {
		t.Run(name, func(t *testing.T) {
			found := except("N602", watch(t, nd.EndpointConfig{}, 64, func(s *side) {
				s.second()
				f := s.fastRegistration(memory)
				s.must(s.ep.FastRegister(1, f, 0))
				s.done()
				d := nd.WindowDescriptor{Address: f.BaseAddress, Length: memory, Token: f.Region.RemoteToken()}
				s.must(s.ep.Send(2, nd.SGL{}, 0)) // the peer has no Receive for it
				s.must(s.ep.InvalidateRegion(3, f.Region, 0))
				s.must(s.ep.FastRegister(4, f, 0))
				end(s)
				s.give(d)
				s.barrier()
			}, func(s *side) {
				ep := s.second()
				if name == "by the peer" {
					s.hear()
					s.must(s.ep.Close())
				}
				s.ep = ep
				s.writeTo(s.get(), 0)
			}))
			expectRule(t, "N101", found)
			if len(found) == 1 && found[0].OtherRank != 0 {
				t.Error(found)
			}
		})
	}
}

// Writes of peers to a registration that has ended are heard of until the region is closed.
func TestHeardAfterTheEnd(t *testing.T) {
	for name, hears := range map[string]bool{"": true, "N303": false} {
		t.Run(name, func(t *testing.T) {
			expectRule(t, name, watch(t, nd.EndpointConfig{}, 64, func(s *side) {
				s.second()
				mr := s.registerFast()
				s.give(nd.WindowDescriptor{Address: 1 << 20, Length: memory, Token: mr.RemoteToken()})
				s.tell() // so that it learns nothing by give after the Write
				s.hear() // the writer has its result
				s.must(s.ep.Close())
				if hears {
					s.barrier()
				}
				s.must(mr.Close(s.ctx))
				if !hears {
					s.barrier()
				}
			}, func(s *side) {
				s.ep = s.second()
				s.mr.Bytes()[7] = 1
				d := s.get()
				s.hear()
				s.must(s.ep.Write(1, s.sge(0, 8), d.Address, d.Token, 0))
				s.done()
				s.tell()
				s.barrier()
			}))
		})
	}
}
