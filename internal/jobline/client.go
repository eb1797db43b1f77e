package jobline

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/softnd/softnd/internal/build"
	"github.com/softnd/softnd/internal/peeruser"
	"github.com/softnd/softnd/internal/unixsock"
)

// Line is a rank's end. Safe for concurrent use; it ends with Leave, or with the
// process.
type Line struct{ conn *unixsock.Conn }

// Dial calls the launcher. If wantFile is set, the job's file comes with the line, and
// is the caller's to close.
//
// Errors say what stood in the way: that nobody listens (in another network namespace,
// or the launcher has gone), that somebody else does, or why the launcher refused.
func Dial(ctx context.Context, a Address, rank int, wantFile bool) (*Line, *os.File, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	c, err := unixsock.Dial(a.socket())
	if err != nil {
		return nil, nil, fmt.Errorf("call the launcher (is it in another network namespace, or gone?): %w", err)
	}
	stop := context.AfterFunc(ctx, func() { c.SetDeadline(time.Unix(1, 0)) })
	file, err := introduce(c, a, rank, wantFile)
	stop()
	if err != nil {
		c.Close()
		return nil, nil, fmt.Errorf("call the launcher: %w", err)
	}
	_ = c.SetDeadline(time.Time{})
	return &Line{c}, file, nil
}

func introduce(c *unixsock.Conn, a Address, rank int, wantFile bool) (*os.File, error) {
	user, err := peeruser.Of(c)
	if err != nil {
		return nil, err
	}
	if own := uint32(os.Geteuid()); user != own {
		return nil, fmt.Errorf("it runs as user %d, this process as user %d", user, own)
	}
	if err := send(c, record{Kind: hello, Version: version, Build: build.Name(), Secret: a.secret, Rank: rank, File: wantFile}); err != nil {
		return nil, err
	}
	b := make([]byte, maxRecord+1)
	oob := make([]byte, unix.CmsgSpace(4))
	n, oobn, _, err := c.Receive(b, oob)
	if err != nil {
		return nil, err
	}
	file := passed(oob[:oobn])
	r, err := parse(b[:n])
	switch {
	case err != nil:
	case r.Kind == refusal:
		err = errors.New(r.Text)
	case r.Kind != welcome || wantFile != (file != nil):
		err = fmt.Errorf("it answers with a %.20q, and a file: %t", r.Kind, file != nil)
	}
	if err != nil && file != nil {
		file.Close()
	}
	return file, err
}

// passed is the one file that came along, nil if there is none.
func passed(oob []byte) *os.File {
	messages, err := unix.ParseSocketControlMessage(oob)
	if err != nil || len(messages) != 1 {
		return nil
	}
	fds, err := unix.ParseUnixRights(&messages[0])
	if err != nil || len(fds) != 1 {
		return nil
	}
	return os.NewFile(uintptr(fds[0]), "passed")
}

// Leave tells the launcher that the rank ends well, and hangs up.
func (l *Line) Leave() error {
	_ = l.conn.SetDeadline(time.Now().Add(patience))
	err := send(l.conn, record{Kind: leave})
	if errors.Is(err, unix.EPIPE) || errors.Is(err, unix.ECONNRESET) {
		err = nil // the launcher has gone, and will hear nothing about anybody
	}
	return errors.Join(err, l.conn.Close())
}

// HangUp ends the line without a word: the rank has not ended well.
func (l *Line) HangUp() error { return l.conn.Close() }

// Abort asks the launcher to end the job with an exit code and a reason, of which it
// gets the first 512 bytes, and returns when the launcher has heard it.
func (l *Line) Abort(code int, reason string) error {
	_ = l.conn.SetDeadline(time.Now().Add(patience))
	reason = strings.ToValidUTF8(reason[:min(len(reason), maxReason)], "")
	if err := send(l.conn, record{Kind: abort, Code: code, Text: reason}); err != nil {
		return err
	}
	r, err := receive(l.conn)
	if err == nil && r.Kind != welcome {
		err = fmt.Errorf("the launcher answers with a %.20q", r.Kind)
	}
	return err
}
