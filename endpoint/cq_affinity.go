package endpoint

import (
	"golang.org/x/sys/unix"

	"github.com/softnd/softnd/internal/linux"
)

// processAffinity returns the first group of 64 processors that contains a processor this
// process may run on, and the mask of those processors.
func processAffinity() (group uint16, mask uint64, err error) {
	cpus, err := linux.ProcessCPUs()
	if err != nil {
		return 0, 0, err
	}
	if len(cpus) == 0 {
		return 0, 0, unix.ENODEV
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
