// Package relayclient starts ndrelay, the process that carries a job's connections to other hosts, and passes it the
// addresses of the other hosts' relays. Both sides write one JSON object a line; protocol.go of ndrelay describes them.
package relayclient

// TWIN c/src/meet/relay.c.

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/softnd/softnd/internal/linux"
)

// Variables of the environment, which users set.
const (
	EnvProgram   = "SOFTND_RELAY"           // path of ndrelay
	EnvProvider  = "SOFTND_RELAY_PROVIDER"  // libfabric's name of a provider
	EnvKeepalive = "SOFTND_RELAY_KEEPALIVE" // a host that is silent for this long has failed
)

// Provider returns libfabric's name of the provider that relays use.
func Provider() string {
	if name := os.Getenv(EnvProvider); name != "" {
		return name
	}
	return "tcp"
}

// Keepalive returns the time of EnvKeepalive, 5 s if it is not set.
func Keepalive() (time.Duration, error) {
	text := os.Getenv(EnvKeepalive)
	if text == "" {
		return 5 * time.Second, nil
	}
	d, err := time.ParseDuration(text)
	if err != nil || d <= 0 {
		return 0, fmt.Errorf("%s=%q: want a duration such as 5s", EnvKeepalive, text)
	}
	return d, nil
}

const (
	program = "ndrelay"
	maxLine = 64 << 10 // bytes of an answer
)

// Config is what the relay has to know.
type Config struct {
	Job     string // 32 hexadecimal digits
	Secret  []byte // 32 bytes
	Host    int
	Hosts   int
	Address string // local IP address
	Hidden  string // a variable of the environment that the relay does not get
	Pack    uint64 // bytes of the longest pack of an Exchange

	// Launcher is a connection over which the relay has the launcher end the job if a rank dies; nil = it does not. The caller
	// closes it. See [Relay.Finalize].
	Launcher *os.File
}

// instruction is the first line that the relay reads.
type instruction struct {
	Job       string `json:"job"`
	Secret    []byte `json:"secret"`
	Host      int    `json:"host"`
	Hosts     int    `json:"hosts"`
	Provider  string `json:"provider"`
	Address   string `json:"address"`
	Keepalive string `json:"keepalive"`
	Launcher  bool   `json:"launcher,omitempty"` // descriptor 4 is a connection with the launcher
	Pack      uint64 `json:"pack"`
}

// answer is a line of the relay.
type answer struct {
	Control string `json:"control"` // address for the other relays
	Ready   bool   `json:"ready"`
	Error   string `json:"error"`
}

// Relay is a running ndrelay. Its methods are for one goroutine at a time, except Finalize and Close.
type Relay struct {
	Control string // address to which other relays connect

	host        int
	hasLauncher bool
	process     *os.Process
	in          *os.File // its standard input, whose end lets it end
	out         *os.File
	lines       *bufio.Reader
	listens     atomic.Bool // it has answered, so its end is news
	closed      atomic.Bool
	ended       chan struct{}

	mu   sync.Mutex
	talk conversation
}

// Start starts the relay, a member of the arena in file, and returns when it listens. If the relay ends before Close, a
// line is printed.
func Start(ctx context.Context, file *os.File, c Config) (*Relay, error) {
	path, err := Find()
	if err != nil {
		return nil, err
	}
	keepalive, err := Keepalive()
	if err != nil {
		return nil, err
	}
	first := instruction{Job: c.Job, Secret: c.Secret, Host: c.Host, Hosts: c.Hosts, Address: c.Address, Provider: Provider(), Keepalive: keepalive.String(), Launcher: c.Launcher != nil, Pack: c.Pack}
	r := &Relay{host: c.Host, hasLauncher: c.Launcher != nil, ended: make(chan struct{})}
	if err := r.start(path, c.Hidden, file, c.Launcher); err != nil {
		return nil, fmt.Errorf("start %s: %w", path, err)
	}
	var a answer
	if a, err = r.ask(ctx, first); err == nil && a.Control == "" {
		err = errors.New("its first answer has no address")
	}
	if err != nil {
		r.Close()
		return nil, fmt.Errorf("the relay of host %d (%s): %w", c.Host, path, err)
	}
	r.Control = a.Control
	r.listens.Store(true)
	return r, nil
}

