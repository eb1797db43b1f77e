package main

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/softnd/softnd"
	"github.com/softnd/softnd/cmd/internal/verbs"
)

func TestUnsupported(t *testing.T) {
	list := "# Names\n\nlibibverbs IBVERBS_1.0\nibv_a built\nibv_b null\nibv_c nothing\n\nlibibverbs private 34 57\nibv_cmd_d errno\n\nlibrdmacm RDMACM_1.0\nrdma_e minus\n"
	if got := unsupported(list); !slices.Equal(got, []string{"ibv_b", "rdma_e"}) {
		t.Errorf("%q", got)
	}
	all, err := os.ReadFile("../../c/verbs/names.txt")
	if err != nil {
		t.Fatal(err)
	}
	got := unsupported(string(all))
	listed, err := os.ReadFile("../../docs/verbs-unsupported.md")
	if err != nil {
		t.Fatal(err)
	}
	var page []string
	_, sections, _ := strings.Cut(string(listed), "\n## ")
	for _, match := range regexp.MustCompile("`([a-z_0-9]+)`").FindAllStringSubmatch(sections, -1) {
		page = append(page, match[1])
	}
	if printed := slices.Sorted(slices.Values(got)); !slices.Equal(printed, slices.Sorted(slices.Values(page))) {
		t.Errorf("ndinfo prints %q, the page has %q", printed, page)
	}
	if !slices.Contains(got, "ibv_import_device") || slices.Contains(got, "ibv_open_device") || slices.Contains(got, "ibv_cmd_create_cq") {
		t.Errorf("%q", got)
	}
}

func TestDescribeFabric(t *testing.T) {
	const sockets = "Num       RefCount Protocol Flags    Type St Inode Path\n" +
		"0: 00000002 00000000 00010000 0005 01 11 @softnd-fabric-5-verbs\n" +
		"0: 00000002 00000000 00010000 0005 01 12 @softnd-fabric-6-verbs\n" +
		"0: 00000003 00000000 00000000 0005 03 13 @softnd-fabric-6-verbs\n" +
		"0: 00000002 00000000 00010000 0005 01 14 @softnd-fabric-7-my-own\n" +
		"0: 00000002 00000000 00010000 0001 01 15 /run/@softnd-fabric-8-verbs\n" +
		"0: 00000002 00000000 00000000 0001 03 16\n"
	for _, tc := range []struct {
		fabric string
		user   int
		want   string
	}{
		{"verbs", 5, `"verbs" of user 5 (SOFTND_VERBS_FABRIC, or the default), in this network namespace: processes are in it; users 6 have one of this name, too, which this user cannot reach`},
		{"verbs", 8, "no process is in it; users 5, 6 have"},
		{"my-own", 7, `"my-own" of user 7 (SOFTND_VERBS_FABRIC, or the default), in this network namespace: processes are in it`},
		{"own", 7, "no process is in it"},
	} {
		c := describeFabric(tc.fabric, sockets, tc.user)
		if c.Status != ok || !strings.Contains(c.Found, tc.want) || strings.Contains(c.Found, "users") != strings.Contains(tc.want, "users") {
			t.Errorf("%q of %d: %q, want %q", tc.fabric, tc.user, c.Found, tc.want)
		}
	}
	t.Setenv(softnd.EnvControl, "somewhere")
	if c := checkVerbsFabric(5); !strings.HasPrefix(c.Found, "that of the job of ndrun, by SOFTND_CONTROL") {
		t.Errorf("%q", c.Found)
	}
}

// A library of a card that needs a version node that ours lacks is reported, whatever file has its name.
func TestCheckDriver(t *testing.T) {
	i := slices.IndexFunc(systemFolders, func(dir string) bool {
		_, err := os.Stat(filepath.Join(dir, "libmlx5.so.1"))
		return err == nil
	})
	if i < 0 {
		t.Skip("libmlx5 is not installed")
	}
	dir := systemFolders[i]
	original := filepath.Join(dir, verbs.Library) // has what libmlx5 needs, in whatever release
	if c := checkDriver("libmlx5.so.1", []string{t.TempDir(), dir}, original); c.Status != ok || !strings.Contains(c.Found, "IBVERBS_PRIVATE_") {
		t.Errorf("%+v", c)
	}
	other := filepath.Join(dir, "libmlx5.so.1")
	if c := checkDriver("libmlx5.so.1", []string{dir}, other); c.Status != warn || !strings.Contains(c.Found, "which softnd's libibverbs does not have") || c.Remedy == "" {
		t.Errorf("%+v", c)
	}
	if c := checkDriver("libefa.so.1", []string{t.TempDir()}, original); c.Status != ok || !strings.Contains(c.Found, "not installed") {
		t.Errorf("%+v", c)
	}
}

func TestVerbsWithoutLibraries(t *testing.T) {
	t.Setenv(verbs.EnvDir, t.TempDir())
	var out, errOut bytes.Buffer
	if status := run([]string{"--verbs"}, &out, &errOut); status != 1 || errOut.Len() > 0 || !strings.HasPrefix(out.String(), "fail  libraries  no directory has libsoftnd-sys.so, libibverbs.so.1") ||
		!strings.Contains(out.String(), "\nok    fabric") {
		t.Errorf("exit status %d\n%s%s", status, &out, &errOut)
	}
	out.Reset()
	if status := run([]string{"--verbs", "--json"}, &out, &errOut); status != 1 || !strings.Contains(out.String(), `"starts": false`) {
		t.Errorf("exit status %d\n%s%s", status, &out, &errOut)
	}
}
