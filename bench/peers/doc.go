// Package peers measures other transports between processes of this host, to be
// set beside the figures of softnd. It runs the programs that are installed and
// depends on none of them. It names the Debian package of a missing program.
//
//	peer       programs                           packages
//	ucx        ucx_perftest                       ucx-utils
//	libfabric  fi_pingpong                        libfabric-bin
//	openmpi    mpiexec.openmpi, mpicc.openmpi     openmpi-bin, libopenmpi-dev
//	mpich      mpiexec.mpich, mpicc.mpich         mpich, libmpich-dev
//
// # How a figure is taken
//
// As those of softnd: a repeat is one timed loop, its time divided by the
// operations; the value is the median of the repeats. Pinned processes stay on
// the cores that package bench would choose: rank r on the r-th of those that
// are allowed, modulo their number. Sizes, units and names are the same. Where a
// peer has several ways to do what a test asks for, all are measured; the one
// with the best median counts, and the note names it.
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
// Latencies are half round trips. MB are 1e6 bytes; ucx_perftest means 2^20, so
// its figures are worked out from its rates. fi_pingpong does not warm up.
//
// A [Runner] makes one repeat at a time, in processes of its own, so repeats
// differ by where memory came to lie as well. The caller measures others between
// the repeats, and the limit of the machine: each repeat is compared with the mean
// of the limit before and after it. The source of the MPI program is in this
// package.
//
// # What can be compared
//
// Write with put: neither UCX nor MPI checks which process may write where. A put of UCX
// over shared memory is a plain copy by the initiator to an address that it
// got from the peer. It is done when the call returns: no window that could be revoked,
// no bounds, no completion to be polled, and it can be used on memory of UCX
// only. MPI checks bounds at best; put and flush together are what a posted and
// completed Write is.
//
// Send with messages: tags and MPI match by tag, softnd, active messages and
// fi_pingpong do not. The active messages of package uct in UCX (am_lat, am_bw)
// give the receiver a buffer of the transport for the time of a callback; all
// others leave the bytes where the receiver wants them, as Send does. They exist
// for small sizes only.
//
// Barriers of MPI with more ranks than cores: Open MPI yields the processor
// then, MPICH spins on.
//
// All peers run as they do by default, with two exceptions. UCX is made to use
// shared memory (UCX_TLS=posix,cma; posix alone for put). Open MPI is configured as if
// there were a slot per core, or two, if there is but one.
package peers
