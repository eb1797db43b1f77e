package measure

import "github.com/softnd/softnd/nd"

// flow posts out requests, as many at once as the depth allows. It returns when they are complete and in messages have
// arrived. Further messages count for the next call.
func (l *link) flow(kind nd.RequestType, out, in int) error {
	l.expected += in
	switch {
	case len(l.pairs) > 1 || l.o.Events || out > 0 && in > 0:
		return l.flowBoth(kind, out)
	case out > 0:
		return l.flowOut(kind, out)
	}
	return l.flowIn()
}

// flowBoth is flow in the general case.
func (l *link) flowBoth(kind nd.RequestType, out int) error {
	left, out := out, l.done+out
	for l.done < out || l.received < l.expected {
		for left > 0 && out-left-l.done < l.depth {
			if err := l.post(kind, l.nextPair()); err != nil {
				return err
			}
			left--
		}
		if err := l.poll(); err != nil {
			return err
		}
	}
	return nil
}

func (l *link) post(kind nd.RequestType, p *pair) error {
	switch kind {
	case nd.RequestWrite:
		return p.ep.Write(0, nd.One(p.out), p.to, p.token, l.flags)
	case nd.RequestRead:
		return p.ep.Read(0, nd.One(p.out), p.to, p.token, 0)
	}
	return p.ep.Send(0, nd.One(p.out), l.flags)
}

// flowOut is flow of requests on one queue pair without incoming messages. It does as much as possible before the loop.
func (l *link) flowOut(kind nd.RequestType, n int) error {
	p, cq, results, depth, flags := &l.pairs[0], l.cq, l.results, l.depth, l.flags
	ep, out, to, token := p.ep, p.out, p.to, p.token
	for left, under := n, 0; left > 0 || under > 0; {
		for left > 0 && under < depth {
			var err error
			switch kind {
			case nd.RequestWrite:
				err = ep.Write(0, nd.One(out), to, token, flags)
			case nd.RequestRead:
				err = ep.Read(0, nd.One(out), to, token, 0)
			default:
				err = ep.Send(0, nd.One(out), flags)
			}
			if err != nil {
				return err
			}
			left, under = left-1, under+1
		}
		got := results[:cq.Poll(results)]
		if len(got) == 0 {
			l.rest(loadsOfPoll)
		} else {
			l.rests = 0
		}
		for i := range got {
			if got[i].Status != nd.Success {
				return l.failure(&got[i])
			}
		}
		under -= len(got)
	}
	l.done += n
	return nil
}

// flowIn is flow of incoming messages on one queue pair that posts only receives.
func (l *link) flowIn() error {
	p, cq, results := &l.pairs[0], l.cq, l.results
	ep, land := p.ep, p.land
	for l.received < l.expected {
		got := results[:cq.Poll(results)]
		if len(got) == 0 {
			l.rest(loadsOfPoll)
		} else {
			l.rests = 0
		}
		for i := range got {
			if got[i].Status != nd.Success {
				return l.failure(&got[i])
			}
			if err := ep.Receive(0, nd.One(land)); err != nil {
				return err
			}
		}
		l.received += len(got)
	}
	return nil
}
