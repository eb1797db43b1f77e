package main

import (
	"crypto/sha256"
	"net"
	"runtime"
	"strings"
	"testing"

	"github.com/softnd/softnd/internal/layout"
	"github.com/softnd/softnd/internal/meet/relayclient"
	"github.com/softnd/softnd/internal/testkit/proctest"
	"github.com/softnd/softnd/relay/internal/handshake"
	"github.com/softnd/softnd/relay/internal/relay"
)

// ndrelay --check reports versions, and whether the provider opens.
func TestCheck(t *testing.T) {
	t.Setenv(envRelay, "1")
	info, err := relayclient.Check(proctest.Context(t), "/proc/self/exe", "127.0.0.1", "")
	if err != nil || info.Error != "" || info.Provider == "" || info.Label != relayclient.Label(info.Provider) || info.Layout != layout.Name() || info.Architecture != runtime.GOARCH || info.Libfabric == "" || info.Protocol != handshake.Version {
		t.Errorf("%+v, %v", info, err)
	}
	for provider, label := range map[string]string{"tcp;ofi_rxm": "", "shm": "not tested here", "udp;ofi_rxd": "not tested here"} {
		t.Setenv(relayclient.EnvProvider, provider)
		switch info, err := relayclient.Check(proctest.Context(t), "/proc/self/exe", "127.0.0.1", ""); {
		case err != nil && provider != "tcp;ofi_rxm" && strings.Contains(err.Error(), "libinfinipath"):
			t.Logf("libfabric's provider %s does not open here, and a library of it has ended the process: %v", provider, err)
		case err != nil:
			t.Error(err)
		case provider != "tcp;ofi_rxm" && info.Error != "":
			t.Logf("libfabric's provider %s does not open here: %s", provider, info.Error)
		case info.Provider != provider || info.Label != label:
			t.Errorf("%s: %+v", provider, info)
		}
	}
	t.Setenv(relayclient.EnvProvider, "tcp")
	const foreign = "192.0.2.1" // not of this host
	if info, err := relayclient.Check(proctest.Context(t), "/proc/self/exe", foreign, ""); err != nil || info.Error == "" || info.Provider != "" {
		t.Errorf("at %s: %+v, %v", foreign, info, err)
	}
}

// A relay is not ready before a frame of the other one has arrived: the control connection alone may pass a firewall.
func TestReadyNeedsAFrame(t *testing.T) {
	a := newHostWith(t, 0, map[string]any{"keepalive": "2s"})
	a.relay.Say("%s", peersLine(a.control, "127.0.0.1:1"))
	silent, err := relay.OpenOFI("tcp", "127.0.0.1")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	address, err := silent.Address()
	if err != nil {
		t.Fatal(err)
	}
	conn, err := net.Dial("tcp", a.control)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	job := sha256.Sum256([]byte("abc"))
	if _, err := handshake.Dial(conn, &handshake.Config{Job: [16]byte(job[:16]), Host: 1, Address: address}, 0); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Write([]byte{1}); err != nil { // this side knows the session
		t.Fatal(err)
	}
	failed(t, a.relay, "no frame for 2s")
}
