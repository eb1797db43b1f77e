package report

import (
	"bufio"
	"io"
	"os"
	"runtime"
	"runtime/debug"
	"strings"

	"golang.org/x/sys/unix"
)

const (
	unknown = "unknown"
	module  = "github.com/softnd/softnd"
)

// ThisMachine describes the machine that the program runs on. The cores are
// those that the calling thread may use, so call it before pinning.
func ThisMachine() Machine {
	return Machine{
		Processor: processor(),
		Cores:     cores(),
		Kernel:    kernel(),
		System:    runtime.GOOS + "/" + runtime.GOARCH,
		Go:        runtime.Version(),
		Softnd:    revision(debug.ReadBuildInfo()),
	}
}

func processor() string {
	f, err := os.Open("/proc/cpuinfo")
	if err != nil {
		return unknown
	}
	defer f.Close()
	return model(f)
}

// model finds the name of the processor; not every architecture gives one.
func model(cpuinfo io.Reader) string {
	lines := bufio.NewScanner(cpuinfo)
	for lines.Scan() {
		key, value, _ := strings.Cut(lines.Text(), ":")
		switch strings.TrimSpace(key) {
		case "model name", "cpu model", "Model":
			if value = strings.Join(strings.Fields(value), " "); value != "" {
				return value
			}
		}
	}
	return unknown
}

func cores() int {
	var allowed unix.CPUSet
	if err := unix.SchedGetaffinity(0, &allowed); err != nil {
		return runtime.NumCPU()
	}
	return allowed.Count()
}

func kernel() string {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return unknown
	}
	return unix.ByteSliceToString(u.Release[:])
}

// revision is that of the build if softnd is what was built, and the version of
// the module if it is part of another program.
func revision(info *debug.BuildInfo, ok bool) string {
	if !ok {
		return unknown
	}
	if info.Main.Path != module {
		return version(info.Deps)
	}
	found, modified := unknown, ""
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision":
			found = s.Value
		case s.Key == "vcs.modified" && s.Value == "true":
			modified = "+modified"
		}
	}
	if found == unknown {
		return unknown
	}
	return found + modified
}

func version(deps []*debug.Module) string {
	for _, d := range deps {
		if d.Path == module && d.Version != "" {
			return d.Version
		}
	}
	return unknown
}
