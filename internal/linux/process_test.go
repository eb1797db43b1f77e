package linux

import (
	"os"
	"testing"
)

// A program can set any name in the process table.
func TestProcessNameMayContainAnything(t *testing.T) {
	old, err := os.ReadFile("/proc/self/comm")
	if err != nil {
		t.Fatal(err)
	}
	defer os.WriteFile("/proc/self/comm", old, 0)
	if err := os.WriteFile("/proc/self/comm", []byte("a) Z 1 (b"), 0); err != nil {
		t.Fatal(err)
	}
	p, err := ReadProcess(os.Getpid())
	all, allErr := Processes()
	if allErr != nil || all[os.Getpid()].Start != p.Start {
		t.Errorf("among all: %+v, %v", all[os.Getpid()], allErr)
	}
	if err != nil || p.Name != "a) Z 1 (b" || p.PPID != os.Getppid() || p.Dead() || p.Start == 0 {
		t.Errorf("read %+v, %v", p, err)
	}
}
