package main

import (
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/softnd/softnd"
	"github.com/softnd/softnd/cmd/internal/verbs"
)

// verbsReport is the result of ndinfo --verbs.
type verbsReport struct {
	Starts bool    `json:"starts"` // programs find the device: no check failed
	Checks []check `json:"checks"`
}

// runVerbs is ndinfo --verbs. It returns the exit status.
func runVerbs(asJSON bool, stdout, stderr io.Writer) int {
	r := checkVerbs(systemFolders, os.Getuid())
	write := r.print
	if asJSON {
		write = func(w io.Writer) error { return writeJSON(w, r) }
	}
	if err := write(stdout); err != nil {
		fmt.Fprintln(stderr, "ndinfo: write the report:", err)
		return 1
	}
	if !r.Starts {
		return 1
	}
	return 0
}

func (r *verbsReport) print(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, c := range r.Checks {
		fmt.Fprintf(t, "%s\t%s\t%s\n", c.Status, c.Name, c.text())
	}
	return t.Flush()
}

// checkVerbs makes the checks. Libraries of cards are in one of the folders.
func checkVerbs(folders []string, user int) *verbsReport {
	r := &verbsReport{}
	if v, err := verbs.Find(""); err != nil {
		r.Checks = append(r.Checks, bad(fail, "libraries", err.Error(), ""))
	} else {
		r.Checks = append(r.Checks, good("libraries", "%s, which ndrun --verbs and ndrun --verbs-env show to programs", v.Dir))
		for _, name := range []string{"libmlx5.so.1", "libefa.so.1"} {
			r.Checks = append(r.Checks, checkDriver(name, folders, filepath.Join(v.Dir, verbs.Library)))
		}
		r.Checks = append(r.Checks, checkUnsupported(v.Dir))
	}
	r.Checks = append(r.Checks, checkVerbsFabric(user))
	r.Starts = !anyFailed(r.Checks)
	return r
}

// systemFolders are those in which the loader finds libraries of the distribution.
var systemFolders = []string{"/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64", "/usr/lib", "/lib64", "/lib"}

// checkDriver checks whether a library of the system for a card loads over softnd's libibverbs, which must have all version nodes that it
// needs.
func checkDriver(name string, folders []string, ours string) check {
	name, _, _ = strings.Cut(name, ".")
	i := slices.IndexFunc(folders, func(dir string) bool {
		_, err := os.Stat(filepath.Join(dir, name+".so.1"))
		return err == nil
	})
	if i < 0 {
		return good(name, "not installed: no program needs it")
	}
	path := filepath.Join(folders[i], name+".so.1")
	needed, err := neededVersions(path)
	if err != nil {
		return bad(warn, name, err.Error(), "")
	}
	offered, err := offeredVersions(ours)
	if err != nil {
		return bad(fail, name, err.Error(), "")
	}
	for _, version := range needed {
		if !slices.Contains(offered, version) {
			return bad(warn, name, fmt.Sprintf("%s needs %s, which softnd's libibverbs does not have: programs that are linked with it do not start", path, version), "install a newer softnd")
		}
	}
	return good(name, "%s loads: it needs %s", path, strings.Join(needed, ", "))
}

// neededVersions returns the version nodes of libibverbs that a library needs.
func neededVersions(path string) (versions []string, err error) {
	needs, err := dynamic(path, (*elf.File).DynamicVersionNeeds)
	for _, n := range needs {
		if n.Name != verbs.Library {
			continue
		}
		for _, d := range n.Needs {
			versions = append(versions, d.Dep)
		}
	}
	return versions, err
}

func offeredVersions(path string) (names []string, err error) {
	all, err := dynamic(path, (*elf.File).DynamicVersions)
	for _, v := range all {
		names = append(names, v.Name)
	}
	return names, err
}

// dynamic reads a part of the dynamic section of a library.
func dynamic[T any](path string, read func(*elf.File) ([]T, error)) ([]T, error) {
	f, err := elf.Open(path)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	defer f.Close()
	list, err := read(f)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return list, nil
}

// checkUnsupported lists the calls that are not built, from the list of names beside the libraries.
func checkUnsupported(dir string) check {
	const name = "unsupported"
	list, err := os.ReadFile(filepath.Join(dir, "names.txt"))
	if err != nil {
		return bad(warn, name, err.Error(), "install the libraries again")
	}
	calls := unsupported(string(list))
	if len(calls) == 0 {
		return good(name, "no call")
	}
	return good(name, "%d calls, which fail with EOPNOTSUPP: %s", len(calls), strings.Join(calls, " "))
}

// unsupported returns the public calls of names.txt that are not built.
func unsupported(list string) []string {
	var calls []string
	private := false
	for line := range strings.Lines(list) {
		f := strings.Fields(line)
		switch {
		case len(f) == 0 || f[0] == "#":
		case strings.HasPrefix(f[0], "lib"):
			private = len(f) > 1 && f[1] == "private"
		case !private && len(f) == 2 && f[1] != "built" && f[1] != "nothing":
			calls = append(calls, f[0])
		}
	}
	return calls
}

// EnvVerbsFabric names the fabric of programs that no ndrun has started.
const envVerbsFabric = "SOFTND_VERBS_FABRIC"

// checkVerbsFabric says which fabric a verbs program that is started here joins, and whether it has members.
func checkVerbsFabric(user int) check {
	const name = "fabric"
	for _, variable := range []string{softnd.EnvArenaFD, softnd.EnvControl} {
		if os.Getenv(variable) != "" {
			return good(name, "that of the job of ndrun, by %s", variable)
		}
	}
	fabric := os.Getenv(envVerbsFabric)
	if fabric == "" {
		fabric = "verbs"
	}
	sockets, err := os.ReadFile("/proc/net/unix")
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return bad(warn, name, err.Error(), "")
	}
	return describeFabric(fabric, string(sockets), user)
}

// describeFabric finds the fabrics of a name in the text of /proc/net/unix: the members of one have a socket of its name.
func describeFabric(fabric, sockets string, user int) check {
	state, others := "no process is in it", []string(nil)
	for line := range strings.Lines(sockets) {
		owner, ok := strings.CutPrefix(line[strings.LastIndex(line, " ")+1:], "@softnd-fabric-")
		owner, socketOf, found := strings.Cut(strings.TrimSuffix(owner, "\n"), "-")
		if !ok || !found || socketOf != fabric {
			continue
		}
		if owner == strconv.Itoa(user) {
			state = "processes are in it"
		} else if !slices.Contains(others, owner) {
			others = append(others, owner)
		}
	}
	c := good("fabric", "%q of user %d (%s, or the default), in this network namespace: %s", fabric, user, envVerbsFabric, state)
	if len(others) > 0 {
		c.Found += fmt.Sprintf("; users %s have one of this name, too, which this user cannot reach", strings.Join(others, ", "))
	}
	return c
}
