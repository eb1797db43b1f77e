package jobtest

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/softnd/softnd/internal/testkit/proctest"
)

// The commands of the README for two hosts work in a copy of the source. The names of the hosts are
// addresses, and mpiexec.hydra has options in place of ssh.
func TestReadmeOnTwoHosts(t *testing.T) {
	if testing.Short() {
		t.Skip("it builds programs, and the run with the race detector says nothing more about them")
	}
	c := newCluster(t)
	hydra := c.hydra(1).Args
	hydra = hydra[4:slices.Index(hydra, "-hosts")] // begins with ip netns exec NAME
	const root = "../../.."
	page, err := os.ReadFile(filepath.Join(root, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(page), "\n### On two hosts\n")
	section, _, _ = strings.Cut(section, "\n### ")
	var commands []string
	for line := range strings.Lines(section) {
		if command, ok := strings.CutPrefix(line, "    "); ok {
			commands = append(commands, strings.TrimSpace(command))
		}
	}
	if len(commands) != 5 || !strings.HasPrefix(commands[4], "mpiexec.hydra -hosts node1,node2 ") {
		t.Fatalf("commands %q", commands)
	}
	dir := t.TempDir()
	if out, err := exec.Command("sh", "-c", "git -C "+root+" ls-files -z | tar -C "+root+" --null -T - -cf - | tar -C "+dir+" -xf -").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	script := "set -e\nmpiexec.hydra() { command " + strings.Join(hydra, " ") + " \"$@\"; }\n" + strings.ReplaceAll(strings.Join(commands, "\n"), "node1,node2", addressA+","+addressB)
	cmd := exec.Command("ip", "netns", "exec", c.names[0], "bash", "-c", script)
	cmd.Dir = dir
	cmd.Env = c.env
	status, out, errOut := proctest.Run(t, cmd)
	if status != 0 || errOut != "" {
		t.Errorf("exit status %d: %s", status, errOut)
	}
	mustBeSerial(t, out)
}
