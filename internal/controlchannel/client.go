package controlchannel

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

// Channel is a rank's end of its control channel. It is safe for concurrent use. It ends with
// Leave, Close, or the process.
type Channel struct{ conn *unixsock.Conn }

// Dial connects to the launcher as a rank. If wantFile is set, Dial also returns the job's file,
// which the caller closes.
//
// It fails if no process listens (the launcher has ended, or is in another network namespace), if
// the listener belongs to another user, and if the launcher refuses the rank.
func Dial(ctx context.Context, a Address, rank int, wantFile bool) (*Channel, *os.File, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	c, err := unixsock.Dial(a.socket())
	if err != nil {
		return nil, nil, fmt.Errorf("connect to launcher: %w: check that it runs, and in the same network namespace", err)
	}
	stop := context.AfterFunc(ctx, func() { c.SetDeadline(time.Unix(1, 0)) })
	file, err := handshake(c, a, rank, wantFile)
	stop()
	if err != nil {
		c.Close()
		return nil, nil, fmt.Errorf("connect to launcher: %w", err)
	}
	_ = c.SetDeadline(time.Time{})
	return &Channel{c}, file, nil
}

func handshake(c *unixsock.Conn, a Address, rank int, wantFile bool) (*os.File, error) {
	user, err := peeruser.Of(c)
	if err != nil {
		return nil, err
	}
	if own := uint32(os.Geteuid()); user != own {
		return nil, fmt.Errorf("it runs as user %d, this process as user %d: run both as one user", user, own)
	}
	if err := send(c, message{Kind: hello, Version: version, Build: build.Name(), Secret: a.secret, Rank: rank, File: wantFile}); err != nil {
		return nil, err
	}
	b := make([]byte, maxMessage+1)
	oob := make([]byte, unix.CmsgSpace(4))
	n, oobn, _, err := c.Receive(b, oob)
	if err != nil {
		return nil, err
	}
	file := passedFile(oob[:oobn])
	r, err := parse(b[:n])
	switch {
	case err != nil:
	case r.Kind == refusal:
		err = errors.New(r.Text)
	case r.Kind != welcome || wantFile != (file != nil):
		err = fmt.Errorf("unexpected answer %.20q (with file: %t)", r.Kind, file != nil)
	}
	if err != nil && file != nil {
		file.Close()
	}
	return file, err
}

// passedFile returns the file that was sent with a message, nil if there is not exactly one.
func passedFile(oob []byte) *os.File {
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

// Leave tells the launcher that the rank ends in good order, and closes the channel.
func (ch *Channel) Leave() error {
	_ = ch.conn.SetDeadline(time.Now().Add(timeout))
	err := send(ch.conn, message{Kind: leave})
	if errors.Is(err, unix.EPIPE) || errors.Is(err, unix.ECONNRESET) {
		err = nil // the launcher has ended
	}
	return errors.Join(err, ch.conn.Close())
}

// Close closes the channel without a message. The launcher concludes that the rank has not ended in
// good order.
func (ch *Channel) Close() error { return ch.conn.Close() }

// Abort asks the launcher to end the job with an exit code and a reason, of which it sends the first
// 512 bytes. It returns when the launcher has received the request.
func (ch *Channel) Abort(code int, reason string) error {
	_ = ch.conn.SetDeadline(time.Now().Add(timeout))
	reason = strings.ToValidUTF8(reason[:min(len(reason), maxReason)], "")
	if err := send(ch.conn, message{Kind: abort, Code: code, Text: reason}); err != nil {
		return err
	}
	r, err := receive(ch.conn)
	if err == nil && r.Kind != welcome {
		err = fmt.Errorf("abort: unexpected answer %.20q of the launcher", r.Kind)
	}
	return err
}
