// Package launcher starts the ranks of a job on this host, passes on their
// output and signals, and brings the whole process tree down when the job ends,
// however it ends.
//
// Three processes stand between the caller and the ranks:
//
//	front ── guard ── keeper ─┬─ rank 0 ─ …
//	                          ├─ rank 1 ─ …
//	                          └─ orphans of the ranks
//
// The front is the process that calls [Run]. It holds the reading ends of the
// ranks' output and the report. The keeper starts the ranks and waits for them.
// It is a child subreaper, so a process that forks twice or starts a session of
// its own becomes the keeper's child instead of getting away, and the job is over
// exactly when the keeper has no child left. The keeper is freshly made for the
// job: whatever descends from it was started by the job, and nothing else is ever
// signalled.
//
// Any of them may be killed:
//
//   - A rank: the keeper sees it and stops the others when the front says so, or after two
//     seconds. The front waits up to a second for a rank that may have caused the failure.
//   - The front: the keeper's socket reports the end of the stream, and the keeper
//     kills its tree.
//   - The keeper: each rank asked the kernel to die with it; the orphans fall to the
//     guard, a subreaper too, which has no other work than to kill them.
//   - The guard: the front sees it and closes the socket, as if it had died.
//
// Where cgroups of version 2 may be made, the ranks run in one of the job's own, which
// whoever of the three still lives kills in one step and removes. Only it reaches what
// has left a rank's session when keeper and guard are killed at the same moment.
//
// Guard and keeper are the caller's own executable, started again; that is why a
// program that uses this package calls [Serve] first in main. They live in a
// session of their own, away from the terminal's signals, and hold no file of the
// job once the ranks run.
//
// The keeper gets the job, with all open files that it is about, over the socket to the
// front. It makes the pipes for the output of a rank before it starts the rank, and sends the
// front its ends.
//
// A rank therefore has no controlling terminal: it may read the terminal through
// its standard input, but /dev/tty does not open.
package launcher
