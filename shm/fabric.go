package shm

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/softnd/softnd/internal/linux"
	"github.com/softnd/softnd/internal/meet/unixsock"
	"github.com/softnd/softnd/internal/testkit/failpoint"
)

// fabric gives an arena a name, for processes without a common launcher. The name is that of an
// abstract Unix socket: it exists in no file system, and disappears with the last process of the
// fabric. A name belongs to one user and one network namespace.
//
// The first process creates the arena and the listening socket. Each process that joins receives
// both, and answers later joiners too. So the fabric does not depend on any one process.
type fabric struct {
	arena *Arena // does not change

	created  bool
	listener *unixsock.Listener
	local    fabricRecord

	done   sync.WaitGroup
	mu     sync.Mutex
	conns  [fabricConns]*unixsock.Conn // open connections of joiners
	closed bool
}

const (
	// fabricConns is how many joiners a process answers at the same time, one of them of another user. If one more
	// connects, the process closes the oldest connection.
	fabricConns = 64
	// How long a joiner waits for an answer before it connects again, in the first and in later
	// attempts. It connects again because the member that accepted may be stopped.
	fabricMinTimeout = 250 * time.Millisecond
	fabricMaxTimeout = 2 * time.Second
	// The pause between two attempts.
	fabricMinPause = time.Millisecond
	fabricMaxPause = 50 * time.Millisecond
)

// fabricReplyTimeout is the time that a member has to answer one joiner.
var fabricReplyTimeout = 2 * time.Second

// fabricLetters are the characters allowed in the name of a fabric.
const fabricLetters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-"

// OpenFabric joins the current user's fabric with this name, or creates it if there is none. name
// has 1 to 64 characters out of A-Z a-z 0-9 . _ and -. The process answers joiners until it closes the arena.
//
// cfg applies if this process creates the arena. OpenFabric fails if cfg.Ranks is not 0 and the
// fabric has another number of ranks. It repeats the attempt until a member answers or ctx ends.
//
// Errors: those of [Create] and [Attach]; [ErrVersion] if the members contain another release of
// softnd; ctx's error if no member answers. OpenFabric also fails if the name belongs to another
// user, or if the process that answers breaks the protocol.
func OpenFabric(ctx context.Context, name string, cfg Config) (*Arena, error) {
	return fabricNamed(ctx, name, &cfg)
}

// FindFabric is OpenFabric for observers: it never creates an arena.
//
// Errors: those of [OpenFabric]. FindFabric also fails if no process holds the name.
func FindFabric(ctx context.Context, name string) (*Arena, error) {
	return fabricNamed(ctx, name, nil)
}

// fabricNamed joins a fabric, or creates it if there is none and cfg is not nil.
func fabricNamed(ctx context.Context, name string, cfg *Config) (*Arena, error) {
	if err := checkName("fabric name", name); err != nil {
		return nil, err
	}
	user := uint32(os.Geteuid())
	a, err := openFabric(ctx, fabricAddress(user, name), user, cfg)
	if err != nil {
		return nil, fmt.Errorf("shm: fabric %q: %w", name, err)
	}
	return a, nil
}

// fabricAddress returns the socket address of a user's fabric.
func fabricAddress(user uint32, name string) string {
	return fmt.Sprintf("@softnd-fabric-%d-%s", user, name)
}

func openFabric(ctx context.Context, at string, user uint32, cfg *Config) (*Arena, error) {
	f := &fabric{local: newFabricRecord(user)}
	try, pause := fabricMinTimeout, fabricMinPause
	for {
		again, err := f.join(ctx, at, try)
		if errors.Is(err, unix.ECONNREFUSED) { // no process listens
			if cfg == nil {
				return nil, fmt.Errorf("%w in this network namespace: check the name, and that a process of this user has joined the fabric and still runs", errNoFabric)
			}
			again, err = f.create(at, *cfg)
		}
		if err == nil {
			break
		}
		if !again {
			return nil, err
		}
		if errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, context.DeadlineExceeded) {
			try = min(2*try, fabricMaxTimeout)
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("%w: %w (last try: %w)", errNoAnswer, ctx.Err(), err)
		case <-time.After(pause):
		}
		pause = min(2*pause, fabricMaxPause)
	}
	if cfg != nil && !f.created {
		if err := cfg.fits(f.arena); err != nil {
			return nil, errors.Join(err, f.listener.Close(), f.arena.Close())
		}
	}
	f.local.id, f.arena.fabric = f.arena.id, f
	f.done.Go(f.serve)
	return f.arena, nil
}

// fits reports whether an arena that another process has created is the one that cfg asks for.
func (cfg *Config) fits(a *Arena) error {
	switch {
	case cfg.Ranks == 0: // any
	case cfg.Ranks != a.Ranks():
		return fmt.Errorf("wrong number of ranks (asked %d, the fabric has %d): use the same number in each process, or another name", cfg.Ranks, a.Ranks())
	case cfg.Host != a.Host():
		return fmt.Errorf("wrong host number (asked %d, the fabric has %d): use the same number in each process, or another name", cfg.Host, a.Host())
	}
	return nil
}

