package launcher

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/softnd/softnd/internal/testkit/proctest"
)

// runOwn reports its rank and its inherited descriptors over the rank's socket, and waits for an
// answer. The first byte of the answer is its exit code; "-" makes it wait for a signal.
func runOwn() error {
	var open []string
	for fd := FirstFile; fd < 64; fd++ {
		if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err == nil && flags&unix.FD_CLOEXEC == 0 {
			open = append(open, fmt.Sprint(fd))
		}
	}
	file := os.NewFile(FirstFile+1, "own")
	terminated := make(chan os.Signal, 1)
	signal.Notify(terminated, syscall.SIGTERM)
	fmt.Fprintf(file, "rank %s has %s", os.Getenv("RANK"), strings.Join(open, ","))
	go func() {
		if <-terminated; os.Getenv("OWN") == "deaf" {
			io.WriteString(file, "SIGTERM")
			return
		}
		os.Exit(0)
	}()
	b := make([]byte, 1)
	if _, err := io.ReadFull(file, b); err != nil {
		return err
	}
	if b[0] == '-' {
		forever()
	}
	os.Exit(int(b[0] - '0'))
	return nil
}

// owners returns a job whose ranks have a socket each, and the launcher's ends of the sockets.
func owners(t *testing.T, ranks int) (Config, []*net.UnixConn) {
	t.Helper()
	cfg := config("own", ranks)
	shared, _ := gate(t)
	cfg.Files = []*os.File{shared}
	conns := make([]*net.UnixConn, ranks)
	cfg.RankSocket = func(rank int, file *os.File) error {
		defer file.Close()
		conn, err := net.FileConn(file)
		if err != nil {
			return err
		}
		conns[rank] = conn.(*net.UnixConn)
		t.Cleanup(func() { conn.Close() })
		return nil
	}
	return cfg, conns
}

// hear returns the next message of a rank on its socket.
func hear(t *testing.T, conn *net.UnixConn) string {
	t.Helper()
	b := make([]byte, 100)
	n, err := conn.Read(b)
	if err != nil {
		t.Fatal(err)
	}
	return string(b[:n])
}

func tell(t *testing.T, conn *net.UnixConn, answer string) {
	t.Helper()
	if _, err := io.WriteString(conn, answer); err != nil {
		t.Error(err)
	}
}

// started waits until Run has passed the ranks' sockets to the test.
func started(t *testing.T, cfg *Config, ranks int) *runningJob {
	t.Helper()
	given := make(chan int, ranks)
	own := cfg.RankSocket
	cfg.RankSocket = func(rank int, file *os.File) error {
		defer func() { given <- rank }()
		return own(rank, file)
	}
	j := start(t, *cfg)
	for range ranks {
		proctest.Receive(t, "the socket of a rank is passed", given)
	}
	return j
}

// A rank inherits its own socket and no other rank's.
func TestRankSocket(t *testing.T) {
	cfg, conns := owners(t, 3)
	j := started(t, &cfg, 3)
	for rank, conn := range conns {
		if got, want := hear(t, conn), fmt.Sprintf("rank %d has %d,%d", rank, FirstFile, FirstFile+1); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
	for _, conn := range conns {
		tell(t, conn, "0")
		if n, err := conn.Read(make([]byte, 1)); err != io.EOF { // while the others still run: no other process holds it
			t.Errorf("%d bytes, %v, want the end", n, err)
		}
	}
	if r := j.wait(); r.ExitStatus() != 0 || len(r.Messages()) > 0 {
		t.Errorf("exit status %d, %q", r.ExitStatus(), r.Messages())
	}
}

// An error of Config.RankSocket stops the job and names the rank.
func TestRankSocketError(t *testing.T) {
	cfg, _ := owners(t, 2)
	cfg.RankSocket = func(rank int, file *os.File) error { return errors.Join(file.Close(), syscall.EMFILE) }
	r, err := start(t, cfg).result()
	if r == nil || r.ExitStatus() == 0 || !errors.Is(err, syscall.EMFILE) || !strings.Contains(err.Error(), "serve rank 0 of 2: ") {
		t.Errorf("%v, %v", r, err)
	}
}

func TestAbort(t *testing.T) {
	for _, tc := range []struct {
		name    string
		abort   Abort
		answer  string // to the rank, after its abort
		status  int
		message string
	}{
		{"with a reason", Abort{Rank: 1, Code: 7, Reason: "no more"}, "-", 7, "aborted the job with code 7: no more; the other 2 ranks were stopped"},
		{"without", Abort{Rank: 1, Code: 200}, "-", 200, "aborted the job with code 200; the other 2 ranks were stopped"},
		{"code out of range", Abort{Rank: 1, Code: 0}, "-", 1, "aborted the job with code 1; the other 2 ranks were stopped"},
		{"and its own failure", Abort{Rank: 1, Code: 7}, "3", 7, "aborted the job with code 7; the other 2 ranks were stopped"},
		{"and its good end", Abort{Rank: 1, Code: 7}, "0", 7, "aborted the job with code 7; the other 2 ranks were stopped"},
		{"no rank", Abort{Rank: 3, Code: 7}, "5", 5, "exited with code 5; the other 2 ranks were stopped"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			aborts := make(chan Abort, 1)
			cfg, conns := owners(t, 3)
			cfg.Aborts = aborts
			j := started(t, &cfg, 3)
			for _, conn := range conns {
				hear(t, conn)
			}
			aborts <- tc.abort
			_, _ = io.WriteString(conns[1], tc.answer) // unless the abort has ended the rank already
			r := j.wait()
			if got := strings.Join(r.Messages(), "\n"); r.ExitStatus() != tc.status || !strings.HasPrefix(got, "rank 1 (") || !strings.HasSuffix(got, tc.message) {
				t.Errorf("exit status %d, %s; want %d, %s", r.ExitStatus(), got, tc.status, tc.message)
			}
		})
	}
}

