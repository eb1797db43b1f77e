// Package bench measures how fast two processes can pass a cache line, or a core, to each other. The figures of softnd are
// relative to such limits of the machine.
//
// Machines are shared and noisy. A limit is therefore measured in the same run, by the same two processes and on the same
// cores as the figure that is compared with it.
//
// The packages below it are for the command ndbench:
//
//   - bench/measure contains the measurements of softnd
//   - bench/peers measures other transports
//   - bench/suite contains the required figures, and compares measured figures with them
//   - bench/report writes, reads and compares reports
//   - bench/plot draws reports
//
// All of them are for people who extend softnd; there is no compatibility promise.
package bench
