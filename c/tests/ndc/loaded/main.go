// Command loaded is a library for a program of another language: its Go code is a rank of a named job.
package main

import "C"

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/softnd/softnd"
)

// prepare has the runtime open the descriptors that it keeps.
//
//export prepare
func prepare() C.int {
	r, w, err := os.Pipe() // for which it needs those with which it waits
	if err != nil {
		return 1
	}
	r.Close()
	w.Close()
	return 0
}

// rank joins the job, makes descriptors, and stays until its peer has done so. It returns 0 if all has succeeded.
//
//export rank
func rank(name *C.char, number C.int) C.int {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if err := run(ctx, C.GoString(name), int(number)); err != nil {
		fmt.Fprintln(os.NewFile(9, "log"), err)
		return 1
	}
	return 0
}

func run(ctx context.Context, name string, number int) error {
	job, err := softnd.Join(ctx, name, number, 2)
	if err != nil {
		return err
	}
	defer job.Close()
	queue, err := job.Adapter().CreateCompletionQueue(ctx, 16)
	if err != nil {
		return err
	}
	defer queue.Close()
	if _, err := queue.EventFD(); err != nil {
		return err
	}
	if err := job.Barrier(ctx); err != nil {
		return err
	}
	if err := standardClosed(); err != nil {
		return err
	}
	return job.Barrier(ctx)
}

// standardClosed fails if a standard descriptor is in use, but for files that the runtime has opened for reading. It may open
// others for a moment.
func standardClosed() error {
	var err error
	for range 1000 {
		err = nil
		for fd := range 3 {
			if target, e := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", fd)); e == nil && !strings.HasPrefix(target, "/sys/fs/cgroup/") {
				err = fmt.Errorf("descriptor %d is %s", fd, target)
			}
		}
		if err == nil {
			return nil
		}
		time.Sleep(time.Millisecond)
	}
	return err
}

func main() {}
