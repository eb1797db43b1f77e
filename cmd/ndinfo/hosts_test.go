package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/softnd/softnd/internal/goruntime"
	"github.com/softnd/softnd/internal/layout"
	"github.com/softnd/softnd/internal/meet/bootstrap"
	"github.com/softnd/softnd/internal/meet/relayclient"
	"github.com/softnd/softnd/internal/testkit/proctest"
)

// fakeRelay makes a script play ndrelay, which answers --check with text.
func fakeRelay(t *testing.T, text string) {
	t.Helper()
	setScript(t, "ndrelay", "#!/bin/sh\n[ \"$1 $2\" = '--check tcp' ] || exit 2\ncat <<'end'\n"+text+"\nend\n", relayclient.EnvProgram)
}

// setScript writes an executable file and sets a variable to its path.
func setScript(t *testing.T, name, text, variable string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv(variable, path)
}

const healthyRelay = `{"version":"v9","layout":"%s","protocol":1,"architecture":"amd64","libfabric":"1.17","provider":"tcp"}`

// ndinfoHosts runs ndinfo --hosts in a process of its own.
func ndinfoHosts(t *testing.T, args ...string) (r hostsReport, exit int) {
	t.Helper()
	cmd := proctest.Command(roleNdinfo, append([]string{"--hosts", "--json"}, args...)...)
	cmd.Env = append(cmd.Env, envConstraint+"=none")
	exit, out, errs := proctest.Run(t, cmd)
	if err := json.Unmarshal([]byte(out), &r); err != nil {
		t.Fatalf("exit status %d: %v in %s%s", exit, err, out, errs)
	}
	return r, exit
}

// find returns the first check of a name, and fails the test if there is none.
func (r *hostsReport) find(t *testing.T, name string) check {
	t.Helper()
	for _, c := range r.Checks {
		if c.Name == name {
			return c
		}
	}
	t.Errorf("no check %s in %+v", name, r.Checks)
	return check{}
}

// ownAddress lets other tests run on a machine without a network: any local address does for them.
func ownAddress(t *testing.T) string {
	t.Helper()
	a, _, err := bootstrap.OwnAddress(nil)
	if err != nil {
		t.Skipf("this machine has no network interface: %v", err)
	}
	t.Setenv(bootstrap.EnvHostAddress, a.String())
	return a.String()
}

// The label of a provider that the tests do not use is printed.
func TestHostsProviderLabel(t *testing.T) {
	ownAddress(t)
	fakeRelay(t, strings.Replace(fmt.Sprintf(healthyRelay, layout.Name()), `"tcp"}`, `"efa","label":"`+relayclient.Label("efa")+`"}`, 1))
	r, _ := ndinfoHosts(t)
	if c := r.find(t, providerCheck); c.Status != ok || !strings.HasPrefix(c.Found, "efa opens at ") || !strings.HasSuffix(c.Found, " (not tested here)") {
		t.Errorf("%+v", c)
	}
}

