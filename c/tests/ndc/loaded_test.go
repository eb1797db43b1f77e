package ndc

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

const loadingProgram = `
#include <stdlib.h>
#include <unistd.h>
int prepare(void);
int rank(char *name, int number);
int main(int count, char **arguments)
{
	if (count != 3 || prepare() != 0)
		return 2;
	close(0);
	close(1);
	close(2);
	return rank(arguments[1], atoi(arguments[2]));
}
`

// A program in C loads a library in Go, and closes the standard descriptors, which the runtime of a library does not open again. No
// descriptor of softnd is in their place: the output of the program would go into the arena.
func TestLoadedStandardDescriptors(t *testing.T) {
	dir := t.TempDir()
	source, program, library := filepath.Join(dir, "main.c"), filepath.Join(dir, "main"), filepath.Join(dir, "loaded.a")
	if err := os.WriteFile(source, []byte(loadingProgram), 0o600); err != nil {
		t.Fatal(err)
	}
	build(t, "go", "build", "-buildmode=c-archive", "-o", library, "./loaded")
	build(t, "cc", "-o", program, source, library, "-pthread", "-lresolv")
	name := fmt.Sprintf("loaded-%d", os.Getpid())
	var ranks [2]*exec.Cmd
	for i := range ranks {
		ranks[i] = exec.Command("sh", "-c", `exec "$0" "$@" 9>&2`, program, name, fmt.Sprint(i))
		ranks[i].Stderr = os.Stderr
		if err := ranks[i].Start(); err != nil {
			t.Fatal(err)
		}
	}
	for i, r := range ranks {
		if err := r.Wait(); err != nil {
			t.Errorf("rank %d: %v", i, err)
		}
	}
}

func build(t *testing.T, command ...string) {
	if out, err := exec.Command(command[0], command[1:]...).CombinedOutput(); err != nil {
		t.Fatalf("%q: %v\n%s", command, err, out)
	}
}
