package shm

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/softnd/softnd/internal/peeruser"
	"github.com/softnd/softnd/internal/unixsock"
)

// Fabric is an arena with a name, for processes that no common launcher
// started. The name is that of an abstract Unix socket, so it exists in no
// file system and is gone with the last process that holds it.
//
// Every process of a fabric holds the listening socket and answers those who
// want to join: the first one has made it, and hands it on together with the
// arena. So nobody has to take over when a process goes. The name belongs to
// one user and one network namespace.
type Fabric struct {
	name     string
	created  bool
	arena    *Arena
	listener *unixsock.Listener
	own      fabricRecord

	done  sync.WaitGroup
	mu    sync.Mutex
	conns [fabricConns]*unixsock.Conn // being answered
	shut  bool
}

const (
	// fabricConns is how many joiners one process answers at a time. One more
	// pushes out the oldest, who has had its time or is no joiner at all.
	fabricConns = 64
	// A joiner gives up on a member that does not answer, and asks again: it
	// may have met one that is stopped. The first try is the shortest.
	fabricFirstTry = 250 * time.Millisecond
	fabricLastTry  = 2 * time.Second
	// The pause before it asks again when nothing was waited for.
	fabricFirstPause = time.Millisecond
	fabricLastPause  = 50 * time.Millisecond
)

// fabricPatience bounds the answering of one joiner.
var fabricPatience = 2 * time.Second

// fabricLetters are what the name of a fabric consists of.
const fabricLetters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-"

// OpenFabric joins the fabric of this name and user, or makes it when there is
// none. name has 1 to 64 characters out of A-Z a-z 0-9 . _ and -.
//
// cfg counts for the process that makes the arena; a joiner whose cfg names
// another number of ranks is refused, one that names none is not. ctx bounds
// the whole: as long as the members of the fabric do not answer, all of them
// being stopped for instance, OpenFabric asks again.
//
// Errors: those of [Create] and [Attach]; [ErrUser] when another user holds
// the name; [ErrVersion] when the members are of another release;
// [ErrNotFabric] when something else answers under the name; [ErrNoAnswer]
// together with ctx's error when nobody does.
func OpenFabric(ctx context.Context, name string, cfg Config) (*Fabric, error) {
	return fabricNamed(ctx, name, &cfg)
}

// FindFabric is OpenFabric for a process that only observes: it makes no arena.
//
// Errors: those of [OpenFabric]; [ErrNoFabric] when no process holds the name.
func FindFabric(ctx context.Context, name string) (*Fabric, error) {
	return fabricNamed(ctx, name, nil)
}

// fabricNamed joins a fabric, or makes it if there is none and cfg is not nil.
func fabricNamed(ctx context.Context, name string, cfg *Config) (*Fabric, error) {
	if name == "" || len(name) > 64 || strings.Trim(name, fabricLetters) != "" {
		return nil, fmt.Errorf("shm: fabric name %q: want 1 to 64 of A-Z a-z 0-9 . _ -", name)
	}
	user := uint32(os.Geteuid())
	f, err := openFabric(ctx, fabricAddress(user, name), user, cfg)
	if err != nil {
		return nil, fmt.Errorf("shm: fabric %q: %w", name, err)
	}
	f.name = name
	return f, nil
}

// fabricAddress returns the abstract address of a user's fabric.
func fabricAddress(user uint32, name string) string {
	return fmt.Sprintf("@softnd-fabric-%d-%s", user, name)
}

func openFabric(ctx context.Context, at string, user uint32, cfg *Config) (*Fabric, error) {
	f := &Fabric{own: recordOf(user)}
	try, pause := fabricFirstTry, fabricFirstPause
	for {
		again, err := f.join(ctx, at, try)
		if errors.Is(err, unix.ECONNREFUSED) { // nobody listens
			if cfg == nil {
				return nil, fmt.Errorf("%w in this network namespace", ErrNoFabric)
			}
			again, err = f.make(at, *cfg)
		}
		if err == nil {
			break
		}
		if !again {
			return nil, err
		}
		if errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, context.DeadlineExceeded) {
			try = min(2*try, fabricLastTry)
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("%w: %w (last try: %w)", ErrNoAnswer, ctx.Err(), err)
		case <-time.After(pause):
		}
		pause = min(2*pause, fabricLastPause)
	}
	if cfg != nil && !f.created && cfg.Ranks != 0 && cfg.Ranks != f.arena.Ranks() {
		err := fmt.Errorf("it has a group of %d ranks, this process wants %d", f.arena.Ranks(), cfg.Ranks)
		return nil, errors.Join(err, f.listener.Close(), f.arena.Close())
	}
	f.own.id = f.arena.ID()
	f.done.Go(f.serve)
	return f, nil
}

