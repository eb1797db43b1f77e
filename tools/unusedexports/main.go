// Unusedexports checks the packages for people who extend softnd: shm, window, endpoint, launcher, bench and the packages below
// bench. It lists their exported identifiers that no other package uses, and exits with 1 if there are any.
//
//	go -C tools run ./unusedexports          lists them, one in a line
//	go -C tools run ./unusedexports -count   counts the exported identifiers of each package
//
// With -max N, it also exits with 1 if there are more than N exported identifiers.
//
// An identifier is used if another package or its tests mention it. These count as used, too:
//
//   - methods with which a type implements an interface of another package, or a used interface of its own
//   - types in the signature of a used identifier
//   - methods of a used interface
//   - fields with a tag
//
// The count is that of top-level identifiers and of exported methods of exported types, without fields.
package main

import (
	"flag"
	"fmt"
	"io"
	"os"
)

func main() {
	count := flag.Bool("count", false, "count the exported identifiers of each package")
	limit := flag.Int("max", 0, "fail if there are more exported identifiers than this; 0 means no limit")
	flag.Parse()
	unused, err := run(os.Stdout, "..", *count, *limit)
	if err != nil {
		fmt.Fprintln(os.Stderr, "unusedexports:", err)
		os.Exit(1)
	}
	if unused > 0 {
		os.Exit(1)
	}
}

// run writes the list or the counts of the module in dir, and returns the number of unused identifiers in the list. It
// returns an error if there are more than limit exported identifiers; 0 means no limit.
func run(out io.Writer, dir string, count bool, limit int) (unused int, err error) {
	m, err := load(dir)
	if err != nil {
		return 0, err
	}
	if have := m.count(); limit > 0 && have > limit {
		err = fmt.Errorf("%d exported identifiers: want at most %d: unexport some", have, limit)
	}
	if count {
		m.printCounts(out)
		return 0, err
	}
	m.findUses()
	for _, d := range m.decls {
		if !d.isUsed {
			fmt.Fprintf(out, "%s: %s: no other package uses it: unexport or delete it\n", m.place(d.obj), d.name)
			unused++
		}
	}
	return unused, err
}
