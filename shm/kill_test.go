//go:build failpoints

package shm

import (
	"os"
	"strconv"
	"testing"

	"github.com/softnd/softnd/internal/meet/unixsock"
	"github.com/softnd/softnd/internal/testkit/failpoint"
	"github.com/softnd/softnd/internal/testkit/proctest"
)

// A process dies at each step of creating, joining or serving a named fabric. Another process that wants to join
// meanwhile gets the same fabric as a third one that comes later.
func TestKillFabric(t *testing.T) {
	repeats := 1
	if text := os.Getenv("SOFTND_KILLS"); text != "" {
		var err error
		if repeats, err = strconv.Atoi(text); err != nil {
			t.Fatalf("SOFTND_KILLS: %v", err)
		}
	}
	for i, step := range failpoint.Steps {
		if step.Scenario != failpoint.Fabric {
			continue
		}
		t.Run(step.Name, func(t *testing.T) {
			t.Parallel()
			point := failpoint.Point(i)
			for n := range repeats {
				killInFabric(t, fabricName(t)+strconv.Itoa(n), step.Name, point == failpoint.HelloSent || point == failpoint.WelcomeReceived,
					point == failpoint.JoinerAccepted || point == failpoint.HelloReceived || point == failpoint.WelcomeSent)
			}
		})
	}
}

// A process dies when it has become the relay. Another one takes its place.
func TestKillRelay(t *testing.T) {
	killMember(t, failpoint.Relay, "relay", func(t *testing.T, m *Member) {
		if err := m.BecomeRelay(); err != nil {
			t.Error(err)
		}
		if p, err := m.arena.Relay(); err != nil || p.ID() != m.ID() {
			t.Errorf("the relay is %v, %v", p, err)
		}
	})
}

// A process dies when it has published a name, which another process can then publish.
func TestKillPublisher(t *testing.T) {
	killMember(t, failpoint.Name, "publish 5", func(t *testing.T, m *Member) {
		if _, err := m.PublishName("server", addressOf(6)); err != nil {
			t.Error(err)
		}
		wantName(t, m, "server", 6)
	})
}

// A process dies while it takes the record of a rank's last member, which has left in good order and still runs. The others must not
// take the dead process for that member's.
func TestKillWhileARecordIsTaken(t *testing.T) {
	for _, point := range []failpoint.Point{failpoint.MemberTaken, failpoint.MemberCovered, failpoint.MemberFilled} {
		t.Run(point.Name(), func(t *testing.T) {
			a := newArena(t, 1)
			watcher, left := join(t, a, 0), join(t, a, 0)
			joinGroup(t, left)
			if err := left.Leave(); err != nil {
				t.Fatal(err)
			}
			watcher.CheckLiveness(noDrop)
			if s := stateIn(a, left.slot); s.status() != statusFree {
				t.Fatalf("state %#x of the record that the next process takes", uint64(s))
			}
			cmd := proctest.Command(roleMember)
			cmd.ExtraFiles = []*os.File{a.File()}
			cmd.Env = append(cmd.Env, failpoint.Env+"="+point.Name()+":1")
			victim := proctest.Start(t, cmd)
			victim.WaitKilled()
			if pid := left.rec.pid.Load(); pid != uint32(victim.PID()) && point != failpoint.MemberTaken {
				t.Fatalf("process %d has the record, want %d", pid, victim.PID())
			}
			if a.TakesNoPart(0, peerOf(t, watcher, left.ID())) {
				t.Error("the rank that has left counts as dead")
			}
		})
	}
}

// killMember lets a member die at each point of a scenario, which it reaches when it is told line. Then goOn gets another member.
func killMember(t *testing.T, scenario failpoint.Scenario, line string, goOn func(t *testing.T, m *Member)) {
	for _, step := range failpoint.Steps {
		if step.Scenario != scenario {
			continue
		}
		t.Run(step.Name, func(t *testing.T) {
			a := newArena(t, 0)
			cmd := proctest.Command(roleMember)
			cmd.ExtraFiles = []*os.File{a.File()}
			cmd.Env = append(cmd.Env, failpoint.Env+"="+step.Name+":1")
			victim := proctest.Start(t, cmd)
			victim.Hear()
			victim.Say(line)
			victim.WaitKilled()
			goOn(t, join(t, a, NoRank))
		})
	}
}

// killInFabric lets a process die at a point. isJoiner says that it joins a fabric that exists, isMember that it serves a
// joiner.
func killInFabric(t *testing.T, name, point string, isJoiner, isMember bool) {
	t.Helper()
	var member *Arena
	if isJoiner {
		member = openTest(t, name)
	}
	cmd := proctest.Command(roleFabric, name)
	cmd.Env = append(cmd.Env, failpoint.Env+"="+point+":1")
	victim := proctest.Start(t, cmd)
	victim.Expect("ready")
	victim.Say("open")
	if isMember {
		opened(t, victim)
	}
	ends := proctest.Watch(t, victim.PID())
	proctest.Eventually(t, "the fabric has a member", func() bool {
		c, err := unixsock.Dial(fabricAddress(uint32(os.Geteuid()), name))
		if err == nil {
			c.Close()
		}
		return err == nil || ends.Ended(0)
	})
	first := openTest(t, name) // most often before the death; also makes a member serve
	victim.WaitKilled()
	second := openTest(t, name)
	if idOf(first) != idOf(second) || member != nil && idOf(member) != idOf(first) {
		t.Error("two processes have different arenas")
	}
	m, err := second.Join(NoRank)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := m.Alloc(chunkSize); err != nil {
		t.Error(err)
	}
	m.CheckLiveness(func(MemberID) {})
	if err := m.Leave(); err != nil {
		t.Error(err)
	}
}