// Find returns the path of ndrelay.
func Find() (string, error) {
	path, set := os.Getenv(EnvProgram), true
	if path == "" {
		path, set = program, false
	}
	found, err := exec.LookPath(path)
	switch {
	case err == nil:
		return found, nil
	case set:
		return "", fmt.Errorf("%s: %w: it has to name the program ndrelay", EnvProgram, err)
	}
	return "", fmt.Errorf("a job over several hosts needs the program ndrelay at each host: %w: install libfabric-dev, "+
		"run go -C relay install ./cmd/ndrelay in the source of softnd, and put ndrelay into PATH or set %s to its path", err, EnvProgram)
}

// start starts the process. It has a session of its own: a signal that ends the ranks must not end the relay before
// them.
func (r *Relay) start(path, hidden string, arena, launcher *os.File) (err error) {
	linux.ReserveStandard(func() { err = r.startReserved(path, hidden, arena, launcher) })
	return err
}

func (r *Relay) startReserved(path, hidden string, arena, launcher *os.File) error {
	theirIn, in, err := os.Pipe() // in linux.ReserveStandard
	if err != nil {
		return err
	}
	defer theirIn.Close()
	out, theirOut, err := os.Pipe() // in linux.ReserveStandard
	if err != nil {
		in.Close()
		return err
	}
	defer theirOut.Close()
	r.in, r.out, r.lines = in, out, bufio.NewReaderSize(out, maxLine)
	files := []*os.File{theirIn, theirOut, os.Stderr, arena}
	if launcher != nil {
		files = append(files, launcher)
	}
	attributes := &os.ProcAttr{Env: without(hidden), Files: files, Sys: &syscall.SysProcAttr{Setsid: true}}
	r.process, err = os.StartProcess(path, []string{path}, attributes) // in linux.ReserveStandard
	if err != nil {
		in.Close()
		out.Close()
		return err
	}
	go r.reap()
	return nil
}

// without returns the environment without a variable.
func without(name string) []string {
	return slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, name+"=") })
}

func (r *Relay) reap() {
	state, err := r.process.Wait()
	if !r.closed.Load() && r.listens.Load() {
		fmt.Fprintf(os.Stderr, "softnd: the relay of host %d has ended (%v): all connections to other hosts are lost\n", r.host, errors.Join(err, stateError(state)))
	}
	close(r.ended)
}

func stateError(state *os.ProcessState) error {
	if state == nil {
		return nil
	}
	return errors.New(state.String())
}

// Connect passes the addresses of all relays, by host number, and returns when the relay is connected with them.
func (r *Relay) Connect(ctx context.Context, relays []string) error {
	a, err := r.ask(ctx, map[string][]string{"relays": relays})
	if err == nil && !a.Ready {
		err = errors.New("its second answer is not that it is ready")
	}
	if err != nil {
		return fmt.Errorf("the relay of host %d, for the relays at %s: %w; check that the hosts reach these addresses, or set SOFTND_HOST_ADDRESS",
			r.host, strings.Join(relays, ", "), err)
	}
	return nil
}

// ask writes a line, and returns the answer. When ctx ends, it ends the relay.
func (r *Relay) ask(ctx context.Context, line any) (a answer, err error) {
	stop := context.AfterFunc(ctx, r.kill)
	defer stop()
	b, err := json.Marshal(line)
	if err != nil {
		return a, err
	}
	_, writeErr := r.in.Write(append(b, '\n')) // fails if the relay has ended, which may have said why
	text, err := r.lines.ReadSlice('\n')
	if ctx.Err() != nil {
		return a, context.Cause(ctx)
	}
	if err != nil {
		return a, fmt.Errorf("it has ended without an answer: %w", errors.Join(writeErr, err))
	}
	if err := json.Unmarshal(text, &a); err != nil {
		return a, fmt.Errorf("malformed answer %.80q: %w", text, err)
	}
	if a.Error != "" {
		return a, errors.New(a.Error)
	}
	return a, nil
}

func (r *Relay) kill() {
	r.closed.Store(true)
	_ = r.process.Kill() // it may have ended
}

// Close lets the relay end when no rank of this host is left. It does not wait for that.
func (r *Relay) Close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed.Store(true)
	r.in.Close()
	r.out.Close()
}