func TestHostsAlone(t *testing.T) {
	address := ownAddress(t)
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte("0123456789abcdef"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv(bootstrap.EnvSecretFile, secret)
	fakeRelay(t, fmt.Sprintf(healthyRelay, layout.Name()))
	r, exit := ndinfoHosts(t)
	if exit != 0 || !r.Starts || len(r.Hosts) != 1 || r.Hosts[0].Address != address || r.Hosts[0].Libfabric != "1.17" {
		t.Errorf("exit status %d, %+v", exit, r)
	}
	for _, name := range []string{meetingCheck, secretCheck, addressCheck, portCheck, relayCheck, providerCheck} {
		if c := r.find(t, name); c.Status != ok || c.Host != r.Hosts[0].Name {
			t.Errorf("%+v", c)
		}
	}
}

// Each fault of one host fails its check, with a remedy, and no other one.
func TestHostsFaultsOfOneHost(t *testing.T) {
	healthy := fmt.Sprintf(healthyRelay, layout.Name())
	for _, tc := range []struct {
		name    string
		harm    func(t *testing.T)
		check   string
		status  status
		mention string // in the text
	}{
		{"ndrelay is missing", func(t *testing.T) { t.Setenv(relayclient.EnvProgram, "/nonexistent/ndrelay") }, relayCheck, fail, "/nonexistent/ndrelay"},
		{"ndrelay of another layout", func(t *testing.T) { fakeRelay(t, fmt.Sprintf(healthyRelay, "1-0")) }, relayCheck, fail, "memory layout 1-0"},
		{"ndrelay does not know --check", func(t *testing.T) {
			setScript(t, "ndrelay", "#!/bin/sh\necho do not start it by hand >&2\nexit 2\n", relayclient.EnvProgram)
		}, relayCheck, fail, "do not start it by hand"},
		{"ndrelay prints something else", func(t *testing.T) { fakeRelay(t, "{}") }, relayCheck, fail, "malformed answer"},
		{"provider does not open", func(t *testing.T) { fakeRelay(t, healthy[:len(healthy)-1]+`,"error":"no data available"}`) }, providerCheck, fail, "no data available"},
		{"address is malformed", func(t *testing.T) { t.Setenv(bootstrap.EnvHostAddress, "eth0") }, addressCheck, fail, "eth0"},
		{"address is that of the loopback", func(t *testing.T) { t.Setenv(bootstrap.EnvHostAddress, "127.0.0.1") }, addressCheck, fail, "127.0.0.1"},
		{"address of another host", func(t *testing.T) { t.Setenv(bootstrap.EnvHostAddress, "192.0.2.1") }, portCheck, fail, "192.0.2.1"},
		{"short secret", func(t *testing.T) { t.Setenv(bootstrap.EnvSecret, "short") }, secretCheck, fail, "5 bytes"},
		{"secret in the environment", func(t *testing.T) { t.Setenv(bootstrap.EnvSecret, "0123456789abcdef") }, secretCheck, warn, bootstrap.EnvSecretFile},
		{"others can read the secret", func(t *testing.T) {
			setScript(t, "secret", "0123456789abcdef", bootstrap.EnvSecretFile)
		}, secretCheck, fail, "chmod 600"},
		{"no rank", func(t *testing.T) { t.Setenv(bootstrap.EnvRoot, "127.0.0.1:1") }, meetingCheck, fail, bootstrap.EnvRank},
		{"numbers without an address", func(t *testing.T) { t.Setenv(bootstrap.EnvSize, "2") }, meetingCheck, fail, bootstrap.EnvRoot},
	} {
		t.Run(tc.name, func(t *testing.T) {
			ownAddress(t)
			fakeRelay(t, healthy)
			tc.harm(t)
			r, exit := ndinfoHosts(t)
			wantExit := 0
			if tc.status == fail {
				wantExit = 1
			}
			if exit != wantExit || r.Starts != (wantExit == 0) {
				t.Errorf("exit status %d, starts %v", exit, r.Starts)
			}
			if c := r.find(t, tc.check); c.Status != tc.status || c.Remedy == "" || !strings.Contains(c.text(), tc.mention) {
				t.Errorf("%+v, want %s with %q", c, tc.status, tc.mention)
			}
			for _, c := range r.Checks {
				if c.Status == fail && c.Name != tc.check {
					t.Errorf("%+v", c)
				}
			}
		})
	}
}

// A name at SOFTND_ROOT that does not resolve is named before the ranks try to meet.
func TestHostsRootDoesNotResolve(t *testing.T) {
	ownAddress(t)
	fakeRelay(t, fmt.Sprintf(healthyRelay, layout.Name()))
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "getent"), []byte("#!/bin/sh\nexit 2\n"), 0o755); err != nil { // without waiting for DNS
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	t.Setenv(bootstrap.EnvRoot, "nowhere:7000")
	r, exit := ndinfoHosts(t)
	if c := r.find(t, nameCheck); exit != 1 || c.Status != fail || !strings.Contains(c.Found, `no address of "nowhere" is known`) {
		t.Errorf("exit status %d, %+v", exit, c)
	}
	if c := r.find(t, meetingCheck); c.Status != fail || !strings.Contains(c.Found, "not tried") {
		t.Errorf("%+v", c)
	}
	r.find(t, relayCheck) // the host is checked all the same
}

// Rank 0 names the ranks that have not come, when its time is over.
func TestHostsMissingRank(t *testing.T) {
	ownAddress(t)
	fakeRelay(t, fmt.Sprintf(healthyRelay, layout.Name()))
	root := fmt.Sprintf("127.200.%d.%d:7000", os.Getpid()>>8&0xff, os.Getpid()&0xff) // which no other test uses
	for name, value := range map[string]string{bootstrap.EnvRoot: root, bootstrap.EnvSecret: "0123456789abcdef", bootstrap.EnvRank: "0", bootstrap.EnvSize: "3"} {
		t.Setenv(name, value)
	}
	var r hostsReport
	var exit int
	for limit := range proctest.Limits(t, "rank 0 waits for the others", 500*time.Millisecond) {
		if r, exit = ndinfoHosts(t, "--timeout", limit.String()); strings.Contains(r.find(t, meetingCheck).Found, "missing: ") {
			break
		}
	}
	if c := r.find(t, meetingCheck); exit != 1 || c.Status != fail || !strings.Contains(c.Found, "missing: rank 1, rank 2") || !strings.Contains(c.Remedy, "--timeout") {
		t.Errorf("exit status %d, %+v", exit, c)
	}
}

