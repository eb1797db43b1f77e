// Command ndrelay carries the connections between one host of a job and the other hosts. A rank of the host starts it with
// the arena as descriptor 3, and tells it what to do through its standard input; see protocol.go and docs/hosts.md.
//
// It runs until its standard input has ended and no rank of its host is left. The signals with which a launcher ends the
// processes of a job do not end it before: connections of ranks that still live would break.
package main

import (
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/softnd/softnd/internal/goruntime"
)

const usage = `ndrelay carries the connections of a softnd job to other hosts. The job starts it by itself:
SOFTND_RELAY names the program, or it is in PATH. Do not start it by hand.

ndrelay --check PROVIDER ADDRESS prints one line of JSON: its versions, and whether libfabric's provider opens at an
address of this host. ndinfo --hosts uses it. ndrelay --version prints the version.
See docs/hosts.md of softnd.
`

func main() {
	if len(os.Args) == 4 && os.Args[1] == "--check" {
		if err := check(os.Stdout, os.Args[2], os.Args[3]); err != nil {
			fmt.Fprintln(os.Stderr, "ndrelay:", err)
			os.Exit(1)
		}
		return
	}
	if len(os.Args) == 2 && os.Args[1] == "--version" {
		fmt.Println("ndrelay (softnd)", goruntime.BuildName())
		return
	}
	if len(os.Args) > 1 {
		fmt.Fprint(os.Stderr, usage)
		os.Exit(2)
	}
	signal.Ignore(syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGPIPE)
	d := newDaemon(os.Stdin, os.Stdout, os.Stderr)
	if err := d.run(os.NewFile(3, "arena"), 4); err != nil {
		d.fail(err)
		os.Exit(1)
	}
}
