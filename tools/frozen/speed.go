package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/softnd/softnd/bench/report"
)

// build is what measures one of the trees.
type build struct {
	ndbench, perf string // programs; perf is that of ranks in C, "" if it is not built
	report        *report.Report
}

// compareSpeed measures the tests, one repeat in each round, with ndbench of both trees. Each round has the other order.
func compareSpeed(out io.Writer, tree, base string, rounds int, lang string, tests []string) error {
	if len(tests) == 0 {
		tests = []string{"posted -s 8", "send_lat -s 8"}
	}
	work, err := os.MkdirTemp("", "frozen-speed-*")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	var both [2]build
	for i, dir := range []string{base, tree} {
		both[i], err = makeBuild(dir, filepath.Join(work, fmt.Sprint(i)), strings.Contains(lang, "c"))
		if err != nil {
			return err
		}
	}
	for round := range rounds {
		for _, test := range tests {
			for i := range both {
				b := &both[(i+round)%2]
				if err := b.measure(filepath.Join(work, "report"), test, lang); err != nil {
					return err
				}
			}
		}
	}
	if _, err := report.Compare(out, both[0].report, both[1].report); err != nil {
		return err
	}
	fmt.Fprintln(out, "\nnew ÷ old by round    median  quartiles")
	for i, was := range both[0].report.Results {
		is := both[1].report.Results[i]
		name := fmt.Sprintf("%s %s %d B", is.Test, is.Words(), is.Size)
		fmt.Fprintf(out, "%-20s  %s\n", name, quartiles(quotients(&was, &is)))
	}
	return nil
}

// quotients returns new ÷ old for each round, with less for better. It compares ratios to the limit, if there is one.
func quotients(old, new *report.Result) (list []float64) {
	a, b := old.Repeats, new.Repeats
	if old.Limit != nil && new.Limit != nil {
		a, b = old.Limit.Ratios, new.Limit.Ratios
	}
	if new.Better == "more" {
		a, b = b, a
	}
	for i := range min(len(a), len(b)) {
		list = append(list, b[i]/a[i])
	}
	return list
}

func quartiles(list []float64) string {
	slices.Sort(list)
	at := func(part float64) float64 { return list[int(part*float64(len(list)-1)+0.5)] }
	return fmt.Sprintf("%8.3f  %.3f to %.3f", at(0.5), at(0.25), at(0.75))
}

func makeBuild(dir, to string, hasC bool) (b build, err error) {
	b.ndbench = filepath.Join(to, "ndbench")
	if err := command(dir, "go", "build", "-buildvcs=false", "-o", b.ndbench, "./cmd/ndbench"); err != nil || !hasC {
		return b, err
	}
	b.perf = filepath.Join(to, "c/bench/softnd_perf")
	if err := command(dir, "cmake", "-S", "c", "-B", filepath.Join(to, "c"), "-DSOFTND_TESTS=OFF"); err != nil {
		return b, err
	}
	return b, command(dir, "cmake", "--build", filepath.Join(to, "c"), "--parallel")
}

// measure makes one repeat of a test, and adds it to the report.
func (b *build) measure(file, test, lang string) error {
	args := append(strings.Fields(test), "--repeats", "1", "--quiet", "--json", file)
	if b.perf != "" {
		args = append(args, "--lang", lang, "--perf", b.perf)
	}
	if err := command(".", b.ndbench, args...); err != nil {
		return err
	}
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer f.Close()
	r, err := report.ReadJSON(f)
	if err != nil {
		return err
	}
	if b.report == nil {
		b.report = r
	} else {
		b.report.Results = report.Pool(b.report.Results, r.Results)
	}
	return nil
}
