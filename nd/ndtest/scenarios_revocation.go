package ndtest

import (
	"bytes"
	"fmt"

	"github.com/softnd/softnd/nd"
)

// accessState is a state of access, or of its object, at the time of its revocation. sides returns the
// sides of the scenario for a revocation. The active side uses the access, the passive side owns it.
type accessState struct {
	name  string
	sides func(revocation) (active, passive func(*side))
}

// revocationScenarios combine every revocation with every state. They are not rows of the conformance
// table. In each, some connections of the two adapters violate access and break, and the others stay.
var revocationScenarios = revocationTable()

func revocationTable() (list []scenario) {
	for _, st := range []accessState{
		{"access in use, without a transfer in progress", inUse},
		{"access with a transfer of 4 MiB in progress", inProgress(1)},
		{"access with transfers on three connections in progress, 4 MiB together", inProgress(3)},
		{"access that was revoked and granted again", grantedAgain},
		{"access that was never granted", neverGranted},
		{"access that was already revoked", alreadyRevoked},
		{"access of another adapter", ofOtherAdapter},
	} {
		for _, w := range revocations {
			a, p := st.sides(w)
			list = append(list, scenario{
				id: fmt.Sprintf("R%03d", len(list)+1), title: w.name + ": " + st.name, active: a, passive: p,
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
			s.barrier() // the owner has revoked the access and changed the memory
			writer.wantWriteRefused(0, 8, d, 0)
			reader.wantReadRefused(0, 1000, d, 0)
			if bytes.IndexByte(reader.memory.mem, afterRevoke) >= 0 {
				s.errorf("the refused Read has stored bytes, want none")
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

// inProgress makes transfers on n connections at the same time, each of its own part of the memory. Some
// may be complete when the revocation takes effect, so there are several rounds.
func inProgress(n int) func(revocation) (active, passive func(*side)) {
	const size, rounds = 4 << 20, 2
	part := size / n
	return func(w revocation) (active, passive func(*side)) {
		return func(s *side) {
				base := s.pair(connOptions{RegionSize: 2 * size}) // the sources of Writes, then the sinks of Reads
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
						s.errorf("a Read has returned bytes that were stored after the revocation, want none")
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
				s.errorf("both grants of access have token %v, want different ones", first.Token)
			}
			base.writeAndCheck(nd.Success, 0, 100, second, 0)
			early.wantWriteRefused(0, 100, first, 0)
			base.writeAndCheck(nd.Success, 0, 100, second, 0)
			s.barrier()
			w.requestIfPeer(base, second)
			s.barrier() // the owner has revoked the access and changed the memory
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
