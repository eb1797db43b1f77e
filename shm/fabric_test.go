package shm

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/softnd/softnd/internal/goruntime"
	"github.com/softnd/softnd/internal/layout"
	"github.com/softnd/softnd/internal/meet/unixsock"
	"github.com/softnd/softnd/internal/testkit/proctest"
)

// fabricName returns a name that no other run uses.
func fabricName(t testing.TB) string {
	name := fmt.Sprintf("test-%d-%s", os.Getpid(), strings.NewReplacer("/", ".", "#", "_").Replace(t.Name()))
	return name[:min(len(name), 64)]
}

var smallFabric = Config{Size: testSize}

func openTest(t testing.TB, name string) *Fabric {
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

func idOf(f *Fabric) string {
	id := f.Arena.id
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
	m, err := f.Arena.Join(NoRank)
	if err != nil {
		return err
	}
	self.Say("%v %s %d", f.created, idOf(f), m.ID())
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
		if f.name != name || !f.created || f.Arena == nil {
			t.Errorf("name %q: fabric %q, created %v", name, f.name, f.created)
		}
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestFabricIsSharedByTwoProcesses(t *testing.T) {
	name := fabricName(t)
	f := openTest(t, name)
	if !f.created {
		t.Fatal("the first one has not made the fabric")
	}
	c, created, id, member := fabricChild(t, name)
	if created || id != idOf(f) {
		t.Fatalf("the second one: created %v, id %s, want %s", created, id, idOf(f))
	}
	m := join(t, f.Arena, NoRank)
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

func TestFabricsOfDifferentNamesAreSeparate(t *testing.T) {
	f, g := openTest(t, fabricName(t)+"1"), openTest(t, fabricName(t)+"2")
	if !f.created || !g.created || idOf(f) == idOf(g) {
		t.Errorf("created %v and %v, ids %s and %s", f.created, g.created, idOf(f), idOf(g))
	}
}

func TestFabricRefusesOtherRankCount(t *testing.T) {
	name := fabricName(t)
	f, err := OpenFabric(proctest.Context(t), name, Config{Size: testSize, Ranks: 4, Host: 2})
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if g, err := OpenFabric(proctest.Context(t), name, Config{Ranks: 4, Host: 2}); err != nil || g.Arena.Ranks() != 4 || g.Arena.Host() != 2 {
		t.Errorf("as many ranks: %v", err)
	} else {
		g.Close()
	}
	if g, err := OpenFabric(proctest.Context(t), name, Config{}); err != nil || g.Arena.Ranks() != 4 {
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
	same("the fourth", f.created, idOf(f))
	m := join(t, f.Arena, NoRank)
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
	if !f.created || idOf(f) == id {
		t.Errorf("after the last one's death: created %v, id %s as before", f.created, idOf(f))
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
		if idOf(f) != idOf(g) || g.created {
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
	if f.created || idOf(f) != id {
		t.Fatalf("after the member goes on: created %v, id %s", f.created, idOf(f))
	}
	// One of two members is stopped: the other answers.
	stopped.Stop()
	for range 10 {
		g := openTest(t, name)
		if g.created || idOf(g) != id {
			t.Fatalf("created %v, id %s", g.created, idOf(g))
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

// dialTest connects as a joiner does; the test sends the records.
func dialTest(t testing.TB, name string) *unixsock.Conn {
	t.Helper()
	c, err := unixsock.Dial(fabricAddress(uint32(os.Geteuid()), name))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	c.SetDeadline(time.Now().Add(proctest.Timeout))
	return c
}

func ownRecord() fabricRecord {
	return fabricRecord{status: fabricHello, version: layout.Version, hash: layout.Hash(), user: uint32(os.Geteuid())}
}

func TestFabricAnswersAJoiner(t *testing.T) {
	name := fabricName(t)
	f := openTest(t, name)
	hello := ownRecord()
	c := dialTest(t, name)
	if _, err := c.Write(hello.encode()); err != nil {
		t.Fatal(err)
	}
	b, files, err := readFabric(c)
	defer closeAll(files)
	if err != nil {
		t.Fatal(err)
	}
	id, err := hello.checkReply(b, len(files))
	if err != nil || id != f.Arena.id {
		t.Fatalf("check of the reply %x, %v", id, err)
	}
	for i, file := range files {
		if flags, err := unix.FcntlInt(file.Fd(), unix.F_GETFD, 0); err != nil || flags&unix.FD_CLOEXEC == 0 {
			t.Errorf("descriptor %d would be inherited (%#x, %v)", i, flags, err)
		}
	}

	for _, tc := range []struct {
		name   string
		change func(*fabricRecord)
		raw    []byte
	}{
		{"another layout version", func(r *fabricRecord) { r.version++ }, nil},
		{"another layout hash", func(r *fabricRecord) { r.hash++ }, nil},
		{"another protocol", nil, binary.LittleEndian.AppendUint32(binary.LittleEndian.AppendUint64(nil, fabricMagic), fabricProtocol+1)},
	} {
		r := hello
		raw := tc.raw
		if tc.change != nil {
			tc.change(&r)
			raw = r.encode()
		}
		c := dialTest(t, name)
		if _, err := c.Write(raw); err != nil {
			t.Fatal(err)
		}
		b, files, err := readFabric(c)
		if err != nil || len(files) != 0 {
			t.Fatalf("%s: %d descriptors, %v", tc.name, len(files), err)
		}
		if reply, err := parseFabric(b); err != nil || reply.status != fabricWrongVersion || reply.version != layout.Version || reply.id != [2]uint64{} {
			t.Errorf("%s: reply %+v, %v", tc.name, reply, err)
		}
	}
}

func TestFabricSurvivesHostileClients(t *testing.T) {
	name := fabricName(t)
	f := openTest(t, name)
	hello := ownRecord()
	valid := hello.encode()
	pipe, other, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer pipe.Close()
	defer other.Close()
	check := func(after string) {
		t.Helper()
		g := openTest(t, name)
		if g.created || idOf(g) != idOf(f) {
			t.Fatalf("after %s: created %v, id %s", after, g.created, idOf(g))
		}
		// Each member answers, so the next hostile client may reach any of them.
		g.Close()
	}
	for _, tc := range []struct {
		name string
		do   func(c *unixsock.Conn) error
	}{
		{"nothing", func(c *unixsock.Conn) error { return nil }},
		{"garbage", func(c *unixsock.Conn) error { _, err := c.Write([]byte("GET / HTTP/1.1\r\n\r\n")); return err }},
		{"one byte", func(c *unixsock.Conn) error { _, err := c.Write([]byte{1}); return err }},
		{"an empty record", func(c *unixsock.Conn) error { _, err := c.Write(nil); return err }},
		{"half a record", func(c *unixsock.Conn) error { _, err := c.Write(valid[:32]); return err }},
		{"a record and a half", func(c *unixsock.Conn) error { _, err := c.Write(slices.Concat(valid, valid[:32])); return err }},
		{"very much", func(c *unixsock.Conn) error { _, err := c.Write(bytes.Repeat([]byte{0xff}, 100000)); return err }},
		{"a welcome", func(c *unixsock.Conn) error {
			r := hello
			r.status = fabricWelcome
			_, err := c.Write(r.encode())
			return err
		}},
		{"unexpected descriptors", func(c *unixsock.Conn) error {
			_, err := c.Send(valid[:10], unix.UnixRights(int(pipe.Fd()), int(other.Fd())))
			return err
		}},
		{"a good record with descriptors", func(c *unixsock.Conn) error {
			_, err := c.Send(valid, unix.UnixRights(int(pipe.Fd()), int(other.Fd())))
			return err
		}},
		{"many good records", func(c *unixsock.Conn) error {
			for range 20 {
				if _, err := c.Write(valid); err != nil {
					break // the member closes the connection after one record
				}
			}
			return nil
		}},
		{"a good record whose answer is not read", func(c *unixsock.Conn) error { _, err := c.Write(valid); return err }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			stay, leave := dialTest(t, name), dialTest(t, name)
			if err := tc.do(stay); err != nil {
				t.Fatal(err)
			}
			if err := tc.do(leave); err != nil {
				t.Fatal(err)
			}
			leave.Close()
			check(tc.name)
		})
	}
	t.Run("more silent clients than can be answered", func(t *testing.T) {
		for range 3 * fabricConns {
			dialTest(t, name)
		}
		for range 3 {
			check("a flood")
		}
	})
	t.Run("a flood that goes on", func(t *testing.T) {
		stop := make(chan struct{})
		var flood sync.WaitGroup
		flood.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				if c, err := unixsock.Dial(fabricAddress(uint32(os.Geteuid()), name)); err == nil {
					c.Write(valid[:7])
					c.Close()
				}
			}
		})
		check("a flood")
		close(stop)
		flood.Wait()
	})
}

// A process keeps a limited number of connections of clients that send nothing.
func TestFabricClosesOldestConnection(t *testing.T) {
	before := fabricReplyTimeout
	fabricReplyTimeout = 10 * proctest.Timeout
	defer func() { fabricReplyTimeout = before }()
	name := fabricName(t)
	f, err := OpenFabric(proctest.Context(t), name, smallFabric)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := f.Close(); err != nil { // with silent connections open
			t.Error(err)
		}
	}()
	var clients []*unixsock.Conn
	for range fabricConns + 5 {
		clients = append(clients, dialTest(t, name))
	}
	for i, c := range clients[:5] {
		if n, err := c.Read(make([]byte, 1)); !isTransient(err) || errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("client %d: %d, %v", i, n, err)
		}
	}
	last := clients[len(clients)-1]
	if _, err := last.Write(ownRecord().encode()); err != nil {
		t.Fatal(err)
	}
	b, files, err := readFabric(last)
	closeAll(files)
	if r, perr := parseFabric(b); err != nil || perr != nil || r.status != fabricWelcome {
		t.Errorf("the last one: %+v, %v, %v", r, err, perr)
	}
}

// impostor listens under a fabric's name and calls treat for each connection.
func impostor(t *testing.T, name string, treat func(c *unixsock.Conn)) *unixsock.Listener {
	t.Helper()
	l, err := unixsock.Listen(fabricAddress(uint32(os.Geteuid()), name))
	if err != nil {
		t.Fatal(err)
	}
	var done sync.WaitGroup
	done.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			done.Go(func() {
				defer c.Close()
				c.SetDeadline(time.Now().Add(proctest.Timeout))
				treat(c)
			})
		}
	})
	t.Cleanup(func() {
		l.Close()
		done.Wait()
	})
	return l
}

