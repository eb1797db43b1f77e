package bootstrap

import (
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestAddressOfRoot(t *testing.T) {
	for text, want := range map[string]string{
		"10.0.0.1:7000":             "10.0.0.1:7000",
		"[fd00::1]:7000":            "[fd00::1]:7000",
		"[::ffff:10.0.0.1]:80":      "10.0.0.1:80",
		"localhost:80":              ":80",
		"":                          "want host:port",
		"host":                      "want host:port",
		":7000":                     "want host:port",
		"10.0.0.1:0":                "a port from 1 to 65535",
		"10.0.0.1:70000":            "a port from 1 to 65535",
		"[fd00::1:7000":             "want [address]:port",
		"0.0.0.0:7000":              "is not an address to which other hosts can connect",
		"[fe80::1]:7000":            "fe80::1 is a link-local address",
		"[fe80::1%eth0]:7000":       "fe80::1%eth0 is a link-local address",
		"[fd00::1%eth0]:7000":       "fd00::1%eth0 has a zone",
		"no.such.host.invalid:7000": "no address of \"no.such.host.invalid\" is known (getent ahosts: ",
	} {
		at, _, err := Resolve(t.Context(), text)
		got := at.String()
		if err != nil {
			got = err.Error()
		}
		if !strings.Contains(got, want) {
			t.Errorf("%q: %s, want %s", text, got, want)
		}
	}
}

// A name that is an address of loopback here stands for another address of this host, unless it means loopback.
func TestNameOfLoopback(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	t.Setenv(EnvHostAddress, "10.9.9.9")
	for _, tc := range []struct{ name, answer, want, choice string }{
		{"node1", "127.0.1.1 STREAM node1\\n127.0.1.1 DGRAM", "10.9.9.9:7000", "node1 is 127.0.1.1 here, at which other hosts cannot connect; using 10.9.9.9, set by SOFTND_HOST_ADDRESS: "},
		{"node1", "127.0.1.1 STREAM node1\\n10.1.1.1 STREAM", "10.1.1.1:7000", ""},
		{"node1", "10.1.1.1 STREAM node1\\n127.0.1.1 STREAM", "10.1.1.1:7000", ""},
		{"localhost", "127.0.0.1 STREAM localhost", "127.0.0.1:7000", ""},
	} {
		script := "#!/bin/sh\nprintf '" + tc.answer + "\\n'\n"
		if err := os.WriteFile(filepath.Join(dir, "getent"), []byte(script), 0o700); err != nil {
			t.Fatal(err)
		}
		at, choice, err := Resolve(t.Context(), tc.name+":7000")
		if err != nil || at.String() != tc.want || (choice != "") != (tc.choice != "") || !strings.HasPrefix(choice, tc.choice) {
			t.Errorf("%s: %v, %q, %v", tc.answer, at, choice, err)
		}
	}
}

func TestHostAddress(t *testing.T) {
	known := netip.MustParseAddr("10.1.2.3")
	if a, _, err := hostAddress(known); a.String() != "10.1.2.3" || err != nil {
		t.Errorf("%s, %v", a, err)
	}
	t.Setenv(EnvHostAddress, "10.9.9.9")
	if a, _, err := hostAddress(known); a.String() != "10.9.9.9" || err != nil {
		t.Errorf("%s, %v", a, err)
	}
	t.Setenv(EnvHostAddress, "eth0")
	if a, _, err := hostAddress(known); err == nil {
		t.Error(a)
	}
}

func TestSecretOfTheUser(t *testing.T) {
	const secret = "0123456789abcdef"
	file := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(file, []byte(" "+secret+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	shared := filepath.Join(t.TempDir(), "shared")
	if err := errors.Join(os.WriteFile(shared, []byte(secret), 0o600), os.Chmod(shared, 0o640)); err != nil { // despite the umask
		t.Fatal(err)
	}
	for _, tc := range []struct{ secret, file, want string }{
		{secret, "", secret},
		{"", shared, "has mode 0640, so other users have access to the secret: run chmod 600 " + shared},
		{"", file, secret},
		{"", "", "the secret has 0 bytes: SOFTND_ROOT needs one of 16 or more"},
		{secret[1:], "", "the secret has 15 bytes"},
		{secret, file, "are both set"},
		{"", file + "x", "no such file"},
	} {
		t.Setenv(EnvSecret, tc.secret)
		t.Setenv(EnvSecretFile, tc.file)
		b, err := UserSecret()
		got := string(b)
		if err != nil {
			got = err.Error()
		}
		if !strings.Contains(got, tc.want) {
			t.Errorf("%+v: %s", tc, got)
		}
	}
}

// The file of another user is refused: that user can change the secret.
func TestSecretOfAnotherUser(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can give a file away")
	}
	file := filepath.Join(t.TempDir(), "secret")
	if err := errors.Join(os.WriteFile(file, []byte("0123456789abcdef"), 0o600), os.Chown(file, 12345, -1)); err != nil {
		t.Fatal(err)
	}
	if _, err := readPrivate(file); err == nil || !strings.Contains(err.Error(), "belongs to user 12345") {
		t.Error(err)
	}
}

func TestNumbersOfARank(t *testing.T) {
	for _, tc := range []struct {
		env        []string
		rank, size int
	}{
		{[]string{"SOFTND_RANK=1", "SOFTND_SIZE=3"}, 1, 3},
		{[]string{"SLURM_PROCID=2", "SLURM_STEP_NUM_TASKS=4"}, 2, 4},
		{[]string{"OMPI_COMM_WORLD_RANK=2", "OMPI_COMM_WORLD_SIZE=4", "SLURM_PROCID=0"}, 2, 4},
		{[]string{"SOFTND_RANK=0", "SOFTND_SIZE=2", "SLURM_PROCID=1", "SLURM_STEP_NUM_TASKS=4"}, 0, 2},
		{[]string{"SOFTND_RANK=2", "SOFTND_SIZE=2"}, 0, 0},
		{[]string{"SOFTND_RANK=0"}, 0, 0},
		{nil, 0, 0},
	} {
		for _, name := range []string{EnvRank, EnvSize, openMPI.rank, openMPI.size, slurm.rank, slurm.size} {
			t.Setenv(name, "")
		}
		for _, v := range tc.env {
			name, value, _ := strings.Cut(v, "=")
			t.Setenv(name, value)
		}
		if rank, size, err := ownNumbers(); rank != tc.rank || size != tc.size || (err == nil) != (size > 0) {
			t.Errorf("%v: %d, %d, %v", tc.env, rank, size, err)
		}
	}
}
