package pmi

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/softnd/softnd/internal/meet/unixsock"
	"github.com/softnd/softnd/internal/testkit/proctest"
)

// heard collects a server's notices.
type heard struct {
	mu      sync.Mutex
	aborts  []string
	refused []string
}

func (h *heard) notices() Notices {
	return Notices{
		Abort: func(rank, code int, reason string) {
			h.mu.Lock()
			defer h.mu.Unlock()
			h.aborts = append(h.aborts, fmt.Sprintf("%d: %d %s", rank, code, reason))
		},
		Refused: func(rank int, what string) {
			h.mu.Lock()
			defer h.mu.Unlock()
			h.refused = append(h.refused, fmt.Sprintf("%d: %s", rank, what))
		},
	}
}

func (h *heard) text() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return strings.Join(append(h.aborts, h.refused...), "\n")
}

// ends are a job's server and the ranks' ends of its sockets.
func ends(t testing.TB, size int, h *heard) (*Server, []*unixsock.Conn) {
	t.Helper()
	s := NewServer(size, "kvs", h.notices())
	ranks := make([]*unixsock.Conn, size)
	for rank := range ranks {
		var ours *unixsock.Conn
		ours, ranks[rank] = pair(t)
		s.Serve(rank, ours)
		t.Cleanup(func() {
			ranks[rank].Close()
			s.Ended(rank)
		})
	}
	return s, ranks
}

