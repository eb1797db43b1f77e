// Command ndinfo tells whether softnd jobs start on this machine, and what they find there: the
// adapter with its limits, and each thing of the machine that softnd needs or can use.
//
//	ndinfo          one line for each: ok, warn or fail, with a remedy where there is one
//	ndinfo --json   the same as one JSON object
//	ndinfo hang N   why the job hangs whose ranks have met under the name N (softnd.Join)
//
// ndinfo starts a job of two ranks through the launcher, as ndrun -n 2 does. It exits with 0 if
// no check failed, that of the job among them, with 1 if one failed, and with 2 for wrong
// arguments. ndinfo hang exits with 0 if it has a report, with 1 if it finds no such job, and with
// 2 for wrong arguments.
//
// # The JSON object
//
//	starts      true if a job of that many ranks starts here: no check failed
//	ranks       2, the number of ranks of the job that was tried
//	checks      a list, in the order of the lines, of objects with
//	  name      what was looked at
//	  status    "ok", "warn" (jobs start, but something is slow, small or missing) or "fail"
//	  found     what is there, in words
//	  remedy    what to do about it, in words; left out where there is nothing to do
//	adapters    a list, empty if none could be opened, of objects with
//	  id        the adapter's id: "0x" and 16 hexadecimal digits
//	  addresses a list of IP addresses
//	  version   version of the adapter's information, as "0x20000"
//	  vendor    vendor id, as "0x0000"
//	  device    device id, as "0x0000"
//	  flags     a list of the names of nd.AdapterFlags
//	  limits    an object: each Max and Threshold field of nd.AdapterInfo as a number, under its
//	            name in lower case with underscores, as max_read_sge
//
// Names of checks and keys stay as they are; new ones may come. Words may change.
package main

import (
	"flag"
	"fmt"
	"io"
	"os"

	"github.com/softnd/softnd/launcher"
)

func main() {
	play()
	os.Exit(run(os.Args[1:], os.Stdout, os.Stderr))
}

// play turns this process into what the trial job needs if it was started for that.
func play() {
	launcher.Serve()
	if os.Args[0] == rankName {
		os.Exit(playRank())
	}
}

// run is main with everything that it touches as arguments; it returns the exit status.
func run(args []string, stdout, stderr io.Writer) int {
	flags := flag.NewFlagSet("ndinfo", flag.ContinueOnError)
	flags.SetOutput(stderr)
	hang := len(args) > 0 && args[0] == "hang"
	asJSON := false
	if hang {
		args = args[1:]
	} else {
		flags.BoolVar(&asJSON, "json", false, "print one JSON object instead of lines")
	}
	flags.Usage = func() {
		fmt.Fprintln(stderr, "usage: ndinfo [--json]\n       ndinfo hang NAME\n\nChecks whether softnd jobs start on this machine, or reports why the job of that name (softnd.Join) hangs.")
		flags.PrintDefaults()
	}
	if err := flags.Parse(args); err != nil {
		if err == flag.ErrHelp {
			return 0
		}
		return 2
	}
	if hang {
		return tellHang(flags.Args(), stdout, stderr)
	}
	if flags.NArg() > 0 {
		fmt.Fprintf(stderr, "ndinfo: unexpected argument %q; ndinfo takes only --json, or hang NAME\n", flags.Arg(0))
		return 2
	}
	r := survey()
	write := r.print
	if asJSON {
		write = r.printJSON
	}
	if err := write(stdout); err != nil {
		fmt.Fprintln(stderr, "ndinfo: writing the report:", err)
		return 1
	}
	if !r.Starts {
		return 1
	}
	return 0
}
