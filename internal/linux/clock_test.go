package linux

import (
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"
)

const envPrint = "HOSTCLOCK_TEST_PRINT"

func TestMain(m *testing.M) {
	if os.Getenv(envPrint) != "" {
		fmt.Println(HostClock())
		return
	}
	os.Exit(m.Run())
}

// Processes in different time namespaces have one clock.
func TestTimeNamespaces(t *testing.T) {
	const ahead = 10_000_000 // seconds; no machine runs a test for as long
	if os.Geteuid() != 0 {
		t.Skip("only root can make time namespaces")
	}
	if _, err := os.Stat("/proc/self/ns/time"); err != nil {
		t.Skip("the kernel has no time namespaces")
	}
	unshare, err := exec.LookPath("unshare")
	if err != nil {
		t.Skipf("unshare is not installed (Debian: util-linux): %v", err)
	}
	if out, err := exec.Command(unshare, "--time", "true").CombinedOutput(); err != nil {
		t.Skipf("this process cannot make time namespaces: %v: %s", err, out)
	}
	cmd := exec.Command(unshare, "--time", "--monotonic", strconv.Itoa(ahead), os.Args[0])
	cmd.Env = append(os.Environ(), envPrint+"=1")
	text, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	there, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	if d := time.Duration(there - HostClock()); d.Abs() > ahead*time.Second/2 {
		t.Errorf("the clocks differ by %v", d)
	}
}

func TestParseOffset(t *testing.T) {
	for text, want := range map[string]int64{
		"":                                    0,
		"monotonic 0 0\nboottime 5 0\n":       0,
		"monotonic  100  7\nboottime 0 0\n":   100*int64(time.Second) + 7,
		"monotonic -2 999999999\n":            -2*int64(time.Second) + 999_999_999,
		"1 3 0\n7 9 0\n":                      3 * int64(time.Second),
		"boottime 5 0\nmonotonic five zero\n": 0,
	} {
		if got := parseOffset(text); got != want {
			t.Errorf("%q: %d, want %d", text, got, want)
		}
	}
}
