package jobtest

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/softnd/softnd/internal/testkit/proctest"
)

// hasLine fails the test unless a line of a report begins with a status, and has all words in this order.
func hasLine(t *testing.T, report, status string, words ...string) {
	t.Helper()
next:
	for line := range strings.Lines(report) {
		rest, begins := strings.CutPrefix(line, status+" ")
		if !begins {
			continue
		}
		for _, word := range words {
			var has bool
			if _, rest, has = strings.Cut(rest, word); !has {
				continue next
			}
		}
		return
	}
	t.Errorf("no line with %s %q in\n%s", status, words, report)
}

// isHealthy checks a report about two hosts in which nothing is wrong.
func isHealthy(t *testing.T, report, a, b string) {
	t.Helper()
	for _, name := range []string{"address", "port", "ndrelay", "provider", "link"} {
		hasLine(t, report, "ok", a+"  ", name)
		hasLine(t, report, "ok", b+"  ", name)
	}
	hasLine(t, report, "ok", a+" to "+b, "route", addressB, "from "+addressA)
	hasLine(t, report, "ok", b+" to "+a, "route", addressA, "from "+addressB)
	hasLine(t, report, "ok", a+" to "+b, "port", addressB)
	hasLine(t, report, "ok", b+" to "+a, "port", addressA)
	hasLine(t, report, "ok", a+" to "+b, "clock", " ms")
	hasLine(t, report, "ok", a+" to "+b, "versions")
	if strings.Contains(report, "\nfail ") || !strings.HasSuffix(report, "A job over these 2 hosts starts.\n") {
		t.Errorf("%s", report)
	}
}