func TestFabricRefusesHostileMembers(t *testing.T) {
	a := newArena(t, 0)
	name := fabricName(t)
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	elsewhere, err := unixsock.Listen(fabricAddress(uint32(os.Geteuid()), name+"-else"))
	if err != nil {
		t.Fatal(err)
	}
	defer elsewhere.Close()
	var tcp any = elsewhere
	if l, err := net.Listen("tcp", "127.0.0.1:0"); err == nil {
		defer l.Close()
		tcp = l
	} else {
		t.Logf("no TCP here: %v", err)
	}
	var own *unixsock.Listener // listener of the impostor
	welcome := ownRecord()
	welcome.status, welcome.id = fabricWelcome, a.id
	with := func(change func(*fabricRecord)) fabricRecord {
		r := welcome
		r.id = [2]uint64{}
		change(&r)
		return r
	}
	random := headerPage(testSize, nil)
	random[0]++
	noArena := memfd(t, random, testSize, unix.F_SEAL_SHRINK)
	for _, tc := range []struct {
		name  string
		reply []byte
		files []any
		want  error
		words string
	}{
		{"garbage", []byte("HTTP/1.1 400 Bad Request"), nil, errNotFabric, "magic"},
		{"a short record", welcome.encode()[:20], nil, errNotFabric, "20 bytes"},
		{"a long record", append(welcome.encode(), 0), []any{a.File(), &own}, errNotFabric, "65 bytes"},
		{"no descriptors", welcome.encode(), nil, errNotFabric, "0 descriptors"},
		{"one descriptor", welcome.encode(), []any{a.File()}, errNotFabric, "1 descriptors"},
		{"three descriptors", welcome.encode(), []any{a.File(), &own, r}, errNotFabric, "3 descriptors"},
		{"as many descriptors as there can be", welcome.encode(), slices.Repeat([]any{r}, maxPassed), errNotFabric, "253 descriptors"},
		{"two pipes", welcome.encode(), []any{r, w}, errNotFabric, "not a listening socket"},
		{"the wrong way round", welcome.encode(), []any{&own, a.File()}, errNotFabric, "not a listening socket"},
		{"a listener elsewhere", welcome.encode(), []any{a.File(), elsewhere}, errNotFabric, "listens at"},
		{"a listener of another family", welcome.encode(), []any{a.File(), tcp}, errNotFabric, "another type or address family"},
		{"no arena", welcome.encode(), []any{r, &own}, errNotArena, "mode"},
		{"a damaged arena", welcome.encode(), []any{noArena, &own}, errNotArena, "magic"},
		{"another arena", with(func(r *fabricRecord) { r.id = [2]uint64{1, 2} }).encode(), []any{a.File(), &own}, errNotFabric, "announced"},
		{"a hello", with(func(r *fabricRecord) { r.status = fabricHello }).encode(), nil, errNotFabric, "status 1"},
		{"no status", with(func(r *fabricRecord) { r.status = 0 }).encode(), nil, errNotFabric, "status 0"},
		{"an unknown status", with(func(r *fabricRecord) { r.status = 77 }).encode(), nil, errNotFabric, "status 77"},
		{"another version", with(func(r *fabricRecord) { r.status, r.version, r.build = fabricWrongVersion, 99, [16]byte{'v', '9'} }).encode(), nil, ErrVersion,
			"the members of the fabric contain softnd v9, this program contains softnd " + goruntime.BuildName() + ": arena of another version (their layout has version 99"},
		{"another protocol", append(binary.LittleEndian.AppendUint64(nil, fabricMagic), 9, 0, 0, 0), nil, ErrVersion, "version 9, this program uses 1"},
		{"another user", with(func(r *fabricRecord) { r.status, r.user = fabricWrongUser, 4711 }).encode(), nil, errUser, "user 4711"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			ready := make(chan struct{})
			own = impostor(t, name, func(c *unixsock.Conn) {
				<-ready
				c.Read(make([]byte, 1000))
				var fds []int
				for _, f := range tc.files {
					if p, ok := f.(**unixsock.Listener); ok {
						f = *p
					}
					raw, err := f.(syscall.Conn).SyscallConn()
					if err != nil {
						t.Error(err)
						return
					}
					raw.Control(func(fd uintptr) { fds = append(fds, int(fd)) })
				}
				var oob []byte
				if len(fds) > 0 {
					oob = unix.UnixRights(fds...)
				}
				c.Send(tc.reply, oob)
			})
			close(ready)
			f, err := OpenFabric(proctest.Context(t), name, smallFabric)
			if err == nil {
				f.Close()
				t.Fatal("joined")
			}
			if !errors.Is(err, tc.want) || !strings.Contains(err.Error(), tc.words) {
				t.Errorf("error %q, want one that is %q and contains %q", err, tc.want, tc.words)
			}
		})
	}
}

