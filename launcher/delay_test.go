package launcher

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/softnd/softnd/internal/linux"
	"github.com/softnd/softnd/internal/testkit/proctest"
)

func init() {
	proctest.Role("server", func(*proctest.Self) error { return runServer() })
	proctest.Role("client", func(*proctest.Self) error { return runClient() })
}

// runServer accepts one connection, for which it begins to listen late.
func runServer() error {
	time.Sleep(200 * time.Millisecond)
	l, err := net.Listen(os.Getenv("NETWORK"), os.Getenv("ADDRESS"))
	if err != nil {
		return err
	}
	c, err := l.Accept()
	if err != nil {
		return err
	}
	return c.Close()
}

func runClient() error {
	c, err := net.Dial(os.Getenv("NETWORK"), os.Getenv("ADDRESS"))
	if err != nil {
		return err
	}
	return c.Close()
}

// shell returns a program that a shell runs as one rank.
func shell(script string) App {
	return App{Ranks: 1, Path: "/bin/sh", Args: []string{"sh", "-c", script}, Env: os.Environ()}
}

// ownAddress returns an address of this host at which tests of other packages take no ports.
func ownAddress() string {
	pid := os.Getpid()
	return fmt.Sprintf("127.%d.%d.%d", 1+pid>>16%254, pid>>8%256, pid%256)
}

// freePort returns an address at which no process listens, and no other process than the server does until the test ends.
func freePort(t *testing.T, host string) string {
	t.Helper()
	reservation, free, err := linux.ReservePort(netip.MustParseAddr(host))
	if err != nil {
		t.Skip("this machine has no such addresses: ", err)
	}
	t.Cleanup(func() { reservation.Close() })
	return free.String()
}

// A client that connects once finds its server if it starts after the server listens.
func TestStartAfterListeners(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ name, network, host string }{
		{"IPv4", "tcp4", ownAddress()}, {"IPv6", "tcp6", "::1"}, {"Unix stream", "unix", ""}, {"Unix packets", "unixpacket", ""},
	} {
		for _, behind := range []string{"no wrapper", "a shell"} {
			t.Run(tc.name+" behind "+behind, func(t *testing.T) {
				address := fmt.Sprintf("@softnd-test-%d-%s", os.Getpid(), t.Name())
				if tc.host != "" {
					address = freePort(t, tc.host)
				}
				env := []string{"NETWORK=" + tc.network, "ADDRESS=" + address}
				cfg := config("server", 1, env...)
				if server := &cfg.Apps[0]; behind == "a shell" {
					server.Path, server.Args = "/bin/sh", []string{"sh", "-c", fmt.Sprintf("/proc/%d/exe; exit $?", os.Getpid())}
				}
				client := config("client", 1, env...).Apps[0]
				client.Listeners = 1
				cfg.Apps = append(cfg.Apps, client)
				j := start(t, cfg)
				if report := j.wait(); report.ExitStatus() != 0 {
					t.Errorf("exit status %d\n%s", report.ExitStatus(), j.err)
				}
			})
		}
	}
}

// Each program starts that long after the one before it, and all ranks of one start together.
func TestStartAfter(t *testing.T) {
	const delay = 150 * time.Millisecond
	one := shell("date +%s%N")
	two, three := one, one
	two.Ranks, two.After = 2, delay
	three.After = 2 * delay
	begin := time.Now().UnixNano() // not the time that the first rank prints, which a loaded machine makes late
	j := start(t, Config{Apps: []App{one, two, three, one}})
	if report := j.wait(); report.ExitStatus() != 0 {
		t.Fatalf("exit status %d\n%s", report.ExitStatus(), j.err)
	}
	var at [5]int64
	for rank, rest := range j.out.await(5, "") {
		fmt.Sscan(rest, &at[rank])
	}
	early := begin + int64(delay)
	if at[1] < early || at[2] < early || at[3] < early+2*int64(delay) || at[4] < early+2*int64(delay) {
		t.Errorf("the ranks started at %v, and the job at %d, want pauses of %v and %v", at, begin, delay, 2*delay)
	}
}

// The end of a job before all programs have started.
func TestEndBeforeStart(t *testing.T) {
	for _, tc := range []struct {
		name      string
		script    string
		after     time.Duration
		listeners int
		goOn      bool
		timeout   time.Duration
		signal    syscall.Signal
		want      int
		started   bool
		message   string
	}{
		{name: "failure", script: "exit 7", after: time.Hour, want: 7, message: "exited with code 7; 1 rank was not started"},
		{name: "failure instead of listening", script: "exit 7", listeners: 1, want: 7, message: "exited with code 7; 1 rank was not started"},
		{name: "failure, the job goes on", script: "exit 7", listeners: 1, goOn: true, want: 7, started: true, message: "exited with code 7; 1 rank went on"},
		{name: "success", script: "exit 0", after: time.Millisecond, started: true},
		{name: "success instead of listening", script: "exit 0", listeners: 1, started: true},
		{name: "timeout", script: "exec sleep 600", listeners: 1, timeout: 200 * time.Millisecond, want: 124},
		{name: "signal", script: "echo ready; exec sleep 600", after: time.Hour, signal: syscall.SIGTERM, want: 143, message: "job stopped by signal SIGTERM (terminated)"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			signals := make(chan os.Signal, 1)
			second := shell("exit 0")
			second.After, second.Listeners = tc.after, tc.listeners
			cfg := Config{Apps: []App{shell(tc.script), second}, Timeout: tc.timeout, Signals: signals}
			if tc.goOn {
				cfg.OnDeath = func(int, string) {}
			}
			j := start(t, cfg)
			if tc.signal != 0 {
				j.out.await(1, "ready")
				signals <- tc.signal
			}
			report := j.wait()
			message := strings.Join(report.Messages(), "\n")
			if report.ExitStatus() != tc.want || (report.Ranks[1].PID != 0) != tc.started || !strings.Contains(message, tc.message) {
				t.Errorf("exit status %d, process %d, message %q; want %d, started: %v, %q", report.ExitStatus(), report.Ranks[1].PID, message, tc.want, tc.started, tc.message)
			}
		})
	}
}

func TestInvalidStart(t *testing.T) {
	early, waiting := shell("exit 0"), shell("exit 0")
	early.After, waiting.Listeners = time.Second, 2
	for want, apps := range map[string][]App{
		"program 0: invalid start 1s after 0 listeners: 0 ranks are before it": {early},
		"program 1: invalid start 0s after 2 listeners: 1 ranks are before it": {shell("exit 0"), waiting},
	} {
		if _, err := run(t.Context(), Config{Apps: apps}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %s", err, want)
		}
	}
}
