package ndtest

import (
	"bytes"
	"fmt"

	"github.com/softnd/softnd/nd"
)

// accessState is what has become of a grant, or of its object, when it is taken away. It returns the
// two halves for each way, the user's first.
type accessState struct {
	name  string
	sides func(revocation) (active, passive func(*side))
}

// revocationScenarios are no rows of the conformance table: every way to take access away meets
// every state. Some connections of the two adapters offend each time, and the others go on.
var revocationScenarios = revocationTable()

func revocationTable() (list []scenario) {
	for _, st := range []accessState{
		{"a grant that is being used now and then", inUse},
		{"a grant with a transfer (of 4 MiB) in progress", inProgress(1)},
		{"a grant with transfers (of 4 MiB together) of three peers in progress", inProgress(3)},
		{"what was granted again", grantedAgain},
		{"what was never granted", neverGranted},
		{"what was taken away already", alreadyRevoked},
		{"what is another adapter's", ofOtherAdapter},
	} {
		for _, w := range revocations {
			a, p := st.sides(w)
			list = append(list, scenario{
				id: fmt.Sprintf("R%03d", len(list)+1), title: w.name + " of " + st.name, active: a, passive: p,
			})
		}
	}
	return list
}

func inUse(w revocation) (active, passive func(*side)) {
	return func(s *side) {
			base := s.pair(connOptions{})
			writer, reader := base.anotherConn(), base.anotherConn()
			d := hear[nd.WindowDescriptor](s)
			base.writeAndCheck(nd.Success, 0, 1000, d, 0)
			writer.writeAndCheck(nd.Success, 0, 1000, d, 0)
			reader.readAndCheck(nd.Success, 0, 1000, d, 0)
			s.barrier()
			w.requestIfPeer(base, d)
			s.barrier() // it is taken away, and the memory changed
			writer.wantWriteRefused(0, 8, d, 0)
			reader.wantReadRefused(0, 1000, d, 0)
			if bytes.IndexByte(reader.memory.mem, afterRevoke) >= 0 {
				s.errorf("a Read that was refused has brought something")
			}
			base.wantAlive()
		}, func(s *side) {
			base := s.pair(connOptions{})
			writer, reader := base.anotherConn(), base.anotherConn()
			g := base.grantAccess(w, base.memory.mem)
			s.barrier()
			g.revoke(g)
			setAll(g.mem, afterRevoke)
			s.barrier()
			writer.wantBroken()
			reader.wantBroken()
			s.wantAll(g.mem, afterRevoke)
			base.wantAlive()
		}
}

// inProgress has n peers read and write at the same time, each its own part of the memory. Which
// of them are still at it when the grant goes is a matter of luck, so there are some rounds.
func inProgress(n int) func(revocation) (active, passive func(*side)) {
	const size, rounds = 4 << 20, 2
	part := size / n
	return func(w revocation) (active, passive func(*side)) {
		return func(s *side) {
				base := s.pair(connOptions{RegionSize: 2 * size}) // what Writes take, and what Reads fill
				bystander := base.anotherConn()
				for round := range rounds {
					users, late := base.moreConns(n), base.anotherConn()
					setAll(base.memory.mem, byPeer)
					d := hear[nd.WindowDescriptor](s)
					for i, u := range users {
						if (round+i)%2 == 0 {
							u.must(u.ep.Write(1, u.sge(0, part), d.Address+uint64(i*part), d.Token, 0))
						} else {
							u.must(u.ep.Read(1, u.sge(size+i*part, part), d.Address+uint64(i*part), d.Token, 0))
						}
					}
					s.tell("started")
					w.requestIfPeer(base, d)
					for _, u := range users {
						status := u.nextResult(true).Status
						s.tell(status)
						u.checkAfterRevocation(status)
					}
					if bytes.IndexByte(base.memory.mem, afterRevoke) >= 0 {
						s.errorf("a Read has read what was written afterwards")
					}
					late.wantWriteRefused(0, 8, d, 0)
					for _, c := range append(users, late) {
						c.closeConnection()
					}
					s.barrier()
				}
				bystander.wantAlive()
				base.wantAlive()
			}, func(s *side) {
				base := s.pair(connOptions{RegionSize: size})
				bystander := base.anotherConn()
				for range rounds {
					users, late := base.moreConns(n), base.anotherConn()
					setAll(base.memory.mem, beforeRevoke)
					g := base.grantAccess(w, base.memory.mem)
					hear[string](s)
					g.revoke(g)
					setAll(g.mem, afterRevoke)
					for _, u := range users {
						u.checkAfterRevocation(hear[nd.Status](s))
					}
					late.wantBroken()
					s.wantAll(g.mem, afterRevoke)
					for _, c := range append(users, late) {
						c.closeConnection()
					}
					s.barrier()
				}
				bystander.wantAlive()
				base.wantAlive()
			}
	}
}

func grantedAgain(w revocation) (active, passive func(*side)) {
	return func(s *side) {
			base := s.pair(connOptions{})
			early, late := base.anotherConn(), base.anotherConn()
			first := hear[nd.WindowDescriptor](s)
			base.writeAndCheck(nd.Success, 0, 100, first, 0)
			s.barrier()
			w.requestIfPeer(base, first)
			second := hear[nd.WindowDescriptor](s)
			if first.Token == second.Token {
				s.errorf("both grants have the token %v", first.Token)
			}
			base.writeAndCheck(nd.Success, 0, 100, second, 0)
			early.wantWriteRefused(0, 100, first, 0)
			base.writeAndCheck(nd.Success, 0, 100, second, 0)
			s.barrier()
			w.requestIfPeer(base, second)
			s.barrier() // it is taken away, and the memory changed
			late.wantWriteRefused(0, 100, second, 0)
			base.wantAlive()
		}, func(s *side) {
			base := s.pair(connOptions{})
			early, late := base.anotherConn(), base.anotherConn()
			g := base.grantAccess(w, base.memory.mem)
			s.barrier()
			g.revoke(g)
			g.prepareAgain(g)
			g.grant()
			early.wantBroken()
			s.barrier()
			g.revoke(g)
			setAll(g.mem, afterRevoke)
			s.barrier()
			late.wantBroken()
			s.wantAll(g.mem, afterRevoke)
			base.wantAlive()
		}
}