// A member dies at each step of the handshake.
func TestFabricSurvivesDeathInHandshake(t *testing.T) {
	for _, tc := range []struct {
		name  string
		treat func(c *unixsock.Conn)
	}{
		{"at once", func(c *unixsock.Conn) {}},
		{"after the hello", func(c *unixsock.Conn) { c.Read(make([]byte, 1000)) }},
		{"before it answers", func(c *unixsock.Conn) { c.Read(make([]byte, 1000)); c.Read(make([]byte, 1000)) }}, // until the joiner closes the connection
		{"slowly", func(c *unixsock.Conn) { time.Sleep(2 * fabricMinTimeout) }},
		{"with an empty record", func(c *unixsock.Conn) { c.Read(make([]byte, 1000)); c.Write(nil) }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			name := fabricName(t)
			tries := make(chan struct{}, 1000)
			l := impostor(t, name, func(c *unixsock.Conn) {
				tc.treat(c)
				tries <- struct{}{}
			})
			go func() { // after two attempts the last process of the fabric ends
				<-tries
				<-tries
				l.Close()
			}()
			f := openTest(t, name)
			if !f.created {
				t.Error("joined a fabric without members")
			}
		})
	}
}

// roleAlien runs as another user.
var roleAlien = proctest.Role("alien", func(self *proctest.Self) error {
	name, user := self.Args[0], uint32(os.Geteuid())
	host, err := strconv.ParseUint(self.Args[1], 10, 32)
	if err != nil {
		return err
	}
	at := fabricAddress(uint32(host), name)
	refused := func(err error) error {
		both := strings.Contains(fmt.Sprint(err), fmt.Sprintf("user %d", host)) && strings.Contains(fmt.Sprint(err), fmt.Sprintf("user %d", user))
		if !errors.Is(err, errUser) || !both {
			return fmt.Errorf("the error should name users %d and %d: %v", host, user, err)
		}
		return nil
	}
	// The joiner's check.
	if _, err := openFabric(self.Ctx, at, user, &smallFabric); err != nil {
		if err := refused(err); err != nil {
			return err
		}
	} else {
		return errors.New("another user's fabric was joined")
	}
	// The member's check, for a joiner that does not check.
	c, err := unixsock.Dial(at)
	if err != nil {
		return err
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(proctest.Timeout))
	if _, err := c.Write(ownRecord().encode()); err != nil {
		return err
	}
	b, files, err := readFabric(c)
	if err != nil || len(files) != 0 {
		return fmt.Errorf("%d descriptors, %v", len(files), err)
	}
	_, err = ownRecord().checkReply(b, 0)
	if err := refused(err); err != nil {
		return err
	}
	// This user can use the same name.
	f, err := OpenFabric(self.Ctx, name, smallFabric)
	if err != nil {
		return err
	}
	if !f.created {
		return errors.New("joined another user's fabric")
	}
	// The other user has bound this user's address.
	squat, err := openFabric(self.Ctx, fabricAddress(uint32(host), name+"-taken"), user, &smallFabric)
	if err != nil {
		return err
	}
	// There, this process answers every joiner.
	trap, err := unixsock.Listen(fabricAddress(uint32(host), name+"-trap"))
	if err != nil {
		return err
	}
	arena := int(f.Arena.File().Fd())
	go func() {
		for {
			c, err := trap.Accept()
			if err != nil {
				return
			}
			c.Read(make([]byte, 1000))
			r := ownRecord()
			r.status, r.id = fabricWelcome, f.Arena.id
			raw, err := trap.SyscallConn()
			if err == nil {
				raw.Control(func(fd uintptr) {
					c.Send(r.encode(), unix.UnixRights(arena, int(fd)))
				})
			}
			c.Close()
		}
	}()
	self.Say("taken")
	if _, err := self.Hear(); err != nil {
		return err
	}
	return errors.Join(f.Close(), squat.Close(), trap.Close())
})

