package linux

import (
	"bufio"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// The control groups of this process. Nothing else in this module reads /proc/self/cgroup.

// CgroupMount is the directory where control groups are mounted.
const CgroupMount = "/sys/fs/cgroup"

// CgroupMembership is one line of /proc/self/cgroup.
type CgroupMembership struct {
	Controllers []string // of a version 1 hierarchy; nil for version 2
	Path        string   // of the group below the mount of its hierarchy, as the kernel writes it
}

// IsV2 reports whether m is the membership in the version 2 hierarchy.
func (m CgroupMembership) IsV2() bool { return m.Controllers == nil }

// Has reports whether m may have files of a controller: it is version 2 or a version 1 hierarchy
// with that controller.
func (m CgroupMembership) Has(controller string) bool {
	return m.IsV2() || slices.Contains(m.Controllers, controller)
}

// Ancestors returns m.Path, cleaned, and all directories above it, up to and including "/".
func (m CgroupMembership) Ancestors() (dirs []string) {
	for dir := path.Clean("/" + m.Path); ; dir = path.Dir(dir) {
		dirs = append(dirs, dir)
		if dir == "/" {
			return dirs
		}
	}
}

// OwnCgroups returns the memberships of this process; none if /proc cannot be read.
func OwnCgroups() []CgroupMembership {
	text, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return nil
	}
	return ParseCgroups(string(text))
}

// ParseCgroups parses the content of /proc/PID/cgroup, whose lines are "number:controllers:path". It
// skips malformed lines.
func ParseCgroups(text string) (all []CgroupMembership) {
	for line := range strings.Lines(text) {
		f := strings.SplitN(strings.TrimSuffix(line, "\n"), ":", 3)
		if len(f) != 3 {
			continue
		}
		m := CgroupMembership{Path: f[2]}
		if f[1] != "" {
			m.Controllers = strings.Split(f[1], ",")
		}
		all = append(all, m)
	}
	return all
}

// CgroupDirs returns the directories that may hold the files of a controller for this process: those
// of its own group first, then those of the groups above it. It does not check whether they
// exist.
func CgroupDirs(controller string) []string {
	return CgroupDirsIn(OwnCgroups(), CgroupMount, controller)
}

// CgroupDirsIn is [CgroupDirs] for given memberships and a given mount. In a container, the paths in
// /proc/self/cgroup may be paths of the host; the container's own group is then the root.
func CgroupDirsIn(memberships []CgroupMembership, mount, controller string) (dirs []string) {
	for _, m := range memberships {
		var mounts []string
		switch {
		case m.IsV2():
			mounts = []string{mount, path.Join(mount, "unified")}
		case m.Has(controller):
			mounts = []string{path.Join(mount, controller), path.Join(mount, strings.Join(m.Controllers, ","))}
		}
		for _, root := range slices.Compact(mounts) {
			for _, dir := range m.Ancestors() {
				dirs = append(dirs, path.Join(root, dir))
			}
		}
	}
	return dirs
}

// OwnCgroupDir returns the directory of this process's version 2 cgroup, "" if no mount shows it.
func OwnCgroupDir() string {
	own := ""
	for _, m := range OwnCgroups() {
		if m.IsV2() {
			own = m.Path
		}
	}
	if own == "" || strings.HasPrefix(own, "/..") { // outside of this process's cgroup namespace
		return ""
	}
	mounts, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return ""
	}
	defer mounts.Close()
	for s := bufio.NewScanner(mounts); s.Scan(); {
		mount, kind, _ := strings.Cut(s.Text(), " - ")
		const root, point = 3, 4
		f := strings.Fields(mount)
		if !strings.HasPrefix(kind, "cgroup2 ") || len(f) <= point {
			continue
		}
		if below, err := filepath.Rel(f[root], own); err == nil && !strings.HasPrefix(below, "..") {
			return filepath.Join(f[point], below)
		}
	}
	return ""
}
