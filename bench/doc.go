// Package bench holds what measurements need. So far these are the limits of
// the machine, which every figure of softnd is set in relation to: a cache line
// that goes back and forth between two processes, and a plain copy.
//
// Machines are shared and noisy, so a limit is measured in the same run, by the
// same two processes on the same cores, as the figure that is compared with it.
package bench