func pair(t testing.TB) (a, b *unixsock.Conn) {
	t.Helper()
	a, file, err := unixsock.Pair(unix.SOCK_STREAM)
	if err != nil {
		t.Fatal(err)
	}
	own, err := unix.FcntlInt(file.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	file.Close()
	if err != nil {
		t.Fatal(err)
	}
	if b, err = unixsock.Adopt(own); err != nil {
		t.Fatal(err)
	}
	deadline := time.Now().Add(proctest.Timeout)
	a.SetDeadline(deadline)
	b.SetDeadline(deadline)
	return a, b
}

// say sends lines and returns as many answers.
func say(t testing.TB, conn *unixsock.Conn, lines ...string) []string {
	t.Helper()
	r := bufio.NewReader(conn)
	var answers []string
	for _, line := range lines {
		if _, err := io.WriteString(conn, line+"\n"); err != nil {
			t.Fatal(err)
		}
		answer, err := r.ReadString('\n')
		if err != nil {
			t.Fatalf("after %q: %v", line, err)
		}
		answers = append(answers, strings.TrimSuffix(answer, "\n"))
	}
	return answers
}

const hello = "cmd=init pmi_version=1 pmi_subversion=1"

func TestAnswers(t *testing.T) {
	var h heard
	_, ranks := ends(t, 1, &h)
	for _, tc := range []struct{ ask, want string }{
		{"cmd=get_maxes", "cmd=error rc=-1 msg=the_command_comes_before_init_or_after_finalize"},
		{"cmd=init pmi_version=2 pmi_subversion=0", "cmd=response_to_init rc=-1 msg=this_launcher_speaks_version_1 pmi_version=1 pmi_subversion=1"},
		{hello, "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0"},
		{hello, "cmd=response_to_init rc=-1 msg=init_was_said_before"},
		{"cmd=get_maxes", "cmd=maxes rc=0 kvsname_max=256 keylen_max=64 vallen_max=960"},
		{"cmd=get_appnum", "cmd=appnum rc=0 appnum=0"},
		{"cmd=get_universe_size", "cmd=universe_size rc=0 size=1"},
		{"cmd=get_my_kvsname", "cmd=my_kvsname rc=0 kvsname=kvs"},
		{"cmd=get kvsname=kvs key=PMI_process_mapping", "cmd=get_result rc=0 value=(vector,(0,1,1))"},
		{"cmd=put kvsname=kvs key=a value=b=c", "cmd=put_result rc=0"},
		{"cmd=put kvsname=kvs key=a value=d", "cmd=put_result rc=-1 msg=key_a_has_a_value_already"},
		{"cmd=put kvsname=kvs key=empty value=", "cmd=put_result rc=0"},
		{"cmd=put kvsname=other key=a value=b", `cmd=put_result rc=-1 msg=there_is_no_store_"other"`},
		{"cmd=put kvsname=kvs key=" + strings.Repeat("k", 65) + " value=", "cmd=put_result rc=-1 msg=a_key_has_1_to_64_printable_characters"},
		{"cmd=put kvsname=kvs key=k value=" + strings.Repeat("v", 961), "cmd=put_result rc=-1 msg=a_value_has_at_most_960_printable_characters"},
		{"cmd=get kvsname=kvs key=a", "cmd=get_result rc=0 value=b=c"},
		{"cmd=get kvsname=kvs key=empty", "cmd=get_result rc=0 value="},
		{"cmd=get kvsname=kvs key=none", `cmd=get_result rc=-1 msg=key_"none"_has_no_value`},
		{"cmd=getbyidx kvsname=kvs idx=1", "cmd=getbyidx_results rc=0 nextidx=2 key=a val=b=c"},
		{"cmd=getbyidx kvsname=kvs idx=3", "cmd=getbyidx_results rc=-2 reason=no_more_keyvals"},
		{"cmd=getbyidx kvsname=kvs idx=-1", "cmd=getbyidx_results rc=-2 reason=no_more_keyvals"},
		{"cmd=getbyidx kvsname=kvs idx=x", "cmd=getbyidx_results rc=-1 msg=idx_is_no_number"},
		{"cmd=create_kvs", "cmd=newkvs rc=0 kvsname=kvs-1"},
		{"cmd=put kvsname=kvs-1 key=a value=1", "cmd=put_result rc=0"},
		{"cmd=destroy_kvs kvsname=kvs", `cmd=kvs_destroyed rc=-1 msg=there_is_no_store_"kvs"_that_could_go`},
		{"cmd=destroy_kvs kvsname=kvs-1", "cmd=kvs_destroyed rc=0"},
		{"cmd=get kvsname=kvs-1 key=a", `cmd=get_result rc=-1 msg=there_is_no_store_"kvs-1"`},
		{"mcmd=spawn\nnprocs=1\nexecname=true\nendcmd", "cmd=spawn_result rc=-1 msg=this_launcher_starts_no_more_processes_in_a_job"},
		{"cmd=publish_name service=a port=b", "cmd=publish_result rc=-1 msg=this_launcher_keeps_no_names info=fail"},
		{"cmd=lookup_name service=a", "cmd=lookup_result rc=-1 msg=this_launcher_keeps_no_names info=fail"},
		{"cmd=unpublish_name service=a", "cmd=unpublish_result rc=-1 msg=this_launcher_keeps_no_names info=fail"},
		{"cmd=bogus", "cmd=error rc=-1 msg=this_launcher_does_not_know_the_command"},
		{"cmd=barrier_in", "cmd=barrier_out rc=0"},
		{"cmd=finalize", "cmd=finalize_ack rc=0"},
		{"cmd=get_appnum", "cmd=error rc=-1 msg=the_command_comes_before_init_or_after_finalize"},
	} {
		if got := say(t, ranks[0], tc.ask)[0]; got != tc.want {
			t.Errorf("%.60s: %s, want %s", tc.ask, got, tc.want)
		}
	}
	for _, want := range []string{"mcmd=spawn", "publish_name", "lookup_name", `"bogus"`} {
		if !strings.Contains(h.text(), want) {
			t.Errorf("no notice of %s in %s", want, h.text())
		}
	}
}

func TestBarrierWaitsForAll(t *testing.T) {
	var h heard
	_, ranks := ends(t, 3, &h)
	for round := range 3 {
		for rank, conn := range ranks {
			if round == 0 {
				say(t, conn, hello)
			}
			if _, err := io.WriteString(conn, "cmd=barrier_in\n"); err != nil {
				t.Fatal(err)
			}
			if rank < 2 {
				// An answer to the next request shows that the barrier has given none.
				if got := say(t, conn, "cmd=get_appnum")[0]; got != "cmd=appnum rc=0 appnum=0" {
					t.Fatalf("round %d, rank %d in the barrier: %s", round, rank, got)
				}
			}
		}
		for rank, conn := range ranks {
			if got, err := bufio.NewReader(conn).ReadString('\n'); got != "cmd=barrier_out rc=0\n" {
				t.Fatalf("round %d, rank %d: %q, %v", round, rank, got, err)
			}
		}
	}
}

// A barrier fails at the ranks that wait for a rank that has ended, and the job ends.
func TestBarrierDoesNotWaitForTheDead(t *testing.T) {
	for _, tc := range []struct {
		name, last string
		before     bool // the rank ends before the other waits
	}{
		{"killed", "", false}, {"killed before", "", true}, {"finalized", "cmd=finalize", false}, {"finalized before", "cmd=finalize", true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var h heard
			s, ranks := ends(t, 2, &h)
			say(t, ranks[0], hello)
			say(t, ranks[1], hello)
			leave := func() {
				if tc.last != "" {
					say(t, ranks[1], tc.last)
				}
				ranks[1].Close()
				s.Ended(1)
			}
			if tc.before {
				leave()
			}
			if _, err := io.WriteString(ranks[0], "cmd=barrier_in\n"); err != nil {
				t.Fatal(err)
			}
			if !tc.before {
				leave()
			}
			if got, err := bufio.NewReader(ranks[0]).ReadString('\n'); got != "cmd=barrier_out rc=-1 msg=rank_1_has_gone\n" {
				t.Fatalf("%q, %v", got, err)
			}
			if got := h.text(); got != "0: 1 waits in a PMI barrier for rank 1, which has exited or finalized PMI" {
				t.Errorf("notices: %s", got)
			}
		})
	}
}

