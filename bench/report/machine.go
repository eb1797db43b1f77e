package report

import (
	"bufio"
	"io"
	"os"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/softnd/softnd/internal/goruntime"
	"github.com/softnd/softnd/internal/linux"
)

const unknown = "unknown"

// ThisMachine describes the machine that the program runs on. The cores are those that the calling thread may use, so
// call it before pinning the thread.
func ThisMachine() Machine {
	return Machine{
		Processor: processor(),
		Cores:     cores(),
		Kernel:    kernel(),
		System:    runtime.GOOS + "/" + runtime.GOARCH,
		Go:        runtime.Version(),
		Softnd:    goruntime.BuildName(),
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

// model returns the name of the processor. Not every architecture has one.
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
	allowed, err := linux.CPUs()
	if err != nil {
		return runtime.NumCPU()
	}
	return len(allowed)
}

func kernel() string {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return unknown
	}
	return unix.ByteSliceToString(u.Release[:])
}
