package shm

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/softnd/softnd/internal/testkit/proctest"
)

// fabricName returns a name that no other run uses.
func fabricName(t testing.TB) string {
	name := fmt.Sprintf("test-%d-%s", os.Getpid(), strings.NewReplacer("/", ".", "#", "_").Replace(t.Name()))
	return name[:min(len(name), 64)]
}

var smallFabric = Config{Size: testSize}

func openTest(t testing.TB, name string) *Arena {
	t.Helper()
	f, err := OpenFabric(proctest.Context(t), name, smallFabric)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := f.Close(); err != nil && !errors.Is(err, errClosed) {
			t.Error(err)
		}
	})
	return f
}

func idOf(f *Arena) string {
	id := f.id
	return fmt.Sprintf("%x.%x", id[0], id[1])
}

// roleFabric opens a fabric when the test says so, prints whether it created the fabric and the
// arena's id, and keeps it until the test says close.
var roleFabric = proctest.Role("fabric", func(self *proctest.Self) error {
	ranks := 0
	if len(self.Args) > 1 {
		var err error
		if ranks, err = strconv.Atoi(self.Args[1]); err != nil {
			return err
		}
	}
	self.Say("ready")
	if _, err := self.Hear(); err != nil {
		return err
	}
	f, err := OpenFabric(self.Ctx, self.Args[0], Config{Size: testSize, Ranks: ranks})
	if err != nil {
		self.Say("error %v", err)
		return nil
	}
	m, err := f.Join(NoRank)
	if err != nil {
		return err
	}
	self.Say("%v %s %d", f.fabric.created, idOf(f), m.ID())
	if _, err := self.Hear(); err != nil {
		return err
	}
	return errors.Join(m.Leave(), f.Close())
})

// fabricChild starts a process that opens a fabric at once.
func fabricChild(t *testing.T, name string) (c *proctest.Process, created bool, id string, member MemberID) {
	t.Helper()
	c = proctest.Start(t, proctest.Command(roleFabric, name))
	c.Expect("ready")
	c.Say("open")
	created, id, member = opened(t, c)
	return c, created, id, member
}

