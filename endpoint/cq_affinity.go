package endpoint

import "golang.org/x/sys/unix"

// processAffinity returns the first group of 64 processors that contains a processor this
// process may run on, and the mask of those processors.
func processAffinity() (group uint16, mask uint64, err error) {
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(unix.Getpid(), &set); err != nil {
		return 0, 0, err
	}
	for i, word := range set {
		if word != 0 {
			return uint16(i), uint64(word), nil
		}
	}
	return 0, 0, unix.ENODEV
}