func TestFabricRefusesOtherUsers(t *testing.T) {
	name := fabricName(t)
	f := openTest(t, name)
	refuseOtherUser(t, name, func(name string) error {
		g, err := OpenFabric(proctest.Context(t), name, smallFabric)
		if err == nil {
			return g.Close()
		}
		if !errors.Is(err, errUser) || !strings.Contains(err.Error(), "user 65534") || !strings.Contains(err.Error(), "user 0") {
			t.Errorf("%s: %v", name, err)
		}
		return err
	})
	if f.Arena.LiveMemberCount() != 0 {
		t.Error("a process has joined")
	}
}

// The same with processes that use the C library, if the environment names its programs.
func TestCFabricRefusesOtherUsers(t *testing.T) {
	program := filepath.Join(os.Getenv("SOFTND_C_TESTS"), "test_users")
	if program == "test_users" {
		t.Skip("SOFTND_C_TESTS does not name the built programs of c/tests")
	}
	name := fabricName(t)
	member := proctest.Start(t, exec.Command(program, "member", name))
	member.Expect("member")
	refuseOtherUser(t, name, func(name string) error {
		status, out, errs := proctest.Run(t, exec.Command(program, "join", name))
		if status != 0 || !strings.Contains(out, "belongs to another user") {
			t.Errorf("%s: exit status %d: %s%s", name, status, out, errs)
		}
		return errors.New(out)
	})
	member.Wait()
}

