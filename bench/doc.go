// Package bench measures the limits of the machine, to which the figures of softnd are relative. They are a cache line
// that goes back and forth between two processes, an uncontended atomic exchange, a switch of a core from one process to
// another, and a copy.
//
// Machines are shared and noisy. A limit is therefore measured in the same run, by the same two processes and on the same
// cores as the figure that is compared with it.
package bench