func TestCompareVersions(t *testing.T) {
	base := hostFacts{Softnd: "v1", Layout: "1-2", Architecture: "amd64", Ndrelay: "v1", Protocol: 1, Libfabric: "1.17", Provider: "tcp"}
	for _, tc := range []struct {
		change func(*hostFacts)
		want   status
		text   string
	}{
		{func(*hostFacts) {}, ok, "the same"},
		{func(f *hostFacts) { f.Layout = "1-3" }, fail, "memory layout 1-2 and 1-3"},
		{func(f *hostFacts) { f.Protocol = 2 }, fail, "protocol of relays 1 and 2"},
		{func(f *hostFacts) { f.Provider = "efa" }, fail, "provider tcp and efa"},
		{func(f *hostFacts) { f.Softnd = "v2" }, warn, "softnd v1 and v2"},
		{func(f *hostFacts) { f.Ndrelay = "v2" }, warn, "ndrelay v1 and v2"},
		{func(f *hostFacts) { f.Libfabric = "2.1" }, warn, "libfabric 1.17 and 2.1"},
		{func(f *hostFacts) { f.Architecture = "arm64" }, warn, "architecture amd64 and arm64"},
		{func(f *hostFacts) { f.Softnd = goruntime.UnknownBuild }, ok, ""},
		{func(f *hostFacts) { f.Ndrelay, f.Protocol, f.Libfabric, f.Provider = "", 0, "", "" }, ok, ""}, // its own checks have failed
	} {
		other := base
		tc.change(&other)
		c := compare(base, other)[0]
		if c.Status != tc.want || !strings.Contains(c.Found, tc.text) || c.Remedy == "" && tc.want != ok {
			t.Errorf("%+v, want %s with %q", c, tc.want, tc.text)
		}
	}
}

// A probe finds the right host only, and its clock.
func TestProbe(t *testing.T) {
	hosts := &bootstrap.Hosts{Number: 1, Count: 2, Secret: []byte("secret")}
	server, err := newProbeServer(netip.MustParseAddr("127.0.0.1"), hosts)
	if err != nil {
		t.Fatal(err)
	}
	defer server.close()
	to := netip.MustParseAddrPort(server.address())
	m, err := probe(t.Context(), to, hosts.Secret, 1)
	if err != nil || m.roundTrip <= 0 || m.ahead.Abs() > m.uncertainty()+time.Millisecond { // it is the same clock, which may be set meanwhile
		t.Errorf("%+v, %v", m, err)
	}
	for _, wrong := range []struct {
		secret string
		host   int
	}{{"secret", 0}, {"another", 1}} {
		_, err := probe(t.Context(), to, []byte(wrong.secret), wrong.host)
		if c := unreachable(to, "b", err); err == nil || c.Status != fail || !strings.Contains(c.Remedy, bootstrap.EnvHostAddress) {
			t.Errorf("%v: %+v", wrong, c)
		}
	}
	server.close()
	if _, err := probe(t.Context(), to, hosts.Secret, 1); err == nil {
		t.Error("a server that has ended answers")
	}
}

// Connections that say nothing do not keep out a probe, and the server has a limited number of them.
func TestSilentStrangers(t *testing.T) {
	hosts := &bootstrap.Hosts{Number: 1, Count: 2, Secret: []byte("secret")}
	server, err := newProbeServer(netip.MustParseAddr("127.0.0.1"), hosts)
	if err != nil {
		t.Fatal(err)
	}
	defer server.close()
	for range 3 * maxUnproved {
		conn, err := net.Dial("tcp", server.address())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
	}
	if _, err := probe(t.Context(), netip.MustParseAddrPort(server.address()), hosts.Secret, 1); err != nil {
		t.Error(err)
	}
	server.mu.Lock()
	defer server.mu.Unlock()
	if n := len(server.unproved); n > maxUnproved {
		t.Errorf("%d connections", n)
	}
}

func TestCheckClock(t *testing.T) {
	for _, tc := range []struct {
		m    measurement
		want status
	}{
		{measurement{2 * time.Millisecond, -900 * time.Millisecond}, ok},
		{measurement{2 * time.Millisecond, -1100 * time.Millisecond}, warn},
		{measurement{4 * time.Second, 2 * time.Second}, ok}, // the round trip was too slow to tell
	} {
		if c := checkClock(tc.m); c.Status != tc.want {
			t.Errorf("%+v: %+v", tc.m, c)
		}
	}
}

func TestHostsReportPrint(t *testing.T) {
	r := &hostsReport{Hosts: []hostFacts{{Name: "a"}, {Name: "b"}}}
	r.add(labelsOf(r.Hosts), [][]check{{good(addressCheck, "10.0.0.1")}, {{Name: portCheck, Peer: "a", Status: fail, Found: "refused", Remedy: "open it"}}})
	r.conclude()
	var out bytes.Buffer
	if err := r.print(&out); err != nil {
		t.Fatal(err)
	}
	const want = "ok    a       address  10.0.0.1\nfail  b to a  port     refused; open it\n\nA job over several hosts does not start: see the lines that begin with fail.\n"
	if out.String() != want {
		t.Errorf("%s\nwant\n%s", &out, want)
	}
	if got := labelsOf([]hostFacts{{Name: "x"}, {Name: "x"}, {Name: "y"}}); strings.Join(got, " ") != "host-0 host-1 y" {
		t.Error(got)
	}
}
