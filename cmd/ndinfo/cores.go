package main

import (
	"fmt"
	"math"
	"os"
	"path"
	"runtime"
	"strconv"
	"strings"

	"github.com/softnd/softnd/internal/linux"
)

// checkCores compares the usable cores with the CPU time that the cgroups allow.
func checkCores() check {
	if _, err := linux.CPUs(); err != nil {
		return bad(fail, "cores", "sched_getaffinity: "+err.Error(), "allow the system call (seccomp profile?)")
	}
	cores := runtime.NumCPU()
	quota, where := cpuQuota(linux.CgroupDirs("cpu"))
	if quota < float64(cores) {
		return bad(warn, "cores", fmt.Sprintf("%d usable, but %s limits CPU time to %.1f cores", cores, where, quota),
			"raise the limit if a job has more ranks than that: they share the time")
	}
	if cores == 1 {
		return bad(warn, "cores", "1 usable", "use 2 cores or more: ranks share one")
	}
	return good("cores", "%d usable", cores)
}

// cpuQuota returns the smallest CPU limit of the cgroups, in cores, and the file that sets it. It
// returns infinity if no cgroup has a limit.
func cpuQuota(groups []string) (cores float64, where string) {
	cores = math.Inf(1)
	for _, dir := range groups {
		if quota, file := groupQuota(dir); quota < cores {
			cores, where = quota, file
		}
	}
	return cores, where
}

// groupQuota reads the CPU limit of one cgroup, of version 1 or 2.
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
