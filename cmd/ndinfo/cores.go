package main

import (
	"fmt"
	"math"
	"os"
	"path"
	"runtime"
	"slices"
	"strconv"
	"strings"
)

// checkCores compares the cores that may be used with the time that cgroups grant on them.
func checkCores() check {
	cores := runtime.NumCPU()
	memberships, _ := os.ReadFile("/proc/self/cgroup")
	quota, where := cpuQuota(string(memberships), "/sys/fs/cgroup")
	if quota < float64(cores) {
		return bad(warn, "cores", fmt.Sprintf("%d usable, but %s grants the time of %.1f", cores, where, quota),
			"more ranks than that take turns; raise the limit for speed")
	}
	if cores == 1 {
		return bad(warn, "cores", "1 usable", "ranks take turns on it; use 2 cores or more for speed")
	}
	return good("cores", "%d usable", cores)
}

// cpuQuota returns how many cores' worth of time the strictest cgroup above this process grants,
// infinity if none limits it, and the file that says so. memberships is /proc/self/cgroup, where
// each line is "number:controllers:directory". A container may see directories there that are
// those of the host; then its own group is at the root.
func cpuQuota(memberships, root string) (cores float64, where string) {
	cores = math.Inf(1)
	for line := range strings.Lines(memberships) {
		f := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(f) != 3 {
			continue
		}
		var mounts []string
		switch controllers := strings.Split(f[1], ","); {
		case f[1] == "":
			mounts = []string{root, path.Join(root, "unified")}
		case slices.Contains(controllers, "cpu"):
			mounts = []string{path.Join(root, "cpu"), path.Join(root, f[1])}
		}
		for _, mount := range mounts {
			for dir := path.Clean("/" + f[2]); ; dir = path.Dir(dir) {
				if quota, file := groupQuota(path.Join(mount, dir)); quota < cores {
					cores, where = quota, file
				}
				if dir == "/" {
					break
				}
			}
		}
	}
	return cores, where
}

// groupQuota reads what one cgroup of either version grants.
func groupQuota(dir string) (cores float64, file string) {
	file = path.Join(dir, "cpu.max")
	both, _ := os.ReadFile(file)
	f := strings.Fields(string(both))
	if len(f) != 2 {
		file = path.Join(dir, "cpu.cfs_quota_us")
		quota, _ := os.ReadFile(file)
		period, _ := os.ReadFile(path.Join(dir, "cpu.cfs_period_us"))
		f = []string{strings.TrimSpace(string(quota)), strings.TrimSpace(string(period))}
	}
	quota, err := strconv.ParseUint(f[0], 10, 64) // no limit is "max" in version 2 and -1 in version 1
	period, err2 := strconv.ParseUint(f[1], 10, 64)
	if err != nil || err2 != nil || period == 0 {
		return math.Inf(1), ""
	}
	return float64(quota) / float64(period), file
}
