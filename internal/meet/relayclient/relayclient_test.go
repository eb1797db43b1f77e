package relayclient

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/softnd/softnd/internal/testkit/proctest"
)

func TestMain(m *testing.M) {
	proctest.Main()
	os.Exit(m.Run())
}

const fakeMode = "SOFTND_TEST_FAKE_RELAY"

// fake plays ndrelay.
var fake = proctest.Role("relay", func(*proctest.Self) error {
	in := bufio.NewReader(os.Stdin)
	line, err := in.ReadBytes('\n')
	if err != nil {
		return err
	}
	var i instruction
	if err := json.Unmarshal(line, &i); err != nil {
		return err
	}
	if _, has := os.LookupEnv(testConfig.Hidden); has {
		return errors.New("the relay has the secret of the user in its environment")
	}
	mode := os.Getenv(fakeMode)
	switch mode {
	case "refuses":
		fmt.Println(`{"error":"no such provider"}`)
		os.Exit(1)
	case "ends":
		os.Exit(3)
	case "garbage":
		fmt.Println("garbage")
		os.Exit(0)
	case "mute":
		select {}
	}
	st, err := os.NewFile(3, "arena").Stat()
	if err != nil {
		return err
	}
	if i.Launcher {
		if _, err := os.NewFile(4, "launcher").WriteString("hello\n"); err != nil {
			return err
		}
	}
	fmt.Printf("{\"control\":\"%s %s %d of %d, %d, %s %s, %d bytes\"}\n", i.Provider, i.Job, i.Host, i.Hosts, len(i.Secret), i.Address, i.Keepalive, st.Size())
	if line, err = in.ReadBytes('\n'); err != nil {
		return err
	}
	if mode == "no link" {
		fmt.Println(`{"error":"no route to host 1"}`)
		os.Exit(1)
	}
	if want := "{\"relays\":[\"a\",\"b\"]}\n"; string(line) != want {
		fmt.Printf("{\"error\":%q}\n", line)
		os.Exit(1)
	}
	fmt.Println(`{"ready":true}`)
	_, err = io.Copy(io.Discard, in)
	return err
})

// useFake lets EnvProgram name a fake relay.
func useFake(t *testing.T, mode string) {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "ndrelay")
	script := fmt.Sprintf("#!/bin/sh\n%s=%s exec '%s'\n", proctest.RoleEnv, fake, exe)
	if err := os.WriteFile(path, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv(EnvProgram, path)
	t.Setenv(fakeMode, mode)
	t.Setenv(testConfig.Hidden, "of the user")
}

var testConfig = Config{Job: "0123", Secret: make([]byte, 32), Host: 1, Hosts: 2, Address: "10.0.0.2", Hidden: "SOFTND_TEST_HIDDEN"}

// begin starts a fake relay with a file of ten bytes as its arena.
func begin(t *testing.T, ctx context.Context) (*Relay, error) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "arena")
	if err := os.WriteFile(path, make([]byte, 10), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	return Start(ctx, f, testConfig)
}

func TestRelayStartsAndEnds(t *testing.T) {
	useFake(t, "")
	r, err := begin(t, proctest.Context(t))
	if err != nil {
		t.Fatal(err)
	}
	if want := "tcp 0123 1 of 2, 32, 10.0.0.2 5s, 10 bytes"; r.Control != want {
		t.Errorf("%q, want %q", r.Control, want)
	}
	if err := r.Connect(proctest.Context(t), []string{"a", "b"}); err != nil {
		t.Error(err)
	}
	r.Close()
	proctest.Receive(t, "the relay ends", r.ended)
}

func TestRelayCannotStart(t *testing.T) {
	for mode, want := range map[string]string{
		"refuses": "no such provider",
		"ends":    "it has ended without an answer",
		"garbage": `malformed answer "garbage\n"`,
	} {
		t.Run(mode, func(t *testing.T) {
			useFake(t, mode)
			_, err := begin(t, proctest.Context(t))
			if err == nil || !strings.HasPrefix(err.Error(), "the relay of host 1 (") || !strings.Contains(err.Error(), want) {
				t.Errorf("%v, want %q", err, want)
			}
		})
	}
}

func TestRelayDoesNotAnswer(t *testing.T) {
	useFake(t, "mute")
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if _, err := begin(t, ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
}

func TestRelayHasNoLink(t *testing.T) {
	useFake(t, "no link")
	r, err := begin(t, proctest.Context(t))
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	err = r.Connect(proctest.Context(t), []string{"a", "b"})
	if err == nil || !strings.Contains(err.Error(), "the relay of host 1, for the relays at a, b: no route to host 1; check that") {
		t.Error(err)
	}
}

func TestRelayIsMissing(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	if _, err := begin(t, t.Context()); err == nil || !strings.Contains(err.Error(), "needs the program ndrelay at each host") ||
		!strings.Contains(err.Error(), "go -C relay install ./cmd/ndrelay") {
		t.Error(err)
	}
	t.Setenv(EnvProgram, "/no/such/ndrelay")
	if _, err := begin(t, t.Context()); err == nil || !strings.Contains(err.Error(), "SOFTND_RELAY: ") {
		t.Error(err)
	}
	t.Setenv(EnvKeepalive, "soon")
	useFake(t, "")
	if _, err := begin(t, t.Context()); err == nil || !strings.Contains(err.Error(), `SOFTND_RELAY_KEEPALIVE="soon": want a duration`) {
		t.Error(err)
	}
}

// The relay gets the connection with the launcher as descriptor 4.
func TestRelayGetsTheLauncher(t *testing.T) {
	useFake(t, "")
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer read.Close()
	config := testConfig
	config.Launcher = write
	r, err := Start(proctest.Context(t), write, config)
	write.Close()
	if err != nil {
		t.Fatal(err)
	}
	if !r.Finalize() {
		t.Error("Finalize fails though the relay has a connection with the launcher")
	}
	r.Close()
	if text, err := io.ReadAll(read); err != nil || string(text) != "hello\n" {
		t.Errorf("%q, %v", text, err)
	}
}