// hungUp tells whether a connection came to nothing in a way that may end well
// next time: the member has gone, was slow or stopped, or had too many joiners.
func hungUp(err error) bool {
	for _, e := range []error{unix.ECONNREFUSED, unix.ECONNRESET, unix.EPIPE, unix.EAGAIN, io.EOF, os.ErrDeadlineExceeded,
		context.DeadlineExceeded, context.Canceled} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// make is the first process's way. The name is taken first, so that of several
// that start together one makes an arena; the others wait in the socket's
// queue.
func (f *Fabric) make(at string, cfg Config) (again bool, err error) {
	l, err := unixsock.Listen(at)
	if err != nil {
		return errors.Is(err, unix.EADDRINUSE), err // in use: somebody was faster
	}
	a, err := Create(cfg)
	if err != nil {
		l.Close()
		return false, err
	}
	f.created, f.arena, f.listener = true, a, l
	return false, nil
}

// join is everybody else's way. After an error it tells whether to ask again.
func (f *Fabric) join(ctx context.Context, at string, try time.Duration) (again bool, err error) {
	tryCtx, cancel := context.WithTimeout(ctx, try)
	defer cancel()
	conn, err := unixsock.Dial(at)
	if err != nil {
		return hungUp(err), err
	}
	defer conn.Close()
	stop := context.AfterFunc(tryCtx, func() { conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	// Whoever bound the name may be anybody. That process may be gone, but
	// all that hold the socket run as its user.
	theirs, err := peeruser.Of(conn)
	if err != nil {
		return false, err
	}
	if theirs != f.own.user {
		return false, wrongUser(theirs, f.own.user)
	}
	hello := f.own
	hello.status = fabricHello
	if _, err := conn.Write(hello.encode()); err != nil {
		return hungUp(err), err
	}
	record, files, err := readFabric(conn)
	defer closeAll(files)
	if err != nil {
		return hungUp(err), err
	}
	id, err := f.own.verdict(record, len(files))
	if err != nil {
		return false, err
	}
	listener, err := unixsock.ListenerOf(files[1], at)
	if err != nil {
		return false, fmt.Errorf("%w: the second descriptor: %w", ErrNotFabric, err)
	}
	a, err := Attach(ctx, files[0])
	if err != nil {
		listener.Close()
		return false, err
	}
	if a.ID() != id {
		return false, errors.Join(fmt.Errorf("%w: the arena that came is not the one announced", ErrNotFabric), listener.Close(), a.Close())
	}
	f.arena, f.listener = a, listener
	return false, nil
}

// readFabric reads one record and the descriptors that come with it. The
// files are the caller's to close, whatever err is.
func readFabric(c *unixsock.Conn) (record []byte, files []*os.File, err error) {
	b := make([]byte, fabricRecordSize+1) // so that a longer record does not look like a whole one
	oob := make([]byte, unix.CmsgSpace(4*maxPassed))
	n, oobn, flags, err := c.Receive(b, oob)
	files = passedFiles(oob[:oobn])
	if err == nil && flags&unix.MSG_CTRUNC != 0 {
		err = fmt.Errorf("%w: not all descriptors arrived (too many of them, or the limit of open files: ulimit -n)", ErrNotFabric)
	}
	return b[:n], files, err
}

// maxPassed is the most descriptors that Linux passes in one message.
const maxPassed = 253

func passedFiles(oob []byte) (files []*os.File) {
	messages, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return nil
	}
	for _, m := range messages {
		fds, err := unix.ParseUnixRights(&m)
		if err != nil {
			continue
		}
		for _, fd := range fds {
			files = append(files, os.NewFile(uintptr(fd), "passed"))
		}
	}
	return files
}

func closeAll(files []*os.File) {
	for _, f := range files {
		f.Close()
	}
}

// serve answers joiners until the fabric is closed.
func (f *Fabric) serve() {
	for i := 0; ; i = (i + 1) % fabricConns {
		c, err := f.listener.Accept()
		if errors.Is(err, os.ErrClosed) {
			return
		}
		if err != nil { // out of descriptors, or the joiner is gone already
			time.Sleep(fabricLastPause)
			continue
		}
		f.mu.Lock()
		if f.shut {
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
			// Errors are the joiner's: it sees a closed connection and asks again.
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

func (f *Fabric) reply(c *unixsock.Conn) error {
	if err := c.SetDeadline(time.Now().Add(fabricPatience)); err != nil {
		return err
	}
	user, err := peeruser.Of(c)
	if err != nil {
		return err
	}
	// A plain read: the kernel drops descriptors that come along.
	b := make([]byte, fabricRecordSize+1)
	n, err := c.Read(b)
	if err != nil {
		return err
	}
	r, ok := f.own.answer(b[:n], user)
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
	return errors.Join(ctlErr, err)
}

// Arena returns the fabric's arena. The fabric closes it.
func (f *Fabric) Arena() *Arena { return f.arena }

// Name returns the name under which the fabric was opened.
func (f *Fabric) Name() string { return f.name }

// Created tells whether this process made the arena.
func (f *Fabric) Created() bool { return f.created }

// Close stops answering joiners and closes the arena. As with [Arena.Close],
// every [Member] joined through it must have left: otherwise Close returns an
// error and does nothing.
func (f *Fabric) Close() error {
	if err := f.arena.closable(); err != nil {
		return fmt.Errorf("shm: close fabric: %w", err)
	}
	f.mu.Lock()
	f.shut = true
	for _, c := range f.conns {
		if c != nil {
			c.Close()
		}
	}
	f.mu.Unlock()
	err := f.listener.Close()
	f.done.Wait()
	return errors.Join(err, f.arena.Close())
}
