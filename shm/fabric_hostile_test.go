package shm

import (
	"bytes"
	"encoding/binary"
	"errors"
	"net"
	"os"
	"slices"
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

// withoutReplyTimeout gives joiners more time than the test has. It comes before the fabric is opened.
func withoutReplyTimeout(t *testing.T) {
	before := fabricReplyTimeout
	fabricReplyTimeout = 10 * proctest.Timeout
	t.Cleanup(func() { fabricReplyTimeout = before })
}

func TestFabricAnswersAJoiner(t *testing.T) {
	withoutReplyTimeout(t)
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
	if err != nil || id != f.id {
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
	withoutReplyTimeout(t)
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
		if g.fabric.created || idOf(g) != idOf(f) {
			t.Fatalf("after %s: created %v, id %s", after, g.fabric.created, idOf(g))
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
	withoutReplyTimeout(t)
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
			if !f.fabric.created {
				t.Error("joined a fabric without members")
			}
		})
	}
}
