// Package peers measures other transports between processes of this host, to compare them with softnd, and libfabric between two
// hosts (RunOverHosts). It runs the programs
// that are installed, and names the Debian packages of missing programs.
//
//	peer       programs                           packages
//	ucx        ucx_perftest                       ucx-utils
//	libfabric  fi_pingpong                        libfabric-bin
//	openmpi    mpiexec.openmpi, mpicc.openmpi     openmpi-bin, libopenmpi-dev
//	mpich      mpiexec.mpich, mpicc.mpich         mpich, libmpich-dev
//
// # How a figure is measured
//
// Sizes, units and names are those of softnd. A repeat is one timed loop, and its value is the time divided by the number of
// operations. The figure is the median of the repeats. Pinned processes stay on the cores that package bench would choose:
// rank r on the r-th of the allowed cores, modulo their number. If a peer has several ways to do what a test asks for, all
// of them are measured. The one with the best median counts, and the note names it.
//
//	test       ucx_perftest                  fi_pingpong -p shm   MPI
//	write_lat  put_lat, ucp_put_lat          –                    put, flush; the other side polls its memory
//	posted     put_bw of 8 B                 –                    put, flush, 8 B, back to back
//	write_bw   put_bw, ucp_put_bw            –                    64 puts, flush
//	send_lat   am_lat, ucp_am_lat, tag_lat   the only test        send, receive
//	send_bw    am_bw, ucp_am_bw, tag_bw      –                    64 Isend to 64 Irecv, an empty answer
//	msg_rate   the same with 8 B             –                    the same with 8 B
//	barrier    –                             –                    2, 8 and 16 ranks
//
// Latencies are half round trips. A MB is 1e6 bytes. ucx_perftest means 2^20 bytes, so its figures are computed from its
// rates. fi_pingpong does not warm up.
//
// [Run] makes one repeat at a time, each in new processes, so repeats also differ in the addresses of the memory. The source
// of the MPI program is in this package.
//
// # What can be compared
//
// Write and put: neither UCX nor MPI checks which process may write where. A put of UCX over shared memory is a plain copy by
// the requester to an address that the peer has sent, and it is done when the call returns. It has no window that the peer
// could invalidate, no bounds and no completion to poll, and it requires memory of UCX. MPI checks at most the bounds. Its
// put and flush together correspond to a Write with its completion.
//
// Send and messages: the tag messages of UCX and MPI match tags; softnd, active messages and fi_pingpong do not. The active
// messages of package uct in UCX (am_lat, am_bw) give the receiver a buffer of the transport for the time of a callback. All
// others place the bytes where the receiver wants them, as Send does. Active messages of uct exist for small sizes only.
//
// Barriers of MPI with more ranks than cores: Open MPI yields the processor, MPICH spins.
//
// All peers run with their defaults, with two exceptions. UCX uses shared memory only (UCX_TLS=posix,cma; posix alone for
// put). Open MPI gets one slot per core, and at least two.
package peers
