// Command ndinfo checks whether softnd jobs start on this machine. It checks each feature of the
// machine that softnd needs or can use, and prints the limits of the adapter.
//
//	ndinfo            one line for each check: ok, warn or fail, with a remedy
//	ndinfo --json     the same as one JSON object
//	ndinfo --hosts    why a job over several hosts does not start
//	ndinfo --verbs    which libraries and fabric programs that use verbs find
//	ndinfo hang NAME  why the job hangs whose ranks called softnd.Join with NAME
//
// The last check of ndinfo runs a job of two ranks, as ndrun -n 2 does. The exit status is 0 if no check
// failed, 1 if a check failed, and 2 for wrong arguments. The exit status of ndinfo hang is 0 if it
// prints a report, 1 if there is no such job, and 2 for wrong arguments.
//
// # Several hosts
//
// Start ndinfo --hosts as the program of the job, with the same launcher or the same SOFTND_ROOT:
//
//	mpiexec.hydra -hosts node1,node2 -ppn 1 -n 2 ndinfo --hosts
//
// Its ranks meet as those of softnd.Init do. The first rank of each host checks its host, and the pairs with all other
// hosts. If nothing has failed, the hosts' relays are started and connected. Rank 0 prints the lines of all hosts. A
// rank that cannot meet the others prints what it has found at its own host. Without a launcher, ndinfo --hosts checks
// this host alone.
//
//	meeting   the ranks meet
//	name      SOFTND_ROOT, the host's own name and those of the other hosts resolve
//	secret    SOFTND_SECRET_FILE is usable, and other users cannot access it
//	address   the address at which other hosts reach this one, and its origin
//	port      TCP ports can be opened at the address, and connections from each other host arrive
//	ndrelay   the program is installed, and of this version
//	provider  libfabric's provider opens at the address
//	route     the local address towards another host is that which the other hosts know
//	clock     the difference of two hosts' clocks; a job does not need equal ones
//	versions  softnd, ndrelay, libfabric, provider and architecture are the same at two hosts
//	link      the relays connect, and frames pass
//
// The exit status of rank 0 is 1 if a check failed. With SOFTND_ROOT, so is that of the first rank of each other host.
// --timeout limits the time for all of it; the default is a minute.
//
// With --json, the object has
//
//	starts    true if no check failed
//	hosts     a list of objects with name, address, and versions of each host
//	checks    a list as below, whose objects also have
//	  host    the host that made the check
//	  peer    the other host of a pair; absent otherwise
//
// # Verbs
//
// ndinfo --verbs makes checks for programs that use libibverbs (docs/verbs.md), and prints them as above, also with --json.
//
//	libraries    softnd's libibverbs, librdmacm and the preloaded library are there
//	libmlx5      that of the system loads over them, if it is installed; libefa likewise
//	unsupported  calls that are not built
//	fabric       which fabric a program joins, and whether processes are in it
//
// # The JSON object
//
//	starts      true if a job of that many ranks starts here: no check failed
//	ranks       2, the number of ranks of the job that was tried
//	checks      a list, in the order of the lines, of objects with
//	  name      the feature or limit that was checked
//	  status    "ok", "warn" (jobs start, but something is slow, small or missing) or "fail"
//	  found     the state of the feature, as text
//	  remedy    how to improve it, as text; absent if there is nothing to do
//	adapters    a list, empty if no adapter could be opened, of objects with
//	  id        the adapter's id: "0x" and 16 hexadecimal digits
//	  addresses a list of IP addresses
//	  vendor    vendor id, as "0x0000"
//	  device    device id, as "0x0000"
//	  flags     a list of the names of nd.AdapterFlags
//	  limits    an object: each Max and Threshold field of nd.AdapterInfo as a number, under its
//	            name in lower case with underscores, as max_read_sge
//
// Later versions keep the names of checks and keys, and may add new ones. Texts may change.
package main

import (
	"flag"
	"fmt"
	"io"
	"os"

	"github.com/softnd/softnd/internal/goruntime"
	"github.com/softnd/softnd/launcher"
)

func main() {
	serveChild()
	os.Exit(run(os.Args[1:], os.Stdout, os.Stderr))
}

// serveChild runs this process as a helper or a rank of the trial job if it was started as one.
func serveChild() {
	launcher.Serve()
	if os.Args[0] == rankName {
		os.Exit(runRank())
	}
}

// run is main with its arguments and output as parameters. It returns the exit status.
func run(args []string, stdout, stderr io.Writer) int {
	flags := flag.NewFlagSet("ndinfo", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	hang := len(args) > 0 && args[0] == "hang"
	asJSON, hosts, verbs, version, timeout := false, false, false, false, hostsTimeout
	if hang {
		args = args[1:]
	} else {
		flags.BoolVar(&asJSON, "json", false, "print one JSON object instead of lines")
		flags.BoolVar(&version, "version", false, "print the version")
		flags.BoolVar(&hosts, "hosts", false, "check a job over several hosts, as whose program ndinfo was started, or this host alone")
		flags.BoolVar(&verbs, "verbs", false, "check what programs that use verbs find: libraries, fabric, and calls that are not built")
		flags.DurationVar(&timeout, "timeout", hostsTimeout, "how long --hosts waits for the other hosts")
	}
	flags.Usage = func() {}
	usage := func() {
		fmt.Fprintln(stderr, "usage: ndinfo [--json]\n       ndinfo --hosts [--timeout D] [--json]\n       ndinfo --verbs [--json]\n       ndinfo hang NAME\n       ndinfo --version\n\nChecks whether softnd jobs start on this machine, or over several hosts, or reports why the job\nhangs whose ranks called softnd.Join with NAME. For several hosts, start it as the program of the job:\n    mpiexec.hydra -hosts node1,node2 -ppn 1 -n 2 ndinfo --hosts")
		flags.SetOutput(stderr)
		flags.PrintDefaults()
	}
	if err := flags.Parse(args); err != nil {
		if err == flag.ErrHelp {
			usage()
			return 0
		}
		fmt.Fprintf(stderr, "ndinfo: %v: ndinfo -h lists the options\n", err)
		return 2
	}
	if hang {
		return printHangReport(flags.Args(), stdout, stderr)
	}
	if flags.NArg() > 0 {
		fmt.Fprintf(stderr, "ndinfo: unexpected argument %q: want --json, --hosts, --verbs, --version, or hang NAME\n", flags.Arg(0))
		return 2
	}
	if version {
		fmt.Fprintln(stdout, "ndinfo (softnd)", goruntime.BuildName())
		return 0
	}
	if hosts {
		return runHosts(timeout, asJSON, stdout, stderr)
	}
	if verbs {
		return runVerbs(asJSON, stdout, stderr)
	}
	r := runChecks()
	write := r.print
	if asJSON {
		write = r.printJSON
	}
	if err := write(stdout); err != nil {
		fmt.Fprintln(stderr, "ndinfo: write the report:", err)
		return 1
	}
	if !r.Starts {
		return 1
	}
	return 0
}