// The notice names the rank that is missing, not one that waits, and a rank that has gone
// while it waited aborts nothing.
func TestBarrierNamesTheMissingRank(t *testing.T) {
	var h heard
	s, ranks := ends(t, 4, &h)
	for rank, conn := range ranks {
		say(t, conn, hello)
		if rank == 3 {
			continue
		}
		if _, err := io.WriteString(conn, "cmd=barrier_in\n"); err != nil {
			t.Fatal(err)
		}
		if got := say(t, conn, "cmd=get_appnum")[0]; got != "cmd=appnum rc=0 appnum=0" { // the server has read the line before it
			t.Fatal(got)
		}
	}
	for _, gone := range []int{0, 3} {
		ranks[gone].Close()
		s.Ended(gone)
	}
	for _, conn := range ranks[1:3] {
		if got, err := bufio.NewReader(conn).ReadString('\n'); got != "cmd=barrier_out rc=-1 msg=rank_3_has_gone\n" {
			t.Errorf("%q, %v", got, err)
		}
	}
	const reason = "waits in a PMI barrier for rank 3, which has exited or finalized PMI"
	if got, want := h.text(), "1: 1 "+reason+"\n2: 1 "+reason; got != want {
		t.Errorf("notices:\n%s\nwant\n%s", got, want)
	}
}

// A rank's process may have ended by the time that its socket comes, and may have spoken
// before.
func TestServeWhoHasGone(t *testing.T) {
	for _, tc := range []struct {
		name, last string
		before     bool // the rank is served before the other waits
		want       string
	}{
		{"silent", "", false, ""},
		{"silent before", "", true, ""},
		{"unfinalized", hello + "\n", false, "exited without PMI finalize"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var h heard
			s := NewServer(2, "kvs", h.notices())
			ours, waits := pair(t)
			defer waits.Close()
			s.Serve(0, ours)
			ours, gone := pair(t)
			if _, err := io.WriteString(gone, tc.last); err != nil {
				t.Fatal(err)
			}
			gone.Close()
			say(t, waits, hello)
			if tc.before {
				s.Serve(1, ours)
			}
			if _, err := io.WriteString(waits, "cmd=barrier_in\n"); err != nil {
				t.Fatal(err)
			}
			if !tc.before {
				proctest.Eventually(t, "one rank waits", s.hasOneWaiting)
				s.Serve(1, ours)
			}
			if got, err := bufio.NewReader(waits).ReadString('\n'); got != "cmd=barrier_out rc=-1 msg=rank_1_has_gone\n" {
				t.Fatalf("%q, %v", got, err)
			}
			if got := h.text(); got != "0: 1 waits in a PMI barrier for rank 1, which has exited or finalized PMI" {
				t.Errorf("notices: %s", got)
			}
			if err := s.Ended(1); (tc.want == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%v, want %q", err, tc.want)
			}
		})
	}
}

