package pmi

// TWIN c/src/meet/pmi.c.

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

	"github.com/softnd/softnd/internal/linux"
	"github.com/softnd/softnd/internal/meet/unixsock"
)

// Client is a rank's connection to the launcher that started it. Its methods are for one
// goroutine at a time, except Abort. A process has one Client during its life: the launcher
// closes the connection after finalize, and takes a process that exits without finalize for
// failed.
type Client struct {
	Rank, Size int

	conn  *unixsock.Conn
	lines *bufio.Reader
	name  string // of the job's key-value store
}

// Dial connects this process to the launcher that PMI_FD, PMI_RANK and PMI_SIZE describe. It sets
// close-on-exec on the socket, so programs that this one starts do not inherit it.
//
// Errors name the invalid variable, or have the launcher's message.
func Dial(ctx context.Context) (*Client, error) {
	fd, err := strconv.ParseUint(os.Getenv(EnvFD), 10, 31)
	if err != nil {
		return nil, fmt.Errorf("%s=%q: not a descriptor number: start the program with a launcher that speaks PMI, or unset it", EnvFD, os.Getenv(EnvFD))
	}
	rank, rankErr := strconv.ParseUint(os.Getenv(EnvRank), 10, 31)
	size, sizeErr := strconv.ParseUint(os.Getenv(EnvSize), 10, 31)
	if rankErr != nil || sizeErr != nil || rank >= size {
		return nil, fmt.Errorf("%s=%q (%s=%q): not a valid rank: start the program with a launcher that speaks PMI, or unset %s",
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

// inherited returns the connection of an inherited descriptor. A descriptor that this process has
// opened has close-on-exec set, an inherited one has not. So if a wrapper has closed the
// descriptor, another file that now has its number is not taken for it.
func inherited(fd int) (*unixsock.Conn, error) {
	flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0)
	if err != nil || flags&unix.FD_CLOEXEC != 0 {
		return nil, errors.New("not inherited: check that no wrapper closes it, and that this process uses PMI once")
	}
	unix.CloseOnExec(fd) // programs that this one starts must not use PMI
	conn, err := unixsock.Adopt(fd)
	if err != nil {
		return nil, fmt.Errorf("not a socket: %w: check that no wrapper replaces it", err)
	}
	return conn, nil
}

func (c *Client) begin(ctx context.Context) error {
	m, err := c.ask(ctx, "response_to_init", "init", "pmi_version", "1", "pmi_subversion", "1")
	if err != nil {
		return err
	}
	if m.values["pmi_version"] != "1" {
		return fmt.Errorf("pmi: init: unsupported version %q of the launcher: want 1", m.values["pmi_version"])
	}
	if m, err = c.ask(ctx, "my_kvsname", "get_my_kvsname"); err != nil {
		return err
	}
	if c.name = m.values["kvsname"]; c.name == "" {
		return errors.New("pmi: get_my_kvsname: the launcher's answer has no name")
	}
	return nil
}

// JobName returns the name of the job's key-value store. No two running jobs of a launcher have
// the same name.
func (c *Client) JobName() string { return c.name }

// Put sets the value of a key, once. All ranks can get it after the next [Client.Barrier]. A key
// has 1 to 64 characters, a value up to 960, printable and without spaces.
func (c *Client) Put(ctx context.Context, key, value string) error {
	if key == "" || len(key) > maxKey || !printable(key) || len(value) > maxValue || !printable(value) {
		return fmt.Errorf("pmi: put %q: invalid key or value: want 1 to %d and at most %d printable characters", key, maxKey, maxValue)
	}
	_, err := c.ask(ctx, "put_result", "put", "kvsname", c.name, "key", key, "value", value)
	return err
}

// Get returns the value of a key that a rank has put.
func (c *Client) Get(ctx context.Context, key string) (string, error) {
	m, err := c.ask(ctx, "get_result", "get", "kvsname", c.name, "key", key)
	if err != nil {
		return "", err
	}
	value, ok := m.values["value"]
	if !ok {
		return "", fmt.Errorf("pmi: get %s: the launcher's answer has no value", key)
	}
	return value, nil
}

// Barrier blocks until all ranks have called it.
func (c *Client) Barrier(ctx context.Context) error {
	_, err := c.ask(ctx, "barrier_out", "barrier_in")
	return err
}

// Abort asks the launcher to end the job with an exit code.
func (c *Client) Abort(code int) error {
	_ = c.conn.SetDeadline(time.Now().Add(abortLimit)) // the launcher may not read
	return writeAbort(c.conn, code)
}

// abortLimit is how long a launcher may take to read a request to abort.
const abortLimit = time.Second

func writeAbort(w io.Writer, code int) error {
	_, err := io.WriteString(w, format("abort", "exitcode", strconv.Itoa(code)))
	return err
}

// Dup returns a duplicate of the connection, with which another process may call [Abort] and [Finalize].
// [Client.Finalize] ends the duplicate as well, [Client.HangUp] does not.
func (c *Client) Dup() (*os.File, error) {
	raw, err := c.conn.SyscallConn()
	if err != nil {
		return nil, err
	}
	var fd int
	if e := raw.Control(func(of uintptr) { fd, err = linux.DuplicateAboveStandard(int(of)) }); e != nil {
		err = e
	}
	if err != nil {
		return nil, fmt.Errorf("pmi: duplicate the connection: %w", err)
	}
	return os.NewFile(uintptr(fd), "launcher"), nil
}

// Abort asks the launcher to end the job with an exit code, over a duplicate of a rank's connection.
func Abort(connection *os.File, code int) error {
	_ = connection.SetWriteDeadline(time.Now().Add(abortLimit)) // fails if the descriptor blocks
	return writeAbort(connection, code)
}

// Finalize tells the launcher that a rank exits in good order, over a duplicate of the rank's connection. It blocks until the
// launcher answers or closes the connection.
func Finalize(connection *os.File) error {
	if _, err := io.WriteString(connection, format("finalize")); err != nil {
		return err
	}
	line, err := readLine(bufio.NewReaderSize(connection, maxLine))
	if err != nil {
		return err
	}
	if m, err := parse(line); err != nil || m.command != "finalize_ack" {
		return fmt.Errorf("pmi: finalize: unexpected answer %.80q: want finalize_ack", line)
	}
	return nil
}

// Finalize tells the launcher that this rank will exit in good order, and closes the connection.
func (c *Client) Finalize(ctx context.Context) error {
	_, err := c.ask(ctx, "finalize_ack", "finalize")
	return errors.Join(err, c.conn.Close())
}

// HangUp closes the connection without finalize. The launcher then takes this rank for failed, unless another process has a
// duplicate of the connection.
func (c *Client) HangUp() error { return c.conn.Close() }

// ask sends a command and returns the answer, which must be the wanted one and report success.
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
		return fail(errors.New("the launcher closed the connection"))
	}
	if err != nil {
		return fail(err)
	}
	m, err := parse(line)
	if err != nil {
		return fail(fmt.Errorf("malformed answer %.80q: %w", line, err))
	}
	if rc, ok := m.values["rc"]; ok && rc != "0" {
		return fail(fmt.Errorf("refused by the launcher: rc=%s %s", rc, m.values["msg"]))
	}
	if m.command != want {
		return fail(fmt.Errorf("unexpected answer %.80q: want %s", line, want))
	}
	return m, nil
}
