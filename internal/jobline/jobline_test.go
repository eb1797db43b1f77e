package jobline

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/softnd/softnd/internal/build"
	"github.com/softnd/softnd/internal/unixsock"
)

// watchdog ends what has hung. No test depends on how long anything takes.
const watchdog = 60 * time.Second

// strangerVariable makes the test binary a stranger: it dials the address in it.
const strangerVariable = "JOBLINE_TEST_ADDRESS"

func TestMain(m *testing.M) {
	if s := os.Getenv(strangerVariable); s != "" {
		if err := playStranger(s); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// playStranger tells what it hears as an honest client, and as one that does not look
// whom it talks to.
func playStranger(address string) error {
	a, err := Parse(address)
	if err != nil {
		return err
	}
	_, _, err = Dial(context.Background(), a, 0, true)
	fmt.Println("honest:", err)
	c, err := unixsock.Dial(a.socket())
	if err != nil {
		return err
	}
	err = send(c, record{Kind: hello, Version: version, Secret: a.secret, File: true})
	b, oob := make([]byte, maxRecord), make([]byte, 100)
	n, oobn, _, readErr := c.Receive(b, oob)
	fmt.Printf("rude: %v, %v, %s, %d\n", err, readErr, b[:n], oobn)
	return nil
}

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
	s, err := Listen(3, file, identity, aborts.abort)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func dial(t *testing.T, s *Server, rank int, wantFile bool) (*Line, *os.File) {
	t.Helper()
	a, err := Parse(s.Address().String()) // by way of the environment
	if err != nil || a != s.Address() {
		t.Fatalf("%v, %v, want %v", a, err, s.Address())
	}
	ctx, cancel := context.WithTimeout(t.Context(), watchdog)
	defer cancel()
	l, file, err := Dial(ctx, a, rank, wantFile)
	if err != nil {
		t.Fatal(err)
	}
	return l, file
}

func TestLine(t *testing.T) {
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
		t.Error("a file that nobody asked for")
	}
	if err := left.Leave(); err != nil {
		t.Error(err)
	}
	if err := aborted.Abort(7, strings.Repeat("<", 600)); err != nil {
		t.Error(err)
	}
	if want := "1 7 " + strings.Repeat("<", maxReason); !slices.Equal(aborts.all(), []string{want}) { // Abort returns when it is heard
		t.Errorf("aborts: %q", aborts.all())
	}
	silent.HangUp()
	if got := s.Close(); !slices.Equal(got, []int{2}) {
		t.Errorf("silent: %v, want rank 2", got)
	}
	if _, _, err := Dial(t.Context(), s.Address(), 0, false); err == nil || !strings.Contains(err.Error(), "call the launcher (is it in another network namespace, or gone?)") {
		t.Errorf("after the end: %v", err)
	}
	if err := aborted.Leave(); err != nil {
		t.Errorf("leave when the launcher has gone: %v", err)
	}
}

// What was said before Close is heard, although the socket is held open by others.
func TestCloseHearsLastWords(t *testing.T) {
	var aborts heard
	s := serve(t, &aborts)
	lines := make([]*Line, 3)
	for rank := range lines {
		lines[rank], _ = dial(t, s, rank, false)
	}
	if err := send(lines[0].conn, record{Kind: leave}); err != nil {
		t.Fatal(err)
	}
	if err := send(lines[1].conn, record{Kind: abort, Code: 3}); err != nil {
		t.Fatal(err)
	}
	if got := s.Close(); !slices.Equal(got, []int{2}) || len(aborts.all()) != 1 {
		t.Errorf("silent: %v, aborts: %q", got, aborts.all())
	}
	for _, l := range lines {
		l.HangUp()
	}
}

func TestRefusals(t *testing.T) {
	var aborts heard
	s := serve(t, &aborts)
	defer s.Close()
	good := record{Kind: hello, Version: version, Secret: s.address.secret, Rank: 1, File: true}
	change := func(f func(r *record)) string {
		r := good
		f(&r)
		b, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	for _, tc := range []struct{ name, said, want string }{
		{"secret", change(func(r *record) { r.Secret = strings.Repeat("0", 32) }), "the secret is not this job's"},
		{"no secret", change(func(r *record) { r.Secret = "" }), "the secret is not this job's"},
		{"version", change(func(r *record) { r.Version, r.Build = 2, "v7.8.9" }),
			"the launcher contains softnd " + build.Name() + ", this program softnd v7.8.9: they speak versions 1 and 2 of the job line"},
		{"rank", change(func(r *record) { r.Rank = 3 }), "rank 3 of a job of 3"},
		{"negative rank", change(func(r *record) { r.Rank = -1 }), "rank -1 of a job of 3"},
		{"kind", change(func(r *record) { r.Kind = leave }), "they speak versions 1 and 1"},
		{"garbage", "garbage", ""},
		{"too long", `{"kind":"` + strings.Repeat("x", maxRecord) + `"}`, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, file := exchange(t, s, []byte(tc.said))
			if file || tc.want != "" && (got.Kind != refusal || !strings.Contains(got.Text, tc.want)) || tc.want == "" && got.Kind != "" {
				t.Errorf("%+v, with a file: %t", got, file)
			}
		})
	}
}

// exchange says something to the server and returns its answer, if it has one.
func exchange(t testing.TB, s *Server, said []byte) (answer record, file bool) {
	t.Helper()
	c, err := unixsock.Dial(s.address.socket())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(watchdog))
	if _, err := c.Write(said); err != nil {
		t.Fatal(err)
	}
	_ = c.CloseWrite()
	b, oob := make([]byte, maxRecord), make([]byte, 100)
	n, oobn, _, _ := c.Receive(b, oob)
	if f := passed(oob[:oobn]); f != nil {
		f.Close()
		file = true
	}
	if n > 0 {
		if answer, err = parse(b[:n]); err != nil {
			t.Errorf("the server says %q: %v", b[:n], err)
		}
	}
	return answer, file
}

// A process of another user gets nothing, whatever it knows.
func TestOtherUser(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can start a process of another user")
	}
	var aborts heard
	s := serve(t, &aborts)
	defer s.Close()
	exe, err := os.Open("/proc/self/exe") // its name may be in a directory that others cannot enter
	if err != nil {
		t.Fatal(err)
	}
	defer exe.Close()
	cmd := exec.CommandContext(t.Context(), "/proc/self/fd/3")
	cmd.ExtraFiles = []*os.File{exe}
	cmd.Env = append(os.Environ(), strangerVariable+"="+s.Address().String())
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "honest: call the launcher: it runs as user 0, this process as user 65534\n") ||
		!strings.Contains(string(out), `"the job belongs to user 0, this process runs as user 65534"}, 0`) {
		t.Errorf("%v: %s", err, out)
	}
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

// FuzzServer: whatever a process of the same user says without the secret, it gets no file, and
// ranks are served all the same.
func FuzzServer(f *testing.F) {
	f.Add([]byte(`{"kind":"hello","version":1,"rank":1,"file":true,"secret":""}`))
	f.Add([]byte(`{"kind":"abort","code":1}`))
	f.Add([]byte("{"))
	var aborts heard
	s := serve(f, &aborts)
	f.Fuzz(func(t *testing.T, said []byte) {
		if len(said) > 100_000 { // more than a socket takes at a time
			t.Skip("too long for one record")
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
