// Package launcher starts the ranks of a job on this host, forwards their output and
// signals, and kills the whole process tree when the job ends.
//
// The package is for people who extend softnd. It makes no compatibility promise.
//
// Three processes are involved besides the ranks:
//
//	front end ── watchdog ── supervisor ─┬─ rank 0 ─ …
//	                                     ├─ rank 1 ─ …
//	                                     └─ orphans of the ranks
//
// These are their tasks:
//
//   - The front end is the process that calls [Job.Run]. It holds the reading ends of the
//     ranks' output pipes, and it builds the report.
//   - The supervisor starts the ranks and waits for them. It is a child subreaper: a process
//     that forks twice or calls setsid becomes a child of the supervisor when its parent
//     exits. The job is over exactly when the supervisor has no child left.
//   - The watchdog is the parent of the supervisor and a child subreaper too. It kills the
//     orphans if the supervisor is killed.
//
// The supervisor is started for one job, so all its descendants belong to that job. The
// package never signals any other process.
//
// Any of these processes may be killed:
//
//   - A rank: the supervisor reports its exit. The front end then orders the supervisor to
//     stop the other ranks. Before that it waits for up to a second if another running rank
//     may have caused the failure. Without an order, the supervisor stops the ranks after two
//     seconds.
//   - The front end: the supervisor reads end of file from its socket and kills its tree.
//   - The supervisor: each rank has set PR_SET_PDEATHSIG and dies with it. Orphans become
//     children of the watchdog, which kills them.
//   - The watchdog: the front end sees its exit and closes the socket. The supervisor then
//     acts as after the death of the front end.
//
// If the user may create version 2 cgroups, the ranks run in a cgroup of their own. Each of
// the three processes can kill that cgroup in one step and remove it. If watchdog and
// supervisor are killed at the same moment, only the cgroup reaches processes that have left
// the session of their rank.
//
// Watchdog and supervisor are the caller's own executable, started again. A program that uses
// this package therefore calls [Serve] first in main. Both run in a session of their own, away
// from the terminal's signals. They close all files of the job once the ranks run.
//
// The front end sends the supervisor the job and all open files that it needs over a socket.
// The supervisor creates the output pipes of a rank before it starts the rank, and sends the
// reading ends to the front end.
//
// A rank has no controlling terminal. It can read the terminal through its standard input,
// but it cannot open /dev/tty.
package launcher