func (s *Server) hasOneWaiting() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.waiting == 1
}

func TestEndedReportsWrongEnd(t *testing.T) {
	for _, tc := range []struct {
		name, last, want string
	}{
		{"silent", "", ""},
		{"good", hello + "\ncmd=finalize\n", ""},
		{"unfinalized", hello + "\n", "exited without PMI finalize"},
		{"aborted", hello + "\ncmd=abort exitcode=7\n", ""},
		{"half a line", hello + "\ncmd=finalize\ncmd=ge", "unexpected EOF"},
		{"no command", "hello\n", "want name=value pairs"},
		{"too long", "cmd=" + strings.Repeat("x", maxLine) + "\n", "line is too long"},
		{"endless spawn", hello + "\nmcmd=spawn\n" + strings.Repeat("x\n", maxSpawn+1), "more than 4096 lines"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var h heard
			s, ranks := ends(t, 1, &h)
			if _, err := io.WriteString(ranks[0], tc.last); err != nil && !errors.Is(err, unix.EPIPE) {
				t.Fatal(err)
			}
			// The rank's end stays open: a child of the rank may hold it.
			err := s.Ended(0)
			if (tc.want == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%v, want %q", err, tc.want)
			}
			if aborted := h.text() == "0: 7 "; aborted != (tc.name == "aborted") {
				t.Errorf("notices: %q", h.text())
			}
		})
	}
}

// Two clients and the server of this package understand each other.
func TestClient(t *testing.T) {
	var h heard
	_, ranks := ends(t, 2, &h)
	ctx := proctest.Context(t)
	var all sync.WaitGroup
	for rank, conn := range ranks {
		all.Go(func() {
			c := &Client{Rank: rank, Size: 2, conn: conn, lines: bufio.NewReader(conn)}
			other := fmt.Sprintf("key-%d", 1-rank)
			err := errors.Join(c.begin(ctx), c.Put(ctx, fmt.Sprintf("key-%d", rank), fmt.Sprint("of ", rank)[:2]), c.Barrier(ctx))
			value, getErr := c.Get(ctx, other)
			if err = errors.Join(err, getErr, c.Finalize(ctx)); err != nil || value != "of" || c.JobName() != "kvs" {
				t.Errorf("rank %d: %q, %q, %v", rank, value, c.JobName(), err)
			}
		})
	}
	all.Wait()
}

// Another process aborts the job over a duplicate of the connection.
func TestAbortOverDuplicate(t *testing.T) {
	mine, theirs := pair(t)
	c := &Client{conn: mine}
	d, err := c.Dup()
	if err != nil {
		t.Fatal(err)
	}
	c.HangUp()
	if err := errors.Join(Abort(d, 3), d.Close()); err != nil {
		t.Error(err)
	}
	if text, err := io.ReadAll(theirs); err != nil || string(text) != "cmd=abort exitcode=3\n" {
		t.Errorf("%q, %v", text, err)
	}
}

// Another process tells the launcher over a duplicate that a rank, which has closed its connection, ends well.
func TestFinalizeOverDuplicate(t *testing.T) {
	var h heard
	_, ranks := ends(t, 1, &h)
	say(t, ranks[0], hello)
	c := &Client{conn: ranks[0]}
	d, err := c.Dup()
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if err := errors.Join(c.HangUp(), Finalize(d)); err != nil {
		t.Error(err)
	}
	if err := Finalize(d); err == nil || !strings.Contains(err.Error(), "want finalize_ack") {
		t.Errorf("the second time: %v", err)
	}
}

