package controlchannel

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/softnd/softnd/internal/goruntime"
	"github.com/softnd/softnd/internal/meet/unixsock"
	"github.com/softnd/softnd/internal/testkit/proctest"
)

func TestMain(m *testing.M) {
	proctest.Main()
	os.Exit(m.Run())
}

// roleStranger dials the address in its argument.
var roleStranger = proctest.Role("stranger", runStranger)

// runStranger prints the answers to an honest client, and to one that does not check the
// server's user.
func runStranger(self *proctest.Self) error {
	a, err := Parse(self.Args[0])
	if err != nil {
		return err
	}
	_, _, err = Dial(context.Background(), a, 0, Wanted{File: true, Journal: true})
	fmt.Println("honest:", err)
	c, err := unixsock.Dial(a.socket())
	if err != nil {
		return err
	}
	err = send(c, message{Kind: hello, Version: version, Secret: a.secret, File: true})
	b, oob := make([]byte, maxMessage), make([]byte, 100)
	n, oobn, _, readErr := c.Receive(b, oob)
	fmt.Printf("rude: %v, %v, %s, %d\n", err, readErr, b[:n], oobn)
	return nil
}

// roleMute makes more connections than the server serves at a time, and says nothing.
var roleMute = proctest.Role("mute", func(self *proctest.Self) error {
	a, err := Parse(self.Args[0])
	if err != nil {
		return err
	}
	var conns []*unixsock.Conn
	for len(conns) < 2*maxUnauthenticated {
		c, err := unixsock.Dial(a.socket())
		if err != nil { // the queue of the listener is full
			time.Sleep(time.Millisecond)
			continue
		}
		conns = append(conns, c)
	}
	self.Say("silent")
	<-self.Ctx.Done()
	return conns[0].Close()
})

var identity = [2]uint64{0x0123456789abcdef, 7}

// heard collects aborts.
type heard struct {
	mu   sync.Mutex
	list []string
}

func (h *heard) abort(rank, code int, reason string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.list = append(h.list, fmt.Sprintf("%d %d %s", rank, code, reason))
}

func (h *heard) all() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.list)
}