// The rank that failed first determines the exit status, not a rank that aborts because of it.
func TestAbortAfterFailure(t *testing.T) {
	aborts := make(chan Abort)
	cfg, conns := owners(t, 2)
	cfg.Aborts = aborts
	cfg.Apps[0].Env, cfg.Grace = append(cfg.Apps[0].Env, "OWN=deaf"), proctest.Timeout
	j := started(t, &cfg, 2)
	hear(t, conns[0])
	hear(t, conns[1])
	tell(t, conns[0], "4")
	hear(t, conns[1]) // the rank reports SIGTERM
	aborts <- Abort{Rank: 1, Code: 7}
	tell(t, conns[1], "7")
	r := j.wait()
	if got := strings.Join(r.Messages(), "\n"); r.ExitStatus() != 4 || !strings.HasSuffix(got, "exited with code 4; the other rank was stopped") {
		t.Errorf("exit status %d, %s", r.ExitStatus(), got)
	}
}

// Two ranks abort together. The end of the job that the abort of rank 1 orders comes before the
// abort of rank 0, whose exit the supervisor has seen first.
func TestLateAbortExplainsFirstFailure(t *testing.T) {
	for first, want := range map[int]string{0: "late", 1: "early", -1: "early"} {
		f := &frontEnd{report: &Report{Ranks: make([]Result, 3), First: first}, ending: true}
		f.aborts = []Abort{{Rank: 1, Code: 7, Reason: "early"}}
		f.abort(Abort{Rank: 0, Code: 7, Reason: "late"})
		f.recordAbort()
		if a := f.report.Abort; a == nil || a.Reason != want {
			t.Errorf("first failure %d: abort %+v, want the %s one", first, a, want)
		}
	}
	f := &frontEnd{report: &Report{Ranks: make([]Result, 3), First: 2}, ending: true}
	f.abort(Abort{Rank: 0, Code: 7})
	if f.recordAbort(); f.report.Abort != nil {
		t.Errorf("an effect of the end counts as its cause: %+v", f.report.Abort)
	}
}

// If Config.CheckExit rejects an exit with 0, the other ranks are stopped.
func TestCheckExitRejectsExit(t *testing.T) {
	var checked []int
	cfg, conns := owners(t, 2)
	cfg.CheckExit = func(rank int) error {
		checked = append(checked, rank)
		return errors.New("it has left its work undone")
	}
	j := started(t, &cfg, 2)
	hear(t, conns[0])
	hear(t, conns[1])
	tell(t, conns[0], "-")
	tell(t, conns[1], "0")
	r := j.wait()
	const want = ") exited with code 0, but failed (status 1): it has left its work undone; the other rank was stopped"
	if got := strings.Join(r.Messages(), "\n"); r.ExitStatus() != 1 || !strings.HasPrefix(got, "rank 1 (") || !strings.HasSuffix(got, want) {
		t.Errorf("exit status %d, %s", r.ExitStatus(), got)
	}
	if len(checked) != 1 || checked[0] != 1 {
		t.Errorf("checked: %v", checked)
	}
}
