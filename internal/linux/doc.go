// Package linux is what softnd asks of the kernel beside plain system calls. Its files are processors, control groups, limits,
// processes, the signals of job control, descriptors, memory mappings, users and clocks.
package linux
