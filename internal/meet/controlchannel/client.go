package controlchannel

// TWIN c/src/meet/control_channel.c.

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/softnd/softnd/internal/goruntime"
	"github.com/softnd/softnd/internal/linux"
	"github.com/softnd/softnd/internal/meet/unixsock"
)

// Channel is a rank's end of its control channel. It is safe for concurrent use. It ends with
// Leave, Close, or the process.
type Channel struct{ conn *unixsock.Conn }

// Wanted are the files that a rank requests.
type Wanted struct{ File, Journal bool }

// Files are the files that a rank got. The caller closes those that are not nil.
type Files struct {
	File    *os.File // the job's file
	Journal *os.File // nil if the launcher has none
}

// Dial connects to the launcher as a rank, and returns the files that the rank wants.
//
// It fails if no process listens (the launcher has ended, or is in another network namespace), if
// the listener belongs to another user, and if the launcher refuses the rank.
func Dial(ctx context.Context, a Address, rank int, wanted Wanted) (*Channel, Files, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	c, err := unixsock.Dial(a.socket())
	if err != nil {
		return nil, Files{}, fmt.Errorf("connect to launcher: %w: check that it runs, and in the same network namespace", err)
	}
	stop := context.AfterFunc(ctx, func() { c.SetDeadline(time.Unix(1, 0)) })
	files, err := handshake(c, a, rank, wanted)
	stop()
	if err != nil {
		c.Close()
		return nil, Files{}, fmt.Errorf("connect to launcher: %w", err)
	}
	_ = c.SetDeadline(time.Time{})
	return &Channel{c}, files, nil
}

func handshake(c *unixsock.Conn, a Address, rank int, wanted Wanted) (files Files, err error) {
	user, err := linux.PeerUser(c)
	if err != nil {
		return files, err
	}
	if own := uint32(os.Geteuid()); user != own {
		return files, fmt.Errorf("it runs as user %d, this process as user %d: run both as one user", user, own)
	}
	if err := send(c, message{Kind: hello, Version: version, Build: goruntime.BuildName(), Secret: a.secret, Rank: rank, File: wanted.File, Journal: wanted.Journal}); err != nil {
		return files, err
	}
	b := make([]byte, maxMessage+1)
	oob := make([]byte, unix.CmsgSpace(4*maxFiles))
	n, oobn, _, err := c.Receive(b, oob)
	if err != nil {
		return files, err
	}
	passed := unixsock.PassedFiles(oob[:oobn])
	r, err := parse(b[:n])
	number := 0
	if wanted.File {
		number++
	}
	if r.Journal && wanted.Journal {
		number++
	}
	switch {
	case err != nil:
	case r.Kind == refusal:
		err = errors.New(r.Text)
	case r.Kind != welcome || number != len(passed):
		err = fmt.Errorf("unexpected answer %.20q (with %d files)", r.Kind, len(passed))
	}
	if err != nil {
		for _, file := range passed {
			file.Close()
		}
		return files, err
	}
	if r.Journal && wanted.Journal {
		files.Journal = passed[number-1]
	}
	if wanted.File {
		files.File = passed[0]
	}
	return files, nil
}

// maxFiles is the number of files that a message can have.
const maxFiles = 2

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