// isTransient reports whether a failed attempt to join may succeed when repeated: the member has
// ended, was slow or stopped, or had too many joiners.
func isTransient(err error) bool {
	for _, e := range []error{unix.ECONNREFUSED, unix.ECONNRESET, unix.EPIPE, unix.EAGAIN, io.EOF, os.ErrDeadlineExceeded,
		context.DeadlineExceeded, context.Canceled} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// create creates the fabric. It takes the name first, so that only one of several processes creates
// an arena; the others wait in the socket's queue.
func (f *fabric) create(at string, cfg Config) (again bool, err error) {
	l, err := unixsock.Listen(at)
	if err != nil {
		return errors.Is(err, unix.EADDRINUSE), err // in use: another process was faster
	}
	failpoint.Reach(failpoint.NameBound)
	a, err := Create(cfg)
	if err != nil {
		l.Close()
		return false, err
	}
	failpoint.Reach(failpoint.FabricCreated)
	f.created, f.arena, f.listener = true, a, l
	return false, nil
}

// join joins an existing fabric. After an error, again says whether to repeat the attempt.
func (f *fabric) join(ctx context.Context, at string, try time.Duration) (again bool, err error) {
	tryCtx, cancel := context.WithTimeout(ctx, try)
	defer cancel()
	conn, err := unixsock.Dial(at)
	if err != nil {
		return isTransient(err), err
	}
	defer conn.Close()
	stop := context.AfterFunc(tryCtx, func() { conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	// Any process can bind the name. The kernel reports the user of the process that first listened.
	// It may have ended, but all processes that hold the socket run as this user.
	theirs, err := linux.PeerUser(conn)
	if err != nil {
		return false, err
	}
	if theirs != f.local.user {
		return false, wrongUser(theirs, f.local.user)
	}
	hello := f.local
	hello.status = fabricHello
	if _, err := conn.Write(hello.encode()); err != nil {
		return isTransient(err), err
	}
	failpoint.Reach(failpoint.HelloSent)
	record, files, err := readFabric(conn)
	defer closeAll(files)
	if err != nil {
		return isTransient(err), err
	}
	failpoint.Reach(failpoint.WelcomeReceived)
	id, err := f.local.checkReply(record, len(files))
	if err != nil {
		return false, err
	}
	listener, err := unixsock.ListenerOf(files[1], at)
	if err != nil {
		return false, fmt.Errorf("%w: the second descriptor: %w", errNotFabric, err)
	}
	a, err := Attach(ctx, files[0])
	if err != nil {
		listener.Close()
		return false, err
	}
	if a.id != id {
		return false, errors.Join(fmt.Errorf("%w: the arena in the reply is not the announced one", errNotFabric), listener.Close(), a.Close())
	}
	f.arena, f.listener = a, listener
	return false, nil
}

// readFabric reads one record and the descriptors that come with it. The caller must close the
// files even if err is not nil.
func readFabric(c *unixsock.Conn) (record []byte, files []*os.File, err error) {
	b := make([]byte, fabricRecordSize+1) // one byte more, so that a longer record is recognised
	oob := make([]byte, unix.CmsgSpace(4*maxPassed))
	n, oobn, flags, err := c.Receive(b, oob)
	files = unixsock.PassedFiles(oob[:oobn])
	if err == nil && flags&unix.MSG_CTRUNC != 0 {
		err = fmt.Errorf("%w: not all descriptors arrived (too many of them, or the limit on open files: ulimit -n)", errNotFabric)
	}
	return b[:n], files, err
}

// maxPassed is the most descriptors that Linux passes in one message.
const maxPassed = 253

func closeAll(files []*os.File) {
	for _, f := range files {
		f.Close()
	}
}

// serve answers joiners until the fabric is closed.
func (f *fabric) serve() {
	for own := 0; ; {
		c, err := f.listener.Accept()
		if errors.Is(err, os.ErrClosed) {
			return
		}
		if err != nil { // no descriptors left, or the joiner has ended
			time.Sleep(fabricMaxPause)
			continue
		}
		i := fabricConns - 1 // the place of other users
		if user, err := linux.PeerUser(c); err == nil && user == f.local.user {
			i, own = own, (own+1)%(fabricConns-1)
		}
		f.mu.Lock()
		if f.closed {
			f.mu.Unlock()
			c.Close()
			return
		}
		if oldest := f.conns[i]; oldest != nil {
			oldest.Close()
		}
		f.conns[i] = c
		f.mu.Unlock()
		f.done.Go(func() {
			// After an error the joiner sees a closed connection and connects again.
			_ = f.reply(c)
			c.Close()
			f.mu.Lock()
			defer f.mu.Unlock()
			if f.conns[i] == c {
				f.conns[i] = nil
			}
		})
	}
}

func (f *fabric) reply(c *unixsock.Conn) error {
	failpoint.Reach(failpoint.JoinerAccepted)
	if err := c.SetDeadline(time.Now().Add(fabricReplyTimeout)); err != nil {
		return err
	}
	user, err := linux.PeerUser(c)
	if err != nil {
		return err
	}
	// Read, unlike Receive, makes the kernel discard descriptors that the joiner sends.
	b := make([]byte, fabricRecordSize+1)
	n, err := c.Read(b)
	if err != nil {
		return err
	}
	failpoint.Reach(failpoint.HelloReceived)
	r, ok := f.local.answer(b[:n], user)
	if !ok {
		return nil
	}
	if r.status != fabricWelcome {
		_, err := c.Write(r.encode())
		return err
	}
	raw, err := f.listener.SyscallConn()
	if err != nil {
		return err
	}
	ctlErr := raw.Control(func(socket uintptr) {
		_, err = c.Send(r.encode(), unix.UnixRights(int(f.arena.File().Fd()), int(socket)))
	})
	failpoint.Reach(failpoint.WelcomeSent)
	return errors.Join(ctlErr, err)
}

// close stops answering joiners.
func (f *fabric) close() error {
	f.mu.Lock()
	f.closed = true
	for _, c := range f.conns {
		if c != nil {
			c.Close()
		}
	}
	f.mu.Unlock()
	err := f.listener.Close()
	f.done.Wait()
	return err
}