// serve makes a server of three ranks that hands out a file with the word "arena".
func serve(t testing.TB, aborts *heard) *Server {
	t.Helper()
	fd, err := unix.MemfdCreate("job", unix.MFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	file := os.NewFile(uintptr(fd), "job")
	t.Cleanup(func() { file.Close() })
	if _, err := file.WriteString("arena"); err != nil {
		t.Fatal(err)
	}
	s, err := Listen(3, file, nil, identity, aborts.abort)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func dial(t *testing.T, s *Server, rank int, wantFile bool) (*Channel, *os.File) {
	t.Helper()
	a, err := Parse(s.Address().String()) // by way of the environment
	if err != nil || a != s.Address() {
		t.Fatalf("%v, %v, want %v", a, err, s.Address())
	}
	ctx := proctest.Context(t)
	l, files, err := Dial(ctx, a, rank, Wanted{File: wantFile})
	if err != nil {
		t.Fatal(err)
	}
	return l, files.File
}

func TestChannel(t *testing.T) {
	var aborts heard
	s := serve(t, &aborts)
	left, file := dial(t, s, 0, true)
	defer file.Close()
	b := make([]byte, 10)
	if n, err := file.ReadAt(b, 0); string(b[:n]) != "arena" || err != io.EOF {
		t.Errorf("the file holds %q, %v", b[:n], err)
	}
	aborted, none := dial(t, s, 1, false)
	silent, _ := dial(t, s, 2, false)
	if none != nil {
		t.Error("Dial returned a file that was not requested")
	}
	refused, _ := dial(t, s, 0, false) // the rank tried to join again
	refused.Close()
	if err := left.Leave(); err != nil {
		t.Error(err)
	}
	if err := aborted.Abort(7, strings.Repeat("<", 600)); err != nil {
		t.Error(err)
	}
	if want := "1 7 " + strings.Repeat("<", maxReason); !slices.Equal(aborts.all(), []string{want}) { // Abort returns when it is received
		t.Errorf("aborts: %q", aborts.all())
	}
	silent.Close()
	if got := s.Close(); !slices.Equal(got, []int{2}) {
		t.Errorf("silent: %v, want rank 2", got)
	}
	if _, _, err := Dial(t.Context(), s.Address(), 0, Wanted{}); err == nil || !strings.Contains(err.Error(), "check that it runs, and in the same network namespace") {
		t.Errorf("after the end: %v", err)
	}
	if err := aborted.Leave(); err != nil {
		t.Errorf("Leave after the server is closed: %v", err)
	}
}

// A rank gets the files that it requests, as far as the launcher has them.
func TestJournal(t *testing.T) {
	temporary := func(text string) *os.File {
		f, err := os.Create(filepath.Join(t.TempDir(), text))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { f.Close() })
		if _, err := f.WriteString(text); err != nil {
			t.Fatal(err)
		}
		return f
	}
	file, journal := temporary("arena"), temporary("journal")
	for _, served := range []*os.File{nil, journal} {
		s, err := Listen(1, file, served, identity, func(int, int, string) {})
		if err != nil {
			t.Fatal(err)
		}
		for _, wanted := range []Wanted{{}, {File: true}, {Journal: true}, {File: true, Journal: true}} {
			ch, files, err := Dial(proctest.Context(t), s.Address(), 0, wanted)
			if err != nil {
				t.Fatal(err)
			}
			for _, got := range []struct {
				file   *os.File
				wanted bool
				text   string
			}{{files.File, wanted.File, "arena"}, {files.Journal, wanted.Journal && served != nil, "journal"}} {
				if (got.file != nil) != got.wanted {
					t.Errorf("%+v of %v: got %+v", wanted, served, files)
					continue
				}
				b := make([]byte, 10)
				if got.file != nil {
					if n, _ := got.file.ReadAt(b, 0); string(b[:n]) != got.text {
						t.Errorf("%+v: %q instead of the %s", wanted, b[:n], got.text)
					}
				}
			}
			files.File.Close() // one that is nil stays so
			files.Journal.Close()
			ch.Close()
		}
		s.Close()
	}
}

// Close handles messages that were sent before, although other processes hold the socket open.
func TestCloseReadsPendingMessages(t *testing.T) {
	var aborts heard
	s := serve(t, &aborts)
	lines := make([]*Channel, 3)
	for rank := range lines {
		lines[rank], _ = dial(t, s, rank, false)
	}
	if err := send(lines[0].conn, message{Kind: leave}); err != nil {
		t.Fatal(err)
	}
	if err := send(lines[1].conn, message{Kind: abort, Code: 3}); err != nil {
		t.Fatal(err)
	}
	if got := s.Close(); !slices.Equal(got, []int{2}) || len(aborts.all()) != 1 {
		t.Errorf("silent: %v, aborts: %q", got, aborts.all())
	}
	for _, l := range lines {
		l.Close()
	}
}

func TestServerRefusesHello(t *testing.T) {
	var aborts heard
	s := serve(t, &aborts)
	defer s.Close()
	good := message{Kind: hello, Version: version, Secret: s.address.secret, Rank: 1, File: true}
	change := func(f func(m *message)) string {
		r := good
		f(&r)
		b, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	for _, tc := range []struct{ name, said, want string }{
		{"secret", change(func(m *message) { m.Secret = strings.Repeat("0", 32) }), "wrong secret: the address is that of another job"},
		{"no secret", change(func(m *message) { m.Secret = "" }), "wrong secret: the address is that of another job"},
		{"version", change(func(m *message) { m.Version, m.Build = 2, "v7.8.9" }),
			"the launcher contains softnd " + goruntime.BuildName() + ", this program contains softnd v7.8.9: arena of another version (control channel versions 1 and 2 differ): build all programs with one release of softnd"},
		{"rank", change(func(m *message) { m.Rank = 3 }), "rank 3 does not exist: want 0 to 2"},
		{"negative rank", change(func(m *message) { m.Rank = -1 }), "rank -1 does not exist: want 0 to 2"},
		{"kind", change(func(m *message) { m.Kind = leave }), "control channel versions 1 and 1 differ"},
		{"garbage", "garbage", ""},
		{"too long", `{"kind":"` + strings.Repeat("x", maxMessage) + `"}`, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, file := exchange(t, s, []byte(tc.said))
			if file || tc.want != "" && (got.Kind != refusal || !strings.Contains(got.Text, tc.want)) || tc.want == "" && got.Kind != "" {
				t.Errorf("%+v, with a file: %t", got, file)
			}
		})
	}
}

// exchange sends a packet to the server and returns its answer, if there is one.
func exchange(t testing.TB, s *Server, said []byte) (answer message, file bool) {
	t.Helper()
	c, err := unixsock.Dial(s.address.socket())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(proctest.Timeout))
	if _, err := c.Write(said); err != nil {
		t.Fatal(err)
	}
	_ = c.CloseWrite()
	b, oob := make([]byte, maxMessage), make([]byte, 100)
	n, oobn, _, _ := c.Receive(b, oob)
	for _, f := range unixsock.PassedFiles(oob[:oobn]) {
		f.Close()
		file = true
	}
	if n > 0 {
		if answer, err = parse(b[:n]); err != nil {
			t.Errorf("the server answers %q: %v", b[:n], err)
		}
	}
	return answer, file
}

