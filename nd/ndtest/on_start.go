package ndtest

import "github.com/softnd/softnd/nd"

var startScenarios = []scenario{
	{id: "C019", title: "a completion ends a Notify", active: func(s *side) {
		c := s.pair(shape{})
		s.meet()
		c.must(c.ep.Send(7, c.sge(0, 64), 0))
		c.done(nd.Success, 7)
		c.alive()
	}, passive: func(s *side) {
		c := s.pair(shape{})
		c.must(c.ep.Receive(9, c.sge(0, 128)))
		s.meet()
		if r := c.received(nd.Success, 9); r.BytesTransferred != 64 {
			s.errorf("%d bytes", r.BytesTransferred)
		}
		c.alive()
	}},
}