// ndinfo --hosts finds nothing wrong with two hosts, and each fault.
func TestNdinfoOverHosts(t *testing.T) {
	if testing.Short() {
		t.Skip("it runs programs that are built without the race detector, so the run with it says nothing more")
	}
	c := newCluster(t)
	ndinfo := c.build("github.com/softnd/softnd/cmd/ndinfo")
	atRoot := func(env ...string) []*proctest.Process { return c.atRoot(1, env, ndinfo, "--hosts") }
	t.Run("all well at SOFTND_ROOT", func(t *testing.T) {
		all := atRoot()
		for _, r := range all {
			r.Wait()
		}
		isHealthy(t, all[0].Out.String(), "host-0", "host-1")
		if text := all[1].Out.String() + all[0].Err.String() + all[1].Err.String(); text != "" {
			t.Errorf("also printed: %s", text)
		}
		c.mustBeEmpty()
	})
	t.Run("all well under Hydra, two ranks at each host", func(t *testing.T) {
		status, out, errOut := proctest.Run(t, c.hydra(2, ndinfo, "--hosts"))
		if status != 0 || errOut != "" {
			t.Errorf("exit status %d: %s", status, errOut)
		}
		isHealthy(t, out, "host-0", "host-1")
	})
	t.Run("versions differ", func(t *testing.T) {
		real := strings.TrimPrefix(c.env[len(c.env)-1], "SOFTND_RELAY=")
		other := c.script("other", "#!/bin/sh\nif ip addr show dev eth0 | grep -q "+addressB+"; then exec "+real+` "$@" | sed 's/"protocol":[0-9]*/"protocol":99/; s/"libfabric":"[^"]*"/"libfabric":"0.1"/'; exit; fi`+"\nexec "+real+" \"$@\"\n")
		all := atRoot("SOFTND_RELAY=" + other)
		for _, r := range all {
			ends(t, r, 1, "")
		}
		hasLine(t, all[0].Out.String(), "fail", "host-0 to host-1", "versions", "protocol of relays", " and 99", "libfabric", " and 0.1", "same source")
	})
	t.Run("ndrelay is missing at one host", func(t *testing.T) {
		const missing = "/nonexistent/ndrelay"
		all := []*proctest.Process{c.rank(0, 2, nil, ndinfo, "--hosts"), c.rank(1, 2, []string{"SOFTND_RELAY=" + missing}, ndinfo, "--hosts")}
		for _, r := range all {
			ends(t, r, 1, "")
		}
		hasLine(t, all[0].Out.String(), "fail", "host-1  ", "ndrelay", missing, "install ndrelay at this host")
		hasLine(t, all[0].Out.String(), "ok", "host-1 to host-0", "port")
	})
	t.Run("wrong secret", func(t *testing.T) {
		root := c.rank(0, 2, nil, ndinfo, "--hosts")
		other := c.rank(1, 2, []string{"SOFTND_SECRET=another secret of the tests"}, ndinfo, "--hosts")
		ends(t, other, 1, "")
		hasLine(t, other.Out.String(), "fail", "meeting", "does not know the secret of this job")
		proctest.Eventually(t, "rank 0 reports the stranger", func() bool { return strings.Contains(root.Err.String(), "refused a connection") })
		root.Kill()
	})
	t.Run("ports are blocked", func(t *testing.T) {
		// From host 1, connections reach host 0 at the port of SOFTND_ROOT only.
		rule := []string{"-n", c.names[1], "rule", "add", "pref", "10", "to", addressA, "ipproto", "tcp", "dport", "20000-65534", "prohibit"}
		c.ip(rule...)
		all := atRoot()
		for _, r := range all {
			ends(t, r, 1, "")
		}
		rule[3] = "delete"
		c.ip(rule...)
		hasLine(t, all[0].Out.String(), "fail", "host-1 to host-0", "port", "let TCP pass between the hosts")
		hasLine(t, all[0].Out.String(), "ok", "host-1  ", "provider")
	})
	t.Run("packets are dropped", func(t *testing.T) { // as by a firewall that does not answer
		rule := func(args ...string) { c.ip(append([]string{"-n", c.names[0], "rule"}, args...)...) }
		rule("add", "pref", "20", "lookup", "local") // in place of the first rule
		rule("delete", "pref", "0")
		rule("add", "pref", "10", "iif", "eth0", "ipproto", "tcp", "dport", "20000-65534", "blackhole")
		all := atRoot()
		for _, r := range all {
			ends(t, r, 1, "")
		}
		rule("delete", "pref", "10")
		rule("add", "pref", "0", "lookup", "local")
		rule("delete", "pref", "20")
		hasLine(t, all[0].Out.String(), "fail", "host-1 to host-0", "port", "let TCP pass between the hosts")
	})
	for name, tc := range map[string]struct{ getent, found, next string }{
		"the name of another host is unknown": {"exit 2", "no address of \"hostb\" is known", "add the name to DNS or /etc/hosts"},
		"the name of another host is wrong":   {"echo 10.99.0.9 STREAM hostb", "hostb is 10.99.0.9 here, and its relay is at " + addressB, "set SOFTND_HOST_ADDRESS at that host"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			if err := os.Rename(c.script("getent", "#!/bin/sh\ncase $2 in\nhosta) echo "+addressA+" STREAM hosta;;\n*) "+tc.getent+";;\nesac\n"), filepath.Join(dir, "getent")); err != nil {
				t.Fatal(err)
			}
			var all []*proctest.Process
			for rank, name := range []string{"hosta", "hostb"} {
				all = append(all, c.rank(rank, 2, []string{"PATH=" + dir + ":" + os.Getenv("PATH")}, "unshare", "--uts", "sh", "-c", "hostname "+name+" && exec "+ndinfo+" --hosts"))
			}
			for _, r := range all {
				r.Wait() // jobs need no names, so it warns
			}
			hasLine(t, all[0].Out.String(), "warn", "hosta to hostb", "name", tc.found, tc.next)
		})
	}
	// host adds something to a host's network, and undo removes it.
	host := func(i int, args ...string) (undo func()) {
		c.ip(append([]string{"-n", c.names[i], args[0], "add"}, args[1:]...)...)
		return func() { c.ip(append([]string{"-n", c.names[i], args[0], "delete"}, args[1:]...)...) }
	}
	t.Run("both hosts have the same address", func(t *testing.T) { // as with a bridge for containers
		for i := range 2 {
			defer host(i, "address", "10.81.0.1/32", "dev", "lo")()
		}
		all := atRoot("SOFTND_HOST_ADDRESS=10.81.0.1")
		for _, r := range all {
			ends(t, r, 1, "")
		}
		hasLine(t, all[0].Out.String(), "fail", "host-0 to host-1", "route", "both hosts have the address 10.81.0.1", "set SOFTND_HOST_ADDRESS at both hosts")
		hasLine(t, all[0].Out.String(), "fail", "host-1 to host-0", "route", "both hosts have the address 10.81.0.1")
	})
	t.Run("the route leaves from another address", func(t *testing.T) {
		const second = "10.81.0.2"
		defer host(0, "address", second+"/32", "dev", "lo")()
		defer host(1, "route", second+"/32", "via", addressA)()
		all := []*proctest.Process{c.rank(0, 2, []string{"SOFTND_HOST_ADDRESS=" + second}, ndinfo, "--hosts"), c.rank(1, 2, nil, ndinfo, "--hosts")}
		for _, r := range all {
			r.Wait()
		}
		hasLine(t, all[0].Out.String(), "warn", "host-0 to host-1", "route", "from "+addressA+", which is not the address of this host's relay, "+second, "set SOFTND_HOST_ADDRESS="+addressA)
	})
	t.Run("loopback", func(t *testing.T) {
		all := []*proctest.Process{c.rank(0, 2, nil, ndinfo, "--hosts"), c.rank(1, 2, []string{"SOFTND_HOST_ADDRESS=127.0.0.1"}, ndinfo, "--hosts")}
		for _, r := range all {
			ends(t, r, 1, "")
		}
		hasLine(t, all[0].Out.String(), "fail", "host-1  ", "address", "127.0.0.1", "set SOFTND_HOST_ADDRESS to an address that other hosts reach")
		hasLine(t, all[0].Out.String(), "fail", "host-0 to host-1", "route", "has no usable address")
	})
	t.Run("no route", func(t *testing.T) { // host 0 has an address that host 1 cannot reach
		c.ip("-n", c.names[0], "addr", "add", "10.80.0.1/24", "dev", "eth0")
		all := []*proctest.Process{c.rank(0, 2, []string{"SOFTND_HOST_ADDRESS=10.80.0.1"}, ndinfo, "--hosts"), c.rank(1, 2, nil, ndinfo, "--hosts")}
		for _, r := range all {
			ends(t, r, 1, "")
		}
		hasLine(t, all[0].Out.String(), "fail", "host-1 to host-0", "route", "network is unreachable", "set SOFTND_HOST_ADDRESS at host-0")
	})
}
