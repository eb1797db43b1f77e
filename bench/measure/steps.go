package measure

import (
	"fmt"
	"time"

	"github.com/softnd/softnd/nd"
)

// leadIn is the number of operations of each queue pair before a timed loop: the other rank may not have left the
// barrier yet.
const leadIn = 16

// leadInBytes bounds the lead-in of large transfers.
const leadInBytes = 64 << 20

// leadIn returns the number of transfers before a timed loop.
func (l *link) leadIn() int { return max(1, min(leadIn*l.o.Pairs, leadInBytes/l.size)) }

// repeat makes n steps, or answers them, and returns how long they took.
func (t pingPong) repeat(l *link, n int) (time.Duration, error) {
	if !l.active() {
		return 1, t.respond(l, l.leadIn()+n) // not 0, which would be no time at all
	}
	if err := t.step(l, l.leadIn()); err != nil {
		return 0, err
	}
	start := time.Now()
	if err := t.step(l, n); err != nil {
		return 0, err
	}
	took := time.Since(start)
	return took, l.signal()
}

// pingWrites writes the next number to the other rank, and waits until that rank has written it back, n times.
func (l *link) pingWrites(n int) error {
	for range n {
		p := l.nextPair()
		p.seq++
		p.stamp.put(p.seq)
		if err := l.writeOn(p); err != nil {
			return err
		}
		if err := l.arrive(p); err != nil {
			return err
		}
	}
	return nil
}

// pongWrites is the other rank's part.
func (l *link) pongWrites(n int) error {
	for range n {
		p := l.nextPair()
		p.seq++
		if err := l.arrive(p); err != nil {
			return err
		}
		p.stamp.put(p.seq)
		if err := l.writeOn(p); err != nil {
			return err
		}
	}
	return nil
}

// pingAdds adds 1 to the other rank's number, and waits until that rank has done the same, n times.
func (l *link) pingAdds(n int) error {
	for range n {
		p := l.nextPair()
		p.seq++
		if err := l.addOn(p); err != nil {
			return err
		}
		if err := l.arrive(p); err != nil {
			return err
		}
	}
	return nil
}

// pongAdds is the other rank's part.
func (l *link) pongAdds(n int) error {
	for range n {
		p := l.nextPair()
		p.seq++
		if err := l.arrive(p); err != nil {
			return err
		}
		if err := l.addOn(p); err != nil {
			return err
		}
	}
	return nil
}

func (l *link) addOn(p *pair) error {
	if err := p.ep.FetchAndAdd(0, p.out, p.to, p.token, 1, 0); err != nil {
		return err
	}
	return l.complete(l.done + 1)
}

// arrive waits until the memory shows the pair's number. A rank that moves the bytes itself has to poll meanwhile.
// Other ranks read only the memory.
func (l *link) arrive(p *pair) error {
	word, mask, want := p.landed.word, p.landed.mask, p.landed.value(p.seq)
	if l.w.wire != nil {
		return l.arriveFar(p)
	}
	switch {
	case l.o.mustPoll():
		for word.Load()&mask != want {
			if err := l.poll(); err != nil {
				return err
			}
		}
	case l.o.Pinned: // a loop of its own, because any other check between two loads changes the time
		for word.Load()&mask != want {
		}
	default:
		for word.Load()&mask != want {
			l.rest(1)
		}
	}
	l.rests = 0
	return nil
}

// arriveFar is arrive between hosts. It returns when the connection has ended.
func (l *link) arriveFar(p *pair) error {
	for ended := p.ep.Done(); !p.landed.shows(p.seq); {
		select {
		case <-ended:
			return fmt.Errorf("write from the other host: %w", p.ep.Err())
		default:
		}
		if !l.o.mustPoll() {
			l.rest(1)
			continue
		}
		if err := l.poll(); err != nil {
			return err
		}
	}
	return nil
}

// writes posts a Write and takes its completion, n times.
func (l *link) writes(n int) error {
	for range n {
		if err := l.writeOn(l.nextPair()); err != nil {
			return err
		}
	}
	return nil
}

func (l *link) writeOn(p *pair) error {
	if err := p.ep.Write(0, nd.One(p.out), p.to, p.token, l.flags); err != nil {
		return err
	}
	return l.complete(l.done + 1)
}

// reads posts a Read and takes its completion, n times.
func (l *link) reads(n int) error {
	for range n {
		p := l.nextPair()
		if err := p.ep.Read(0, nd.One(p.out), p.to, p.token, 0); err != nil {
			return err
		}
		if err := l.complete(l.done + 1); err != nil {
			return err
		}
	}
	return nil
}

// pingSends sends a message and waits for the answer, n times.
func (l *link) pingSends(n int) error {
	for range n {
		if err := l.sendOn(l.nextPair()); err != nil {
			return err
		}
		if err := l.receive(); err != nil {
			return err
		}
	}
	return nil
}

// pongSends is the other rank's part. It returns when the last message is complete, because a sender has to poll while
// a long message is transferred.
func (l *link) pongSends(n int) error {
	for range n {
		if err := l.receive(); err != nil {
			return err
		}
		if err := l.sendOn(l.nextPair()); err != nil {
			return err
		}
	}
	return l.complete(l.posted)
}

// sendOn posts a Send. Then it posts a Receive for the one taken last, which does not delay the message.
func (l *link) sendOn(p *pair) error {
	if err := p.ep.Send(0, nd.One(p.out), l.flags); err != nil {
		return err
	}
	l.posted++
	return p.ep.Receive(0, nd.One(p.land))
}

// receive takes the next message, and all completions of Sends except the latest. It is poll without what a ping-pong
// does not need: sendOn posts the receives.
func (l *link) receive() error {
	l.expected++
	cq, results := l.cq, l.results
	lean := l.o.Pinned && !l.o.Events && l.w.wire == nil
	for l.received < l.expected || l.done < l.posted-1 {
		if !lean {
			if err := l.poll(); err != nil {
				return err
			}
			continue
		}
		for i := range results[:cq.Poll(results)] {
			switch r := &results[i]; {
			case r.Status != nd.Success:
				return l.failure(r)
			case r.RequestType == nd.RequestReceive:
				l.received++
			default:
				l.done++
			}
		}
	}
	return nil
}
