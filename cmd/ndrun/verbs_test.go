package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/softnd/softnd/cmd/internal/verbs"
	"github.com/softnd/softnd/internal/testkit/proctest"
)

// verbsDir returns a directory with the named files, which are empty.
func verbsDir(t *testing.T, names ...string) string {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestVerbs(t *testing.T) {
	dir := verbsDir(t, verbs.SysLibrary, verbs.Library, verbs.RDMALibrary)
	sys := dir + "/" + verbs.SysLibrary
	both := sys + ":" + dir + "/" + verbs.RDMALibrary + ":" + dir + "/" + verbs.Library
	for _, tc := range []struct {
		option, path, preload string // given
		wantPath, wantPreload string
	}{
		{"--verbs", "", "", dir, sys},
		{"--verbs=libs", "", "", dir, ""},
		{"--verbs=preload", "", "", dir, both},
		{"--verbs", "/a::/b", "/x.so /y.so", dir + ":/a::/b", "/x.so:/y.so:" + sys},
		{"--verbs", "/a:" + dir, sys + ":/x.so", dir + ":/a", sys + ":/x.so"}, // never twice
		{"--verbs=libs", "/a", "/x.so", dir + ":/a", "/x.so"},
	} {
		cmd := ndrun(t, tc.option, "--dry-run", "-genv", "LD_LIBRARY_PATH=/overridden", "-env", "LD_LIBRARY_PATH="+tc.path,
			"-genv", "SOFTND_VERBS_LINK=roce", "-genv", "SOFTND_VERBS_DEVICE="+strings.Repeat("x", 63), "-genv", "SOFTND_VERBS_ADOPT=always",
			"-genv", "SOFTND_VERBS_CHECK_PAGES=1", "-genv", "SOFTND_VERBS_SPIN=1s", "true")
		cmd.Env = append(cmd.Env, verbs.EnvDir+"="+dir, "LD_PRELOAD=")
		if tc.preload != "" {
			cmd.Args = slices.Insert(cmd.Args, len(cmd.Args)-1, "-env", "LD_PRELOAD="+tc.preload)
		}
		status, out, errOut := proctest.Run(t, cmd)
		_, env, _ := strings.Cut(out, "  environment  ")
		last := func(name string) (value string) { // that the rank gets
			for _, entry := range strings.Fields(strings.ReplaceAll(env, "/x.so /y.so", "")) {
				if rest, ok := strings.CutPrefix(strings.Trim(entry, "'"), name+"="); ok {
					value = rest
				}
			}
			return value
		}
		if got, gotPreload := last("LD_LIBRARY_PATH"), last("LD_PRELOAD"); status != 0 || got != tc.wantPath || gotPreload != tc.wantPreload {
			t.Errorf("%s: exit status %d, LD_LIBRARY_PATH %q, LD_PRELOAD %q, want %q, %q\n%s%s", tc.option, status, got, gotPreload, tc.wantPath, tc.wantPreload, out, errOut)
		}
	}
}

// A shell evaluates the output, whatever its own variables contain.
func TestVerbsEnv(t *testing.T) {
	dir := verbsDir(t, verbs.SysLibrary, verbs.Library)
	cmd := ndrun(t, "--verbs-env=libs")
	cmd.Env = append(cmd.Env, verbs.EnvDir+"="+dir, "LD_LIBRARY_PATH=/it's $HOME")
	status, out, errOut := proctest.Run(t, cmd)
	if status != 0 || errOut != "" {
		t.Fatalf("exit status %d, %s", status, errOut)
	}
	shell := exec.Command("sh", "-c", out+`/usr/bin/env`)
	if env, err := shell.Output(); err != nil || !strings.Contains(string(env), "\nLD_LIBRARY_PATH="+dir+":/it's $HOME\n") {
		t.Errorf("%v: %s\nof: %s", err, env, out)
	}
}

func TestVerbsErrors(t *testing.T) {
	dir, empty, partial := verbsDir(t, verbs.SysLibrary, verbs.Library), verbsDir(t), verbsDir(t, verbs.Library)
	spaced := filepath.Join(t.TempDir(), "a b")
	if err := os.Rename(verbsDir(t, verbs.Library, verbs.SysLibrary), spaced); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct{ option, dir, want string }{
		{"--verbs", empty, "option --verbs: no directory has libsoftnd-sys.so, libibverbs.so.1 (looked in " + empty + "): install the C library with verbs, or set SOFTND_VERBS_DIR"},
		{"--verbs", partial, "option --verbs: no directory has libsoftnd-sys.so, libibverbs.so.1 (looked in " + partial + ")"},
		{"--verbs-env=preload", partial, "no directory has libsoftnd-sys.so, librdmacm.so.1, libibverbs.so.1 (looked in " + partial + ")"},
		{"--verbs=libs", empty, "no directory has libibverbs.so.1 (looked in " + empty + ")"},
		{"--verbs=all", empty, `option --verbs: invalid value "all": want libs or preload`},
		{"--verbs", spaced, "the loader takes no path with a space, colon or semicolon: move the libraries"},
		{"--verbs-env", "", "/lib/softnd/verbs"},
		{"--verbs -env SOFTND_VERBS_LINK=ethernet", dir, `ndrun: option --verbs: SOFTND_VERBS_LINK: "ethernet": want infiniband or roce`},
		{"--verbs -genv SOFTND_VERBS_DEVICE=.x", dir, `option --verbs: SOFTND_VERBS_DEVICE: ".x": want 1 to 63 bytes`},
		{"--verbs -env SOFTND_VERBS_DEVICE=" + strings.Repeat("x", 64), dir, "SOFTND_VERBS_DEVICE: "},
		{"--verbs -env SOFTND_VERBS_ADOPT=1", dir, `SOFTND_VERBS_ADOPT: "1": want off, auto or always`},
		{"--verbs -env SOFTND_VERBS_CHECK_PAGES=on", dir, `SOFTND_VERBS_CHECK_PAGES: "on": want 0 or 1`},
		{"--verbs -env SOFTND_VERBS_SPIN=2s", dir, `SOFTND_VERBS_SPIN: "2s": want a duration`},
	} {
		cmd := ndrun(t, append(strings.Fields(tc.option), "true")...)
		cmd.Env = append(cmd.Env, verbs.EnvDir+"="+tc.dir)
		if status, out, errOut := proctest.Run(t, cmd); status != 2 || out != "" || !strings.Contains(errOut, tc.want) {
			t.Errorf("%s with %q: exit status %d, output %q, message\n%s want\n%s", tc.option, tc.dir, status, out, errOut, tc.want)
		}
	}
}
