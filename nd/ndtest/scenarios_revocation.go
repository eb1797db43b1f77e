package ndtest

import (
	"bytes"
	"fmt"

	"github.com/softnd/softnd/nd"
)

// state is what has become of a grant, or of its object, when it is taken away. It returns the
// two halves for each way, the user's first.
type state struct {
	name   string
	halves func(way) (active, passive func(*side))
}

// revocationScenarios are no rows of the conformance table: every way to take access away meets
// every state. Some connections of the two adapters offend each time, and the others go on.
var revocationScenarios = revocations()

func revocations() (list []scenario) {
	for _, st := range []state{
		{"a grant that is being used now and then", inUse},
		{"a grant with a transfer (of 4 MiB) in progress", inProgress(1)},
		{"a grant with transfers (of 4 MiB together) of three peers in progress", inProgress(3)},
		{"what was granted again", grantedAgain},
		{"what was never granted", neverGranted},
		{"what was taken away already", takenAlready},
		{"what is another adapter's", ofAnotherAdapter},
	} {
		for _, w := range ways {
			a, p := st.halves(w)
			list = append(list, scenario{
				id: fmt.Sprintf("R%03d", len(list)+1), title: w.name + " of " + st.name, active: a, passive: p,
			})
		}
	}
	return list
}

func inUse(w way) (active, passive func(*side)) {
	return func(s *side) {
			base := s.pair(shape{})
			writer, reader := base.another(), base.another()
			d := hear[nd.WindowDescriptor](s)
			base.writes(nd.Success, 0, 1000, d, 0)
			writer.writes(nd.Success, 0, 1000, d, 0)
			reader.reads(nd.Success, 0, 1000, d, 0)
			s.meet()
			w.took(base, d)
			s.meet() // it is taken away, and the memory changed
			writer.refusedWrite(0, 8, d, 0)
			reader.refusedRead(0, 1000, d, 0)
			if bytes.IndexByte(reader.memory.mem, afterwards) >= 0 {
				s.errorf("a Read that was refused has brought something")
			}
			base.alive()
		}, func(s *side) {
			base := s.pair(shape{})
			writer, reader := base.another(), base.another()
			g := base.grants(w, base.memory.mem)
			s.meet()
			g.take(g)
			paint(g.mem, afterwards)
			s.meet()
			writer.isOver()
			reader.isOver()
			s.painted(g.mem, afterwards)
			base.alive()
		}
}

// inProgress has n peers read and write at the same time, each its own part of the memory. Which
// of them are still at it when the grant goes is a matter of luck, so there are some rounds.
func inProgress(n int) func(way) (active, passive func(*side)) {
	const size, rounds = 4 << 20, 2
	part := size / n
	return func(w way) (active, passive func(*side)) {
		return func(s *side) {
				base := s.pair(shape{Region: 2 * size}) // what Writes take, and what Reads fill
				witness := base.another()
				for round := range rounds {
					users, late := base.others(n), base.another()
					paint(base.memory.mem, written)
					d := hear[nd.WindowDescriptor](s)
					for i, u := range users {
						if (round+i)%2 == 0 {
							u.must(u.ep.Write(1, u.sge(0, part), d.Address+uint64(i*part), d.Token, 0))
						} else {
							u.must(u.ep.Read(1, u.sge(size+i*part, part), d.Address+uint64(i*part), d.Token, 0))
						}
					}
					s.tell("started")
					w.took(base, d)
					for _, u := range users {
						status := u.next(true).Status
						s.tell(status)
						u.survivesOnly(status)
					}
					if bytes.IndexByte(base.memory.mem, afterwards) >= 0 {
						s.errorf("a Read has read what was written afterwards")
					}
					late.refusedWrite(0, 8, d, 0)
					for _, c := range append(users, late) {
						c.shut()
					}
					s.meet()
				}
				witness.alive()
				base.alive()
			}, func(s *side) {
				base := s.pair(shape{Region: size})
				witness := base.another()
				for range rounds {
					users, late := base.others(n), base.another()
					paint(base.memory.mem, beforehand)
					g := base.grants(w, base.memory.mem)
					hear[string](s)
					g.take(g)
					paint(g.mem, afterwards)
					for _, u := range users {
						u.survivesOnly(hear[nd.Status](s))
					}
					late.isOver()
					s.painted(g.mem, afterwards)
					for _, c := range append(users, late) {
						c.shut()
					}
					s.meet()
				}
				witness.alive()
				base.alive()
			}
	}
}

func grantedAgain(w way) (active, passive func(*side)) {
	return func(s *side) {
			base := s.pair(shape{})
			early, late := base.another(), base.another()
			first := hear[nd.WindowDescriptor](s)
			base.writes(nd.Success, 0, 100, first, 0)
			s.meet()
			w.took(base, first)
			second := hear[nd.WindowDescriptor](s)
			if first.Token == second.Token {
				s.errorf("both grants have the token %v", first.Token)
			}
			base.writes(nd.Success, 0, 100, second, 0)
			early.refusedWrite(0, 100, first, 0)
			base.writes(nd.Success, 0, 100, second, 0)
			s.meet()
			w.took(base, second)
			s.meet() // it is taken away, and the memory changed
			late.refusedWrite(0, 100, second, 0)
			base.alive()
		}, func(s *side) {
			base := s.pair(shape{})
			early, late := base.another(), base.another()
			g := base.grants(w, base.memory.mem)
			s.meet()
			g.take(g)
			g.renew(g)
			g.issue()
			early.isOver()
			s.meet()
			g.take(g)
			paint(g.mem, afterwards)
			s.meet()
			late.isOver()
			s.painted(g.mem, afterwards)
			base.alive()
		}
}