// asOtherUser returns a command for a process of another user that plays a role.
func asOtherUser(t *testing.T, role string, args ...string) *exec.Cmd {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skipf("only root can start a process of another user, this is user %d", os.Geteuid())
	}
	// Only this user can reach the test binary's path, so the child starts through a
	// descriptor.
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	binary := open(t, self, os.O_RDONLY)
	const unprivileged = 65534
	cmd := proctest.Command(role, args...)
	cmd.Path, cmd.ExtraFiles = "/proc/self/fd/3", []*os.File{binary}
	cmd.SysProcAttr.Credential = &syscall.Credential{Uid: unprivileged, Gid: unprivileged}
	return cmd
}

// refuseOtherUser starts a process of another user that tries to join the fabric, and takes other names of this user.
// join must fail there.
func refuseOtherUser(t *testing.T, name string, join func(name string) error) {
	t.Helper()
	c := proctest.Start(t, asOtherUser(t, roleAlien, name, "0"))
	c.Expect("taken")
	for _, taken := range []string{"-taken", "-trap"} {
		if join(name+taken) == nil {
			t.Errorf("%s: root has joined another user's fabric", taken)
		}
	}
	c.Say("go")
	c.Wait()
}

var roleFewDescriptors = proctest.Role("few descriptors", func(self *proctest.Self) error {
	name := self.Args[0]
	for range 2 { // the first call opens descriptors that the runtime keeps
		f, err := OpenFabric(self.Ctx, name, smallFabric)
		if err != nil {
			return err
		}
		if err := f.Close(); err != nil {
			return err
		}
	}
	next, err := unix.Open("/dev/null", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	unix.Close(next)
	old := openFiles()
	for room := 0; room < 8; room++ {
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: uint64(next + room), Max: 1 << 10}); err != nil {
			return err
		}
		f, err := OpenFabric(self.Ctx, name, smallFabric)
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 1 << 10, Max: 1 << 10}); err != nil {
			return err
		}
		if err == nil {
			self.Say("room for %d suffices", room)
			if room < 3 {
				return fmt.Errorf("joined with room for %d descriptors", room)
			}
			return f.Close()
		}
		self.Say("%v", err)
		if left := openFiles(); len(left) > len(old) {
			return fmt.Errorf("room %d: before %v, after %v", room, old, left)
		}
	}
	return errors.New("never joined")
})

// A joiner that has no descriptors left at some step reports that, and leaks none.
func TestFabricReportsMissingDescriptors(t *testing.T) {
	name := fabricName(t)
	openTest(t, name)
	c := proctest.Start(t, proctest.Command(roleFewDescriptors, name))
	c.Wait()
	said := c.Out.String()
	if !strings.Contains(said, "ulimit -n") || !strings.Contains(said, "too many open files") {
		t.Errorf("the errors were\n%s", said)
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
