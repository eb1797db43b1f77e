package endpoint

// TWIN c/src/endpoint/cq_affinity.c.

import (
	"golang.org/x/sys/unix"

	"github.com/softnd/softnd/internal/linux"
	"github.com/softnd/softnd/nd"
)

// notifyAffinity returns the first group of 64 processors that contains a processor this process may run on, because
// goroutines of this process serve the notifications of a queue, and the mask of those processors.
func notifyAffinity(object string) (group uint16, mask uint64, err error) {
	cpus, err := linux.ProcessCPUs()
	if err == nil && len(cpus) == 0 {
		err = unix.ENODEV
	}
	if err != nil {
		return 0, 0, &nd.OpError{Op: "get notify affinity", Object: object, Status: nd.NotSupported, Err: err}
	}
	const groupSize = 64
	group = uint16(cpus[0] / groupSize)
	for _, cpu := range cpus {
		if cpu/groupSize == int(group) {
			mask |= 1 << (cpu % groupSize)
		}
	}
	return group, mask, nil
}
