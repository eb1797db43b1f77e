package jobtest

import (
	"strings"
	"testing"

	"github.com/softnd/softnd/internal/proctest"
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

// ndinfo --hosts finds nothing wrong with two hosts, and each fault.
func TestNdinfoOverHosts(t *testing.T) {
	if testing.Short() {
		t.Skip("it runs programs that are built without the race detector, so the run with it says nothing more")
	}
	c := newCluster(t)
	ndinfo := c.build("github.com/softnd/softnd/cmd/ndinfo")
	atRoot := func(env ...string) []*proctest.Process { return c.atRoot(1, env, ndinfo, "--hosts") }
	isHealthy := func(t *testing.T, report string) {
		t.Helper()
		for _, name := range []string{"address", "port", "ndrelay", "provider", "link"} {
			hasLine(t, report, "ok", "host-0  ", name)
			hasLine(t, report, "ok", "host-1  ", name)
		}
		hasLine(t, report, "ok", "host-0 to host-1", "route", addressB, "from "+addressA)
		hasLine(t, report, "ok", "host-1 to host-0", "route", addressA, "from "+addressB)
		hasLine(t, report, "ok", "host-0 to host-1", "port", addressB)
		hasLine(t, report, "ok", "host-1 to host-0", "port", addressA)
		hasLine(t, report, "ok", "host-0 to host-1", "clock", " ms")
		hasLine(t, report, "ok", "host-0 to host-1", "versions")
		if strings.Contains(report, "\nfail ") || !strings.HasSuffix(report, "A job over these 2 hosts starts.\n") {
			t.Errorf("%s", report)
		}
	}
	t.Run("all well at SOFTND_ROOT", func(t *testing.T) {
		all := atRoot()
		for _, r := range all {
			r.Wait()
		}
		isHealthy(t, all[0].Out.String())
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
		isHealthy(t, out)
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