// A process of another user gets nothing, although it knows the secret.
func TestOtherUserIsRefused(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can start a process of another user")
	}
	var aborts heard
	s := serve(t, &aborts)
	defer s.Close()
	status, out, errs := proctest.Run(t, asNobody(t, roleStranger, s))
	if status != 0 || !strings.Contains(out, "honest: connect to launcher: it runs as user 0, this process as user 65534: run both as one user\n") ||
		!strings.Contains(out, `"the job belongs to user 0, this process runs as user 65534"}, 0`) {
		t.Errorf("exit status %d: %s%s", status, out, errs)
	}
}

// asNobody returns a command for a process of another user that plays a role.
func asNobody(t *testing.T, role string, s *Server) *exec.Cmd {
	exe, err := os.Open("/proc/self/exe") // its name may be in a directory that others cannot enter
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { exe.Close() })
	cmd := proctest.Command(role, s.Address().String())
	cmd.Path, cmd.ExtraFiles = "/proc/self/fd/3", []*os.File{exe}
	cmd.SysProcAttr.Credential = &syscall.Credential{Uid: 65534, Gid: 65534}
	return cmd
}

// Silent connections of another user do not keep ranks from the launcher.
func TestSilentOtherUser(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can start a process of another user")
	}
	var aborts heard
	s := serve(t, &aborts)
	defer s.Close()
	mute := proctest.Start(t, asNobody(t, roleMute, s))
	mute.Expect("silent")
	l, _ := dial(t, s, 0, false)
	if err := l.Leave(); err != nil {
		t.Fatal(err)
	}
	mute.Kill()
}

func TestParse(t *testing.T) {
	for _, s := range []string{"", "x", "softnd-job-1:2:3", "other:" + strings.Repeat("0", 32) + ":" + strings.Repeat("0", 32),
		"softnd-job-1:" + strings.Repeat("0", 32) + ":" + strings.Repeat("x", 32),
		"softnd-job-" + strings.Repeat("1", 100) + ":" + strings.Repeat("0", 32) + ":" + strings.Repeat("0", 32)} {
		if a, err := Parse(s); err == nil {
			t.Errorf("%q: %v", s, a)
		}
	}
}

// FuzzServer checks that a process without the secret gets no file, and that ranks are still served.
func FuzzServer(f *testing.F) {
	f.Add([]byte(`{"kind":"hello","version":1,"rank":1,"file":true,"secret":""}`))
	f.Add([]byte(`{"kind":"abort","code":1}`))
	f.Add([]byte("{"))
	var aborts heard
	s := serve(f, &aborts)
	f.Fuzz(func(t *testing.T, said []byte) {
		if len(said) > 100_000 { // more than a socket takes at a time
			t.Skip("too long for one packet")
		}
		if answer, file := exchange(t, s, said); file || answer.Kind == welcome || len(aborts.all()) > 0 {
			t.Fatalf("%+v, with a file: %t, aborts %q", answer, file, aborts.all())
		}
		l, _ := dial(t, s, 0, false)
		if err := l.Leave(); err != nil {
			t.Fatal(err)
		}
	})
}
