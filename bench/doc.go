// Package bench measures what the machine itself can do, which every figure of
// softnd is set in relation to: a cache line that goes back and forth between two
// processes, an atomic exchange that no other thread contends for, a core that passes from
// one process to another, and a plain copy.
//
// Machines are shared and noisy, so a limit is measured in the same run, by the
// same two processes on the same cores, as the figure that is compared with it.
package bench