func opened(t *testing.T, c *proctest.Process) (created bool, id string, member MemberID) {
	t.Helper()
	line := c.Hear()
	parts := strings.Fields(line)
	if len(parts) != 3 || parts[0] == "error" {
		t.Fatalf("the process says %q", line)
	}
	member64, err := strconv.ParseUint(parts[2], 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return parts[0] == "true", parts[1], MemberID(member64)
}

func TestFabricNamesAreChecked(t *testing.T) {
	for _, name := range []string{"", "a b", "a/b", "ü", "a\x00b", "@a", "a\n", strings.Repeat("x", 65)} {
		if f, err := OpenFabric(proctest.Context(t), name, smallFabric); err == nil {
			f.Close()
			t.Errorf("name %q was accepted", name)
		}
	}
	base := fabricName(t)
	for _, name := range []string{base, base + ".-_9", "x" + strings.Repeat("y", 63-len(strconv.Itoa(os.Getpid()))) + strconv.Itoa(os.Getpid())} {
		f, err := OpenFabric(proctest.Context(t), name, smallFabric)
		if err != nil {
			t.Errorf("name %q: %v", name, err)
			continue
		}
		if !f.fabric.created {
			t.Errorf("name %q: the fabric exists", name)
		}
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestFabricIsSharedByTwoProcesses(t *testing.T) {
	name := fabricName(t)
	f := openTest(t, name)
	if !f.fabric.created {
		t.Fatal("the first one has not made the fabric")
	}
	c, created, id, member := fabricChild(t, name)
	if created || id != idOf(f) {
		t.Fatalf("the second one: created %v, id %s, want %s", created, id, idOf(f))
	}
	m := join(t, f, NoRank)
	p := peerOf(t, m, member)
	if !m.checkAlive(p) {
		t.Error("the other process's member is not alive")
	}
	c.Say("close")
	c.Wait()
	if m.checkAlive(p) {
		t.Error("the other process's member lives on")
	}
	if err := f.Close(); err == nil || !strings.Contains(err.Error(), "have not left") {
		t.Errorf("close with a member: %v", err)
	}
	if err := m.Leave(); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); !errors.Is(err, errClosed) {
		t.Errorf("second close: %v", err)
	}
}

// An observer finds a fabric, and does not create one.
func TestFindFabric(t *testing.T) {
	name := fabricName(t)
	if a, err := FindFabric(proctest.Context(t), name); !errors.Is(err, errNoFabric) {
		t.Fatalf("before there is one: %v, %v", a, err)
	}
	f := openTest(t, name)
	a, err := FindFabric(proctest.Context(t), name)
	if err != nil {
		t.Fatal(err)
	}
	if idOf(a) != idOf(f) {
		t.Errorf("found %s, want %s", idOf(a), idOf(f))
	}
	if err := a.Close(); err != nil {
		t.Error(err)
	}
}

func TestFabricsOfDifferentNamesAreSeparate(t *testing.T) {
	f, g := openTest(t, fabricName(t)+"1"), openTest(t, fabricName(t)+"2")
	if !f.fabric.created || !g.fabric.created || idOf(f) == idOf(g) {
		t.Errorf("created %v and %v, ids %s and %s", f.fabric.created, g.fabric.created, idOf(f), idOf(g))
	}
}

func TestFabricRefusesOtherRankCount(t *testing.T) {
	name := fabricName(t)
	f, err := OpenFabric(proctest.Context(t), name, Config{Size: testSize, Ranks: 4, Host: 2})
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if g, err := OpenFabric(proctest.Context(t), name, Config{Ranks: 4, Host: 2}); err != nil || g.Ranks() != 4 || g.Host() != 2 {
		t.Errorf("as many ranks: %v", err)
	} else {
		g.Close()
	}
	if g, err := OpenFabric(proctest.Context(t), name, Config{}); err != nil || g.Ranks() != 4 {
		t.Errorf("ranks left open: %v", err)
	} else {
		g.Close()
	}
	if g, err := OpenFabric(proctest.Context(t), name, Config{Ranks: 8}); err == nil || !strings.Contains(err.Error(), "asked 8, the fabric has 4") {
		t.Errorf("more ranks: %v, %v", g, err)
	}
	if g, err := OpenFabric(proctest.Context(t), name, Config{Ranks: 4}); err == nil || !strings.Contains(err.Error(), "wrong host number (asked 0, the fabric has 2)") {
		t.Errorf("the fabric of another host: %v, %v", g, err)
	}
	if _, err := OpenFabric(proctest.Context(t), name+"x", Config{Ranks: -1}); err == nil {
		t.Error("an arena that cannot be made was made")
	}
	// The failed call has released the name.
	openTest(t, name+"x")
}

func TestFabricIsJoinedConcurrently(t *testing.T) {
	const many = 20
	name := fabricName(t)
	var children []*proctest.Process
	for range many {
		children = append(children, proctest.Start(t, proctest.Command(roleFabric, name)))
	}
	for _, c := range children {
		c.Expect("ready")
	}
	for _, c := range children {
		c.Say("open")
	}
	creators, ids, members := 0, map[string]bool{}, map[MemberID]bool{}
	for _, c := range children {
		created, id, member := opened(t, c)
		if created {
			creators++
		}
		ids[id], members[member] = true, true
	}
	if creators != 1 || len(ids) != 1 || len(members) != many {
		t.Errorf("%d creators, %d arenas, %d members, want 1, 1, %d", creators, len(ids), len(members), many)
	}
	for _, c := range children {
		c.Say("close")
	}
	for _, c := range children {
		c.Wait()
	}
}

func TestFabricOutlivesItsCreator(t *testing.T) {
	name := fabricName(t)
	creator, created, id, creatorID := fabricChild(t, name)
	if !created {
		t.Fatal("the first one has not made the fabric")
	}
	same := func(who string, created bool, got string) {
		t.Helper()
		if created || got != id {
			t.Fatalf("%s: created %v, id %s, want %s", who, created, got, id)
		}
	}
	second, created, got, _ := fabricChild(t, name)
	same("the second", created, got)
	creator.Kill()
	third, created, got, _ := fabricChild(t, name)
	same("the third, after the creator's death", created, got)
	f := openTest(t, name)
	same("the fourth", f.fabric.created, idOf(f))
	m := join(t, f, NoRank)
	if m.checkAlive(peerOf(t, m, creatorID)) {
		t.Error("the creator lives")
	}
	second.Say("close")
	second.Wait()
	third.Kill()
	fifth, created, got, _ := fabricChild(t, name)
	same("the fifth, through a joiner", created, got)
	if err := m.Leave(); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	fifth.Kill() // the last
	f = openTest(t, name)
	if !f.fabric.created || idOf(f) == id {
		t.Errorf("after the last one's death: created %v, id %s as before", f.fabric.created, idOf(f))
	}
}

// roleFabricChurn opens and closes a fabric repeatedly. While it has a fabric open, each process that
// opens the name must get the same fabric.
var roleFabricChurn = proctest.Role("fabric churn", func(self *proctest.Self) error {
	rounds, err := strconv.Atoi(self.Args[1])
	if err != nil {
		return err
	}
	for i := range rounds {
		f, err := OpenFabric(self.Ctx, self.Args[0], smallFabric)
		if err != nil {
			return err
		}
		g, err := OpenFabric(self.Ctx, self.Args[0], smallFabric)
		if err != nil {
			return err
		}
		if idOf(f) != idOf(g) || g.fabric.created {
			return fmt.Errorf("round %d: two arenas under one name at a time", i)
		}
		if i%2 == 0 {
			f, g = g, f
		}
		if err := errors.Join(f.Close(), g.Close()); err != nil {
			return err
		}
	}
	return nil
})

func TestFabricSurvivesChurn(t *testing.T) {
	rounds := 60
	if testing.Short() {
		rounds = 15
	}
	var children []*proctest.Process
	for range 4 {
		children = append(children, proctest.Start(t, proctest.Command(roleFabricChurn, fabricName(t), fmt.Sprint(rounds))))
	}
	for _, c := range children {
		c.Wait()
	}
}

func TestFabricSkipsStoppedMember(t *testing.T) {
	name := fabricName(t)
	stopped, _, id, _ := fabricChild(t, name)
	stopped.Stop()
	ctx, cancel := context.WithTimeout(t.Context(), 2*fabricMinTimeout)
	defer cancel()
	f, err := OpenFabric(ctx, name, smallFabric)
	if !errors.Is(err, errNoAnswer) || !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("with all members stopped: %v, %v", f, err)
	}
	stopped.Resume()
	f = openTest(t, name)
	if f.fabric.created || idOf(f) != id {
		t.Fatalf("after the member goes on: created %v, id %s", f.fabric.created, idOf(f))
	}
	// One of two members is stopped: the other answers.
	stopped.Stop()
	for range 10 {
		g := openTest(t, name)
		if g.fabric.created || idOf(g) != id {
			t.Fatalf("created %v, id %s", g.fabric.created, idOf(g))
		}
		g.Close()
	}
	stopped.Resume()
	stopped.Say("close")
	stopped.Wait()
}

func TestFabricOpenEndsWithContext(t *testing.T) {
	name := fabricName(t)
	// The name is bound, but no process listens: OpenFabric can neither join nor create.
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if err := unix.Bind(fd, &unix.SockaddrUnix{Name: fabricAddress(uint32(os.Geteuid()), name)}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(20*time.Millisecond, cancel)
	if f, err := OpenFabric(ctx, name, smallFabric); !errors.Is(err, errNoAnswer) || !errors.Is(err, context.Canceled) {
		t.Errorf("%v, %v", f, err)
	}
	if f, err := OpenFabric(ctx, name, smallFabric); !errors.Is(err, errNoAnswer) {
		t.Errorf("with a context that has ended: %v, %v", f, err)
	}
}

func TestFabricRecordRoundTrips(t *testing.T) {
	r := fabricRecord{status: fabricWelcome, version: 2, user: 3, hash: 4, id: [2]uint64{5, 6}, build: [16]byte{7}}
	b := r.encode()
	if len(b) != fabricRecordSize || string(b[:8]) != "SOFTNDFB" {
		t.Errorf("%d bytes that begin with %q", len(b), b[:8])
	}
	if back, err := parseFabric(b); err != nil || back != r {
		t.Errorf("%+v, %v", back, err)
	}
	for i := range b { // each byte matters
		c := slices.Clone(b)
		c[i] ^= 0x80
		if back, err := parseFabric(c); err == nil && back == r {
			t.Errorf("byte %d is ignored", i)
		}
	}
	for n := range b {
		if _, err := parseFabric(b[:n]); !errors.Is(err, errNotFabric) {
			t.Errorf("%d bytes: %v", n, err)
		}
	}
}

func FuzzFabricMessage(f *testing.F) {
	for status := range fabricStatusEnd + 2 {
		r := ownRecord()
		r.status = status
		f.Add(r.encode(), r.user, 2)
		r.id = [2]uint64{1, 2}
		f.Add(r.encode(), r.user+1, 0)
	}
	f.Add([]byte{}, uint32(0), 0)
	f.Add(append(binary.LittleEndian.AppendUint64(nil, fabricMagic), 9, 0, 0, 0), uint32(0), 2)
	f.Fuzz(func(t *testing.T, b []byte, user uint32, descriptors int) {
		own := ownRecord()
		own.id = [2]uint64{7, 8}
		r, err := parseFabric(b)
		if err == nil && !bytes.Equal(r.encode(), b) {
			t.Fatalf("%x is taken for %+v", b, r)
		}
		if err != nil && !errors.Is(err, errNotFabric) && !errors.Is(err, errFabricProtocol) {
			t.Fatal(err)
		}
		if reply, ok := own.answer(b, user); ok {
			if reply.status == fabricWelcome && (user != own.user || r.version != own.version || r.hash != own.hash || r.status != fabricHello) {
				t.Fatalf("%+v of user %d is welcome", r, user)
			}
			if reply.status != fabricWelcome && reply.id != [2]uint64{} {
				t.Fatalf("%+v gives the arena's id away", reply)
			}
			if _, err := parseFabric(reply.encode()); err != nil {
				t.Fatalf("our own reply: %v", err)
			}
		}
		id, err := own.checkReply(b, descriptors)
		switch {
		case err == nil:
			if descriptors != fabricDescriptors || id != r.id || r.status != fabricWelcome {
				t.Fatalf("check of the reply %x for %+v with %d descriptors", id, r, descriptors)
			}
		case !errors.Is(err, errNotFabric) && !errors.Is(err, ErrVersion) && !errors.Is(err, errUser):
			t.Fatal(err)
		}
	})
}
