package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/pflag"

	"github.com/softnd/softnd"
	"github.com/softnd/softnd/bench"
	"github.com/softnd/softnd/bench/measure"
	"github.com/softnd/softnd/bench/report"
	"github.com/softnd/softnd/internal/linux"
	"github.com/softnd/softnd/shm"
)

// languages are the values of --lang. A pair is the language of rank 0 and that of rank 1.
var languages = []string{"go", "c", "go-c", "c-go"}

const (
	perfName = "softnd_perf" // the program of ranks in C
	perfEnv  = "SOFTND_PERF"
	perfHelp = "build it with \"cmake -S c -B build && cmake --build build\", and give its path, build/bench/" + perfName +
		", to --perf or $" + perfEnv
)

// helped reports for each rank whether it is in C.
func helped(lang string) [2]bool {
	return [2]bool{strings.HasPrefix(lang, "c"), strings.HasSuffix(lang, "c")}
}

// providerOf returns the name of softnd with ranks in these languages, for reports.
func providerOf(lang string) string {
	if lang == "go" {
		return "softnd"
	}
	return "softnd-" + lang
}

// findPerf returns the path of the program of ranks in C. given is that of the command line, or "".
func findPerf(given string) (string, error) {
	if given == "" {
		given = os.Getenv(perfEnv)
	}
	if given == "" {
		given = perfName
	}
	path, err := exec.LookPath(given)
	if err != nil {
		return "", fmt.Errorf("ranks in C: %w: %s", err, perfHelp)
	}
	return path, nil
}

// languageOptions are the options of tests and of "ndbench peers" for ranks in C.
type languageOptions struct {
	lang  string // a list with commas
	langs []string
	perf  string // of the command line, and then the path of the program
}

func (o *languageOptions) addFlags(f *pflag.FlagSet, byDefault, remark string) {
	f.StringVarP(&o.lang, "lang", "l", byDefault, "languages of the ranks: "+strings.Join(languages, ", ")+" (rank 0 first), or a list"+remark)
	f.StringVar(&o.perf, "perf", "", "the program of ranks in C (default $"+perfEnv+" or "+perfName+" in $PATH)")
}

// check returns an error if the languages are unknown, or their program is missing.
func (o *languageOptions) check() (err error) {
	o.langs = strings.Split(o.lang, ",")
	for i, lang := range o.langs {
		if !slices.Contains(languages, lang) {
			return fmt.Errorf("--lang %s: unknown: want some of %s", lang, strings.Join(languages, ", "))
		}
		if slices.Contains(o.langs[:i], lang) {
			return fmt.Errorf("--lang %s: given twice: omit one", lang)
		}
	}
	if !slices.ContainsFunc(o.langs, func(lang string) bool { return lang != "go" }) {
		return nil
	}
	o.perf, err = findPerf(o.perf)
	return err
}

// checkLanguages returns an error if the test does not support the languages.
func (o *options) checkLanguages(t measure.Test) error {
	if slices.Equal(o.langs, []string{"go"}) {
		return nil
	}
	if inJob() || o.server != "" || o.client != "" {
		return fmt.Errorf("--lang %s: the ranks exist already: start it without a launcher, --server and --client", strings.Join(o.langs, ","))
	}
	for _, lang := range o.langs {
		if err := t.Check(o.Options, helped(lang)); err != nil {
			return err
		}
	}
	return nil
}

// measureInTurn measures a test with several languages in rounds. Each round has one repeat of each language, in
// processes of its own, so all are measured under the same conditions.
func (o *options) measureInTurn(ctx context.Context, t measure.Test, stdout io.Writer) error {
	var results []report.Result
	for range o.Repeats {
		for _, lang := range o.langs {
			args := append(slices.Clone(os.Args[1:]), "--lang="+lang, "--repeats=1", "--json=-", "--csv=", "--plot=", "--compare=")
			if o.plot != "" && len(o.sizes) == 0 {
				args = append(args, "--all-sizes")
			}
			found, err := runSelf(ctx, args)
			if err != nil {
				return fmt.Errorf("%s with --lang %s: %w", t.Name, lang, err)
			}
			results = report.Pool(results, found)
		}
	}
	return o.emit(sideBySide(results), stdout)
}

// sideBySide orders results so that those of the same test and settings follow each other.
func sideBySide(results []report.Result) []report.Result {
	type kind struct {
		test     string
		settings report.Settings
	}
	kindOf := func(r report.Result) kind {
		k := kind{r.Test, r.Settings}
		k.settings.Iterations = 0
		return k
	}
	order := map[kind]int{}
	for _, r := range results {
		if k := kindOf(r); order[k] == 0 {
			order[k] = len(order) + 1
		}
	}
	slices.SortStableFunc(results, func(a, b report.Result) int { return order[kindOf(a)] - order[kindOf(b)] })
	return results
}

// startHelped creates an arena and starts the ranks in C. If the other rank is in Go, this process becomes it.
func (o *options) startHelped(ctx context.Context, lang string) (*session, error) {
	os.Setenv(softnd.EnvExec, o.executor)
	o.Pinned = o.pinned(2)
	s := new(session)
	arena, err := shm.Create(shm.Config{Ranks: 2})
	if err != nil {
		return nil, err
	}
	defer arena.Close()
	line, err := bench.NewLineFile()
	if err != nil {
		return nil, err
	}
	defer line.Close()
	cores, err := linux.CPUs()
	if err != nil {
		return nil, err
	}
	var helpers [2]io.ReadWriter
	for rank, inC := range helped(lang) {
		if !inC {
			continue
		}
		core := "-"
		if o.Pinned {
			core = strconv.Itoa(cores[rank%len(cores)])
		}
		cmd := exec.Command(o.languageOptions.perf, core, strconv.Itoa(firstExtra+1))
		in, err := cmd.StdinPipe()
		if err != nil {
			return nil, err
		}
		out, err := cmd.StdoutPipe()
		if err != nil {
			return nil, err
		}
		if err := s.startRank(cmd, arena, rank, 2, line); err != nil {
			return nil, err
		}
		helpers[rank] = struct {
			io.Reader
			io.Writer
		}{out, in}
		s.leave = append(s.leave, in.Close)
	}
	for rank, inC := range helped(lang) {
		if inC {
			continue
		}
		if s.job, err = becomeRank(ctx, arena, rank, 2); err != nil {
			return nil, err
		}
	}
	s.world, err = measure.NewWorld(ctx, s.job, o.Pinned, helpers, line)
	return s, err
}

// runHelped runs one test with ranks in C, and returns its results.
func (o *options) runHelped(ctx context.Context, t measure.Test, lang string) ([]report.Result, error) {
	s, err := o.startHelped(ctx, lang)
	if err != nil {
		return nil, fmt.Errorf("%s: start: %w", t.Name, err)
	}
	results, err := t.Run(ctx, s.world, o.Options)
	if err != nil {
		return nil, err
	}
	if err := s.end(ctx); err != nil {
		return nil, fmt.Errorf("%s: end: %w", t.Name, err)
	}
	for i := range results {
		results[i].Provider = providerOf(lang)
	}
	return results, nil
}
