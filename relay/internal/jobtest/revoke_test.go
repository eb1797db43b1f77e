package jobtest

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/softnd/softnd/internal/testkit/proctest"
)

// revoked checks what rank 0 of revoke has printed, and returns the number of transfers that failed in flight.
func revoked(t *testing.T, out string) (inFlight int) {
	t.Helper()
	line := regexp.MustCompile(`(\d+) failed in flight, \d+ were refused, \d+ cancelled; (\d+) bytes changed after an invalidation completed`).FindStringSubmatch(out)
	if line == nil {
		t.Fatalf("no result of revoke in %q", out)
	}
	if line[2] != "0" {
		t.Errorf("%s bytes changed after an invalidation completed", line[2])
	}
	inFlight, _ = strconv.Atoi(line[1])
	return inFlight
}

// revokeOverHosts runs revoke with one rank at each host, so that all transfers are between hosts.
func (c *cluster) revokeOverHosts(program string, d time.Duration) (inFlight int, enough bool) {
	c.t.Helper()
	all := c.atRoot(1, nil, program, "-seconds", fmt.Sprint(d.Seconds()))
	for _, r := range all {
		r.NoLimit()
	}
	time.Sleep(d) // in addition to the limit of End
	for rank, r := range all {
		switch err := r.End(); {
		case err == nil:
		case strings.Contains(r.Err.String(), "no transfer failed in flight"):
			return 0, false
		default:
			c.t.Errorf("rank %d: %v: %s", rank, err, r.Err)
		}
	}
	c.t.Log(all[0].Out.String())
	return revoked(c.t, all[0].Out.String()), true
}

// Windows are invalidated during transfers from the other host. No byte changes when an invalidation has completed.
// SOFTND_REVOKE=60s sets the duration.
func TestRevokeOverHosts(t *testing.T) {
	c := newCluster(t)
	program := c.build("github.com/softnd/softnd/examples/revoke")
	if text := os.Getenv("SOFTND_REVOKE"); text != "" {
		d, err := time.ParseDuration(text)
		if err != nil {
			t.Fatal(err)
		}
		n, _ := c.revokeOverHosts(program, d)
		if want := int(100 * d / time.Minute); n <= want {
			t.Errorf("%d transfers failed in flight, want more than %d", n, want)
		}
		return
	}
	for _, d := range []time.Duration{2 * time.Second, 10 * time.Second, 40 * time.Second} { // longer if the machine is too busy
		if n, enough := c.revokeOverHosts(program, d); enough {
			if n == 0 {
				t.Error("no transfer failed in flight")
			}
			return
		}
	}
	t.Error("no transfer failed in flight")
}

// strangersOfRoot is the number of connections of strangers to the port of SOFTND_ROOT.
const strangersOfRoot = 1000

// roleStrangers connects to an address as four kinds of strangers do, and keeps the connections. It says that a quarter is
// connected, and that all are. It ends when it hears a line.
var roleStrangers = proctest.Role("strangers", func(s *proctest.Self) error {
	greeting := append([]byte("SND-ROOT"), 1, 0, 0, 0, 0, 0, 0, 0)
	greeting = append(greeting, make([]byte, 32)...)
	all := make([]net.Conn, 0, strangersOfRoot)
	for len(all) < strangersOfRoot {
		conn, err := net.Dial("tcp", s.Args[0])
		if err != nil {
			if len(all) > 0 || s.Ctx.Err() != nil {
				return err
			}
			time.Sleep(time.Millisecond) // rank 0 does not listen yet
			continue
		}
		all = append(all, conn)
		switch len(all) % 4 {
		case 0: // says nothing
		case 1:
			_, _ = conn.Write([]byte(strings.Repeat("GET / HTTP/1.1\r\n", 20)))
		case 2:
			_, _ = conn.Write(greeting[:20])
		case 3: // knows all but the secret
			_, _ = conn.Write(append(greeting, make([]byte, 200)...))
		}
		switch len(all) {
		case strangersOfRoot / 4:
			s.Say("some")
		case strangersOfRoot:
			s.Say("all")
		}
		time.Sleep(time.Millisecond) // so that they last
	}
	_, err := s.Hear()
	return err
})

// Strangers at the port of SOFTND_ROOT cost a job nothing, before its ranks meet, while they do, and while they work.
func TestStrangersAtRoot(t *testing.T) {
	const most = 64 // handshakes at a time, as in docs/security.md
	c := newCluster(t)
	root := c.rank(0, 2, nil, role(roleWaits)...)
	cmd := exec.Command("ip", append([]string{"netns", "exec", c.names[1]}, role(roleStrangers, addressA+":7000")...)...)
	cmd.Env = c.env
	strangers := proctest.Start(t, cmd)
	strangers.Expect("some")
	all := []*proctest.Process{root, c.rank(1, 2, nil, role(roleWaits)...)}
	ready(t, all)
	strangers.Expect("all")
	fds, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", root.PID()))
	if err != nil {
		t.Fatal(err)
	}
	if n := len(fds); n > most+40 {
		t.Errorf("rank 0 has %d descriptors, most are of strangers", n)
	}
	for _, r := range all {
		r.Say("exchange")
	}
	for rank, r := range all {
		if err := r.End(); err != nil {
			t.Errorf("rank %d: %v", rank, err)
		}
	}
	strangers.Say("end")
	strangers.Wait()
	if text := root.Err.String() + all[1].Err.String(); strings.Count(text, "\n") != 1 || !strings.Contains(text, "refused a connection to SOFTND_ROOT") {
		t.Errorf("the ranks have printed %q, want one line about the strangers", text)
	}
}
