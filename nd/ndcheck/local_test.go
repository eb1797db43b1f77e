//go:build linux

package ndcheck_test

import (
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/softnd/softnd/nd"
)

// mappedEntry returns an entry with the privileged token.
func mappedEntry(s *side) nd.SGE {
	_, err := s.job.Adapter().BuildLogicalAddressMapping(s.ctx, s.mr.Bytes())
	s.must(err)
	token, err := s.job.Adapter().PrivilegedToken()
	s.must(err)
	return nd.SGE{Buffer: s.mr.Bytes()[:8], Token: token}
}

// The privileged token is one that a process has issued.
func TestPrivilegedToken(t *testing.T) {
	for name, p := range map[string]struct {
		rule string
		post func(s *side, d nd.WindowDescriptor)
	}{
		"beyond the window": {"N102", func(s *side, d nd.WindowDescriptor) {
			s.must(s.ep.Write(1, nd.One(mappedEntry(s)), d.Address+60, d.Token, 0))
		}},
		"a Read without the right": {"N103", func(s *side, d nd.WindowDescriptor) {
			s.must(nd.ReadFrom(s.ep, 1, nd.One(mappedEntry(s)), d, 0))
		}},
		"instead of a remote token": {"N104", func(s *side, d nd.WindowDescriptor) {
			d.Token = mappedEntry(s).Token
			s.must(nd.WriteTo(s.ep, 1, s.sge(0, 8), d, 0))
		}},
	} {
		t.Run(name, func(t *testing.T) {
			expectRule(t, p.rule, watch(t, nd.EndpointConfig{}, 64, func(s *side) { s.give(s.bind(0, 64, nd.AllowWrite).Descriptor()); s.barrier() }, func(s *side) {
				p.post(s, s.get())
				s.result(s.init)
				s.barrier()
			}))
		})
	}
}

// A local token grants no range to peers, so a report of its use as a remote one names no offset.
func TestLocalTokenHasNoOffset(t *testing.T) {
	for name, token := range map[string]func(s *side) nd.Token{
		"privileged":  func(s *side) nd.Token { return mappedEntry(s).Token },
		"of a region": func(s *side) nd.Token { return s.mr.LocalToken() },
	} {
		t.Run(name, func(t *testing.T) {
			found := watch(t, nd.EndpointConfig{}, 64, func(s *side) { s.give(s.bind(0, 64, nd.AllowWrite).Descriptor()); s.barrier() }, func(s *side) {
				d := s.get()
				d.Token = token(s)
				s.writeTo(d, 0)
			})
			expectRule(t, "N104", found)
			for _, f := range found {
				if strings.Contains(f.What, "offset") {
					t.Error(f)
				}
			}
		})
	}
}

// The bytes of an entry with the privileged token are compared, too.
func TestChangeOfMappedMemory(t *testing.T) {
	expectRule(t, "N201", watch(t, nd.EndpointConfig{}, 64, func(s *side) {
		s.must(s.ep.Receive(1, s.sge(0, 64)))
		s.barrier()
		s.received()
		s.barrier()
	}, func(s *side) {
		s.barrier()
		s.must(s.ep.Send(1, nd.One(mappedEntry(s)), 0))
		s.mr.Bytes()[5]++
		s.done()
		s.barrier()
	}))
}

// A request whose buffer the process cannot access fails as it does without the checker.
func TestPostsOfUnmappedMemory(t *testing.T) {
	for name, post := range map[string]func(s *side, sge nd.SGL){
		"Send":    func(s *side, sge nd.SGL) { s.must(s.ep.Send(1, sge, 0)); s.barrier(); s.result(s.init) },
		"Receive": func(s *side, sge nd.SGL) { s.must(s.ep.Receive(1, sge)); s.barrier(); s.result(s.recv) },
	} {
		t.Run(name, func(t *testing.T) {
			expectRule(t, "N101", watch(t, nd.EndpointConfig{}, 64, func(s *side) {
				s.must(s.ep.Receive(1, s.sge(0, 64)))
				s.barrier()
				s.must(s.ep.Send(2, s.sge(64, 64), nd.SilentSuccess))
				s.barrier()
			}, func(s *side) {
				mem, err := unix.Mmap(-1, 0, memory, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
				s.must(err)
				mr, err := s.job.Adapter().Register(s.ctx, mem, nd.AllowLocalWrite)
				s.must(err)
				sge := nd.One(nd.SGEOf(mr, 0, 64))
				s.must(mr.Close(s.ctx))
				s.must(unix.Munmap(mem))
				post(s, sge)
				s.barrier()
			}))
		})
	}
}

// The checker does not read memory that the program has unmapped.
func TestUnmappedMemory(t *testing.T) {
	found := watch(t, nd.EndpointConfig{}, 64, func(s *side) {
		s.must(s.ep.Receive(1, s.sge(0, 64)))
		s.must(s.ep.Receive(2, nd.SGL{}))
		s.barrier()
		s.received()
		s.received()
		s.barrier()
	}, func(s *side) {
		s.barrier()
		mem, err := unix.Mmap(-1, 0, memory, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
		s.must(err)
		mr, err := s.job.Adapter().Register(s.ctx, mem, 0)
		s.must(err)
		s.must(s.ep.Send(1, nd.One(nd.SGEOf(mr, 0, 64)), nd.SilentSuccess))
		s.must(s.ep.Send(2, nd.SGL{}, 0))
		time.Sleep(50 * time.Millisecond) // until the messages have arrived
		s.must(mr.Close(s.ctx))
		s.must(unix.Munmap(mem))
		s.done()
		s.barrier()
	})
	if len(found) != 1 || found[0].Rule.ID != "N402" {
		t.Error(found)
	}
}

// A buffer without the right to store into it is named, too.
func TestLocalRight(t *testing.T) {
	found := watch(t, nd.EndpointConfig{}, 64, func(s *side) { s.give(s.bind(0, 64, nd.AllowRead).Descriptor()); s.barrier() }, func(s *side) {
		d := s.get()
		mr, err := s.job.Adapter().Allocate(s.ctx, 64, 0)
		s.must(err)
		s.must(s.ep.Read(1, nd.One(nd.SGEOf(mr, 0, 64)), d.Address, d.Token, 0))
		s.result(s.init)
		s.barrier()
	})
	if len(found) != 1 || found[0].Rule.ID != "N103" || found[0].OtherRank != 1 {
		t.Error(found)
	}
}
