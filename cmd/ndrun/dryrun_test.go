package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/softnd/softnd/internal/linux"
	"github.com/softnd/softnd/internal/testkit/proctest"
)

func TestDryRun(t *testing.T) {
	dir := goPackage(t, "no Go at all")
	allowed, err := linux.CPUs()
	if err != nil {
		t.Fatal(err)
	}
	cpu := fmt.Sprint(allowed[0])
	touched := filepath.Join(t.TempDir(), "file")
	cmd := ndrun(t, "--dry-run", "-genv", "B", "b b", "--bind-to", "list:"+cpu, "--stop-at-start", "1", "--wrap", "2:/usr/bin/env -i",
		"-n", "2", "-wdir", "/", "touch", touched, ":", "-env", "A", "a", dir, "it's")
	cmd.Dir = "/tmp"
	status, out, errOut := proctest.Run(t, cmd)
	touch, err2 := find("program", "touch")
	if err2 != nil {
		t.Fatal(err2)
	}
	want := `rank 0 of 3
  program      ` + touch.path + `
  arguments    touch ` + touched + `
  directory    /
  environment  'B=b b' PWD=/ SOFTND_RANK=0 SOFTND_SIZE=3 SOFTND_APPNUM=0 SOFTND_ARENA_FD=3, in addition to ndrun's
  processors   ` + cpu + `
rank 1 of 3
  program      ` + touch.path + `
  arguments    touch ` + touched + `
  directory    /
  environment  'B=b b' PWD=/ SOFTND_RANK=1 SOFTND_SIZE=3 SOFTND_APPNUM=0 SOFTND_ARENA_FD=3, in addition to ndrun's
  processors   ` + cpu + `
  stopped before its first instruction
rank 2 of 3
  program      /usr/bin/env
  arguments    /usr/bin/env -i '(the program that is built)' it\'s
  directory    /tmp
  environment  'B=b b' A=a SOFTND_RANK=2 SOFTND_SIZE=3 SOFTND_APPNUM=1 SOFTND_ARENA_FD=3, in addition to ndrun's
  processors   ` + cpu + `
`
	if status != 0 || out != want || errOut != "" {
		t.Errorf("exit status %d, output\n%s want\n%s%s", status, out, want, errOut)
	}
	if _, err := os.Stat(touched); err == nil {
		t.Error("the program has run")
	}
}

// A dry run fails for the same errors as a run.
func TestDryRunFails(t *testing.T) {
	for _, args := range [][]string{{"no-such-program"}, {"--wrap", "0:no-such-program", "true"}, {"--bind-to", "list:1023", "true"}} {
		if status, out, errOut := proctest.Run(t, ndrun(t, append([]string{"--dry-run"}, args...)...)); status != 2 || out != "" || errOut == "" {
			t.Errorf("%q: exit status %d, output %q, message %q", args, status, out, errOut)
		}
	}
}

func TestArenaSize(t *testing.T) {
	for text, want := range map[string]string{"300M": "314572800", "0.5GiB": "536870912", "314572800": "314572800"} {
		status, out, errOut := proctest.Run(t, ndrun(t, "--arena-size", text, "sh", "-c", "stat -L -c %s /proc/self/fd/$SOFTND_ARENA_FD"))
		if status != 0 || out != "[0] "+want+"\n" {
			t.Errorf("%s: exit status %d, %q %s; want %s", text, status, out, errOut, want)
		}
	}
	for text, want := range map[string]string{
		"":     `option --arena-size: invalid value "": want bytes or a size such as 512M or 4GiB`,
		"0":    `option --arena-size: invalid value "0": want bytes or a size such as 512M or 4GiB`,
		"-1M":  `option --arena-size: invalid value "-1M": want bytes or a size such as 512M or 4GiB`,
		"much": `option --arena-size: invalid value "much": want bytes or a size such as 512M or 4GiB`,
		"1K":   `create shared memory: shm: create arena (asked 1024 bytes): arena size: want at least `,
		"99P":  `at most 1099511627776 bytes: change --arena-size or omit it`,
	} {
		status, out, errOut := proctest.Run(t, ndrun(t, "--arena-size", text, "true"))
		if status == 0 || out != "" || !strings.Contains(errOut, want) {
			t.Errorf("%q: exit status %d, output %q, message %s want %s", text, status, out, errOut, want)
		}
	}
}
