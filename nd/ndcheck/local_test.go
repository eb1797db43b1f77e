//go:build linux

package ndcheck_test

import (
	"testing"

	"github.com/softnd/softnd/nd"
)

// The privileged token is one that a process has issued.
func TestPrivilegedToken(t *testing.T) {
	entry := func(s *side) nd.SGE {
		_, err := s.job.Adapter().BuildLogicalAddressMapping(s.ctx, s.mr.Bytes())
		s.must(err)
		token, err := s.job.Adapter().PrivilegedToken()
		s.must(err)
		return nd.SGE{Buffer: s.mr.Bytes()[:8], Token: token}
	}
	for name, p := range map[string]struct {
		rule string
		post func(s *side, d nd.WindowDescriptor)
	}{
		"beyond the window": {"N102", func(s *side, d nd.WindowDescriptor) {
			s.must(s.ep.Write(1, nd.One(entry(s)), d.Address+60, d.Token, 0))
		}},
		"a Read without the right": {"N103", func(s *side, d nd.WindowDescriptor) {
			s.must(nd.ReadFrom(s.ep, 1, nd.One(entry(s)), d, 0))
		}},
		"instead of a remote token": {"N104", func(s *side, d nd.WindowDescriptor) {
			d.Token = entry(s).Token
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
