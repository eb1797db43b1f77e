package main

import (
	"fmt"
	"math"
	"os"
	"path"
	"runtime"
	"strconv"
	"strings"

	"github.com/softnd/softnd/internal/affinity"
	"github.com/softnd/softnd/internal/cgroup"
)

// checkCores compares the cores that may be used with the time that cgroups grant on them.
func checkCores() check {
	if _, err := affinity.CPUs(); err != nil {
		return bad(fail, "cores", "sched_getaffinity: "+err.Error(), "allow the system call (seccomp profile?)")
	}
	cores := runtime.NumCPU()
	quota, where := cpuQuota(cgroup.Dirs("cpu"))
	if quota < float64(cores) {
		return bad(warn, "cores", fmt.Sprintf("%d usable, but %s grants the time of %.1f", cores, where, quota),
			"more ranks than that take turns; raise the limit for speed")
	}
	if cores == 1 {
		return bad(warn, "cores", "1 usable", "ranks take turns on it; use 2 cores or more for speed")
	}
	return good("cores", "%d usable", cores)
}

// cpuQuota returns how many cores' worth of time the strictest of the control groups grants,
// infinity if none limits it, and the file that says so.
func cpuQuota(groups []string) (cores float64, where string) {
	cores = math.Inf(1)
	for _, dir := range groups {
		if quota, file := groupQuota(dir); quota < cores {
			cores, where = quota, file
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
