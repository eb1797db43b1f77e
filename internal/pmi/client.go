package pmi

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/softnd/softnd/internal/unixsock"
)

// Client is a rank's side: its conversation with the launcher that started it. But for
// Abort it is for one goroutine at a time. A process has one conversation: a launcher hangs up
// when it is finalized, and takes a process that ends without for one that has failed.
type Client struct {
	Rank, Size int

	conn  *unixsock.Conn
	lines *bufio.Reader
	name  string // of the job's store
}

// Dial begins the conversation of this process, as PMI_FD, PMI_RANK and PMI_SIZE say.
// The socket is taken over: programs that this one starts do not inherit it.
//
// Errors name what is wrong with the environment, or what the launcher said.
func Dial(ctx context.Context) (*Client, error) {
	fd, err := strconv.ParseUint(os.Getenv(EnvFD), 10, 31)
	if err != nil {
		return nil, fmt.Errorf("%s=%q is no descriptor number; start the program with a launcher that speaks PMI, or unset it", EnvFD, os.Getenv(EnvFD))
	}
	rank, rankErr := strconv.ParseUint(os.Getenv(EnvRank), 10, 31)
	size, sizeErr := strconv.ParseUint(os.Getenv(EnvSize), 10, 31)
	if rankErr != nil || sizeErr != nil || rank >= size {
		return nil, fmt.Errorf("%s=%q of %s=%q is no rank; start the program with a launcher that speaks PMI, or unset %s",
			EnvRank, os.Getenv(EnvRank), EnvSize, os.Getenv(EnvSize), EnvFD)
	}
	conn, err := inherited(int(fd))
	if err != nil {
		return nil, fmt.Errorf("descriptor %d (%s): %w", fd, EnvFD, err)
	}
	c := &Client{Rank: int(rank), Size: int(size), conn: conn, lines: bufio.NewReaderSize(conn, maxLine)}
	if err := c.begin(ctx); err != nil {
		conn.Close()
		return nil, err
	}
	return c, nil
}

// inherited makes a connection of a descriptor that was inherited. One that this
// process has opened itself closes with the next program, which an inherited one does
// not; so a number that a wrapper has closed is not taken for what now goes by it.
func inherited(fd int) (*unixsock.Conn, error) {
	flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0)
	if err != nil || flags&unix.FD_CLOEXEC != 0 {
		return nil, errors.New("it was not inherited, or is used up; did a wrapper close it, or has this process used PMI before?")
	}
	unix.CloseOnExec(fd) // PMI is not for the programs that this one starts
	conn, err := unixsock.Adopt(fd)
	if err != nil {
		return nil, fmt.Errorf("it is no socket: %w; did a wrapper replace it?", err)
	}
	return conn, nil
}

func (c *Client) begin(ctx context.Context) error {
	m, err := c.ask(ctx, "response_to_init", "init", "pmi_version", "1", "pmi_subversion", "1")
	if err != nil {
		return err
	}
	if m.values["pmi_version"] != "1" {
		return fmt.Errorf("pmi: the launcher speaks version %q, this program 1", m.values["pmi_version"])
	}
	if m, err = c.ask(ctx, "my_kvsname", "get_my_kvsname"); err != nil {
		return err
	}
	if c.name = m.values["kvsname"]; c.name == "" {
		return errors.New("pmi: the launcher gives the job's store no name")
	}
	return nil
}

// JobName returns the name of the job's store, which launchers derive from the job's
// number. No two running jobs of a launcher share it.
func (c *Client) JobName() string { return c.name }

// Put gives a key its value, once, for all ranks to see after the next [Client.Barrier].
// A key has 1 to 64 characters, a value up to 960, printable and without spaces.
func (c *Client) Put(ctx context.Context, key, value string) error {
	if key == "" || len(key) > maxKey || !printable(key) || len(value) > maxValue || !printable(value) {
		return fmt.Errorf("pmi: put %q: a key has 1 to %d printable characters, a value at most %d", key, maxKey, maxValue)
	}
	_, err := c.ask(ctx, "put_result", "put", "kvsname", c.name, "key", key, "value", value)
	return err
}

// Get returns what some rank has put.
func (c *Client) Get(ctx context.Context, key string) (string, error) {
	m, err := c.ask(ctx, "get_result", "get", "kvsname", c.name, "key", key)
	if err != nil {
		return "", err
	}
	value, ok := m.values["value"]
	if !ok {
		return "", fmt.Errorf("pmi: the launcher's answer has no value for %s", key)
	}
	return value, nil
}

// Barrier returns when all ranks have called it.
func (c *Client) Barrier(ctx context.Context) error {
	_, err := c.ask(ctx, "barrier_out", "barrier_in")
	return err
}

// Abort asks the launcher to end the job with an exit code.
func (c *Client) Abort(code int) error {
	_ = c.conn.SetDeadline(time.Now().Add(time.Second)) // the launcher may be in no state to listen
	_, err := io.WriteString(c.conn, format("abort", "exitcode", strconv.Itoa(code)))
	return err
}

// Finalize tells the launcher that this rank is about to end well, and hangs up.
func (c *Client) Finalize(ctx context.Context) error {
	_, err := c.ask(ctx, "finalize_ack", "finalize")
	return errors.Join(err, c.conn.Close())
}

// HangUp ends the conversation without Finalize: the launcher will take this rank for one that has failed.
func (c *Client) HangUp() error { return c.conn.Close() }

// ask sends a command and returns the answer, which has to be the one expected and to
// say that all is well.
func (c *Client) ask(ctx context.Context, want, command string, pairs ...string) (message, error) {
	_ = c.conn.SetDeadline(time.Time{})
	stop := context.AfterFunc(ctx, func() { _ = c.conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	fail := func(err error) (message, error) {
		if ctx.Err() != nil {
			err = ctx.Err()
		}
		return message{}, fmt.Errorf("pmi: %s: %w", command, err)
	}
	if err := ctx.Err(); err != nil {
		return fail(err)
	}
	if _, err := io.WriteString(c.conn, format(command, pairs...)); err != nil {
		return fail(err)
	}
	line, err := readLine(c.lines)
	if errors.Is(err, io.EOF) {
		return fail(errors.New("the launcher has hung up"))
	}
	if err != nil {
		return fail(err)
	}
	m, err := parse(line)
	if err != nil {
		return fail(fmt.Errorf("the launcher's answer is %w: %.80q", err, line))
	}
	if rc, ok := m.values["rc"]; ok && rc != "0" {
		return fail(fmt.Errorf("refused by the launcher: rc=%s %s", rc, m.values["msg"]))
	}
	if m.command != want {
		return fail(fmt.Errorf("the launcher answers %.80q instead of %s", line, want))
	}
	return m, nil
}