// A client gets errors from a launcher that has gone, refuses, or talks nonsense, and
// does not wait longer than it may.
func TestClientErrors(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for _, tc := range []struct {
		ctx          context.Context
		answer, want string
	}{
		{t.Context(), "", "pmi: get: the launcher closed the connection"},
		{t.Context(), "cmd=get_result rc=-1 msg=no\n", "pmi: get: refused by the launcher: rc=-1 no"},
		{t.Context(), "cmd=put_result rc=0\n", `pmi: get: unexpected answer "cmd=put_result rc=0": want get_result`},
		{t.Context(), "gibberish\n", "pmi: get: malformed answer \"gibberish\""},
		{t.Context(), "cmd=get_result rc=0\n", "pmi: get k: the launcher's answer has no value"},
		{ctx, "cmd=get_result rc=0 value=x\n", "context canceled"},
	} {
		launcher, conn := pair(t)
		if _, err := io.WriteString(launcher, tc.answer); err != nil {
			t.Fatal(err)
		}
		launcher.CloseWrite()
		c := &Client{conn: conn, lines: bufio.NewReader(conn), name: "kvs"}
		if _, err := c.Get(tc.ctx, "k"); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%q: %v, want %q", tc.answer, err, tc.want)
		}
		launcher.Close()
		conn.Close()
	}
}

// FuzzServer plays a rank that says anything. The other rank is served all the same.
func FuzzServer(f *testing.F) {
	f.Add([]byte(hello + "\ncmd=put kvsname=kvs key=a value=b\ncmd=barrier_in\ncmd=finalize\n"))
	f.Add([]byte("cmd=init pmi_version=1\nmcmd=spawn\nendcmd\ncmd=getbyidx kvsname=kvs idx=0\ncmd=abort exitcode=x\n"))
	f.Add([]byte(hello + "\ncmd=create_kvs\ncmd=destroy_kvs kvsname=kvs-1\n=\n"))
	f.Fuzz(func(t *testing.T, said []byte) {
		var h heard
		s, ranks := ends(t, 2, &h)
		go io.Copy(io.Discard, ranks[1]) // another test covers answers that are not read
		if _, err := ranks[1].Write(said); err != nil && !errors.Is(err, unix.EPIPE) && !errors.Is(err, unix.ECONNRESET) {
			t.Fatal(err)
		}
		_ = s.Ended(1)
		got := say(t, ranks[0], hello, "cmd=get kvsname=kvs key=PMI_process_mapping")
		if got[1] != "cmd=get_result rc=0 value=(vector,(0,1,2))" {
			t.Fatalf("the other rank hears %q", got)
		}
	})
}

// FuzzParse checks that each line that can be parsed can be formatted again.
func FuzzParse(f *testing.F) {
	f.Add("cmd=put kvsname=a key=b value=c=d")
	f.Add("mcmd=spawn")
	f.Fuzz(func(t *testing.T, line string) {
		m, err := parse(line)
		if err != nil || strings.HasPrefix(m.command, "mcmd=") {
			return
		}
		var pairs []string
		for name, value := range m.values {
			pairs = append(pairs, name, value)
		}
		again, err := parse(strings.TrimSuffix(format(m.command, pairs...), "\n"))
		if err != nil || again.command != m.command || len(again.values) != len(m.values) {
			t.Fatalf("%q: %v, %v", line, again, err)
		}
	})
}

// A rank that reads none of its answers holds up only itself.
func TestDeafClient(t *testing.T) {
	var h heard
	s, ranks := ends(t, 2, &h)
	flood := strings.Repeat("cmd=get_maxes\n", 100)
	for rest := flood; ; {
		ranks[1].SetWriteDeadline(time.Now().Add(100 * time.Millisecond))
		n, err := io.WriteString(ranks[1], rest)
		if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatal(err)
		}
		if n == 0 {
			break // both directions are full
		}
		if rest = rest[n:]; rest == "" {
			rest = flood
		}
	}
	if got := say(t, ranks[0], hello)[0]; !strings.Contains(got, "rc=0") {
		t.Errorf("the other rank hears %s", got)
	}
	_ = s.Ended(1)
}
