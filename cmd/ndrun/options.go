package main

import (
	"strings"
	"time"

	"github.com/softnd/softnd/cmd/internal/verbs"
	"github.com/softnd/softnd/nd/ndcheck"
)

// option is a row of the table from which the command line parser, the help, the manual page and
// the completion scripts are made.
//
// Option libraries do not read mpiexec's command line, so ndrun has a parser of its own. In that
// command line, long names have one dash, which pflag takes for several short options. Options
// belong to the program between two colons, and some take two words.
type option struct {
	names   string // with dashes, as help shows them; one or two dashes are equivalent
	value   string // placeholder in the help; "" for a switch; two words also accept NAME=VALUE
	help    string
	set     func(c *command, value string) error
	choices string // values for completion; a switch with choices also accepts one of them behind "="
}

// section is a group of options in the help.
type section struct {
	title   string
	perApp  bool // its options belong to the next program
	options []option
}

var sections []section

func init() { // not at the declaration: printHelp, which it refers to, reads it
	sections = []section{
		{"Options of each program:", true, []option{
			{"-n, -np", "N", "number of ranks of the program, 1 to 1024 (default 1)", setRanks, ""},
			{"-wdir, -wd", "DIR", "working directory of its ranks (default: the current directory)", setDir, ""},
			{"-env", "NAME VALUE", "set an environment variable of its ranks; also NAME=VALUE", setEnv, ""},
			{"-x", "NAME[=VALUE]", "same as -env; NAME alone exports ndrun's value (the default anyway)", setExport, ""},
			{"--after", "WHEN", "delay, such as 1s, or listen: start once the program before it listens", setAfter, "listen"},
		}},
		{"Options of the job:", false, []option{
			{"-configfile", "FILE", "read the programs from FILE, one per line with its options", setConfigFile, ""},
			{"-genv", "NAME VALUE", "set an environment variable of all ranks; also NAME=VALUE", setGlobalEnv, ""},
			{"-host, -hosts", "LIST", "hosts to run on; only the local host is accepted", setHosts, "localhost"},
			{"--timeout", "D", "stop the job after D, such as 90 (seconds) or 1m30s, with status 124", setTimeout, ""},
			{"--on-death", "WHAT", "continue: the other ranks go on after one has failed, as with srun -K0", setOnDeath, "stop continue"},
			{"--hang-after", "D", "report the cause if no rank makes progress for D; the job keeps running", setHangAfter, ""},
			{"--grace", "D", "time from SIGTERM to SIGKILL (default 250ms; 5s after a signal to ndrun)", setGrace, ""},
			{"--arena-size", "SIZE", "limit of the ranks' shared memory, such as 512M (default: the machine's)", setArenaSize, ""},
			{"--faults", "FILE", "make the job fail on purpose, as FILE says (see docs/faults.md)", setFaults, ""},
			{"--faults-seed", "N", "seed of the random faults (default: that of FILE, or a random one)", setFaultsSeed, ""},
			{"--weak-order", "SEED", "delay and reorder requests as hardware may; SEED is a number, or random", setWeakOrder, "random"},
			{"--integrity", "", "check the bytes of each transfer (see docs/integrity.md)", setIntegrity, ""},
			{"--bind-to", "WHERE", "none (default), core, socket, or list:CPUS such as list:0,2-3", setBinding, "none core socket list:"},
			{"--report-bindings", "", "report on which processors each rank may run", setReportBindings, ""},
			{"--verbs", "", "run programs for libibverbs and librdmacm (see docs/verbs.md)", setVerbs, "libs preload"},
			{"--dry-run", "", "print what would be started as each rank, and exit", setDryRun, ""},
		}},
		{"Output and input:", false, []option{
			{"--label", "", "prefix each line of output with its rank, as \"[2] \" (default)", setLabel, ""},
			{"--no-label", "", "do not prefix lines of output", setNoLabel, ""},
			{"--timestamps", "", "prefix each line of output with the time of its arrival", setTimestamps, ""},
			{"--json-lines", "", "write each line as a JSON object, both streams to standard output", setJSONLines, ""},
			{"--output", "DIR", "also copy the output of rank N to DIR/rank.N.out and DIR/rank.N.err", setOutputDir, ""},
			{"--stdin", "RANKS", "ranks that get standard input: a list, all or none (default 0)", setStdin, "all none"},
			{"--report", "FILE", "write a JSON report of each rank's end and resource usage", setReport, ""},
			{"--quiet", "", "do not report how the job ended; with --output, write to files only", setQuiet, ""},
		}},
		{"Debugging (RANKS is a list such as 0-3,5, or all):", false, []option{
			{"--wrap", "RANKS:COMMAND", "run these ranks under COMMAND, such as 'gdb --args'", addWrap, "all:"},
			{"--check", "", "report mistakes; status 4: an error, 5: unwatched ranks", setCheck, "json sarif partial FILE"},
			{"--check-ignore", "RULES", "with --check, do not report these rules, such as N303,N801", setCheckIgnore, ""},
			{"--stop-at-start", "RANKS", "stop these ranks before their first instruction, to attach a debugger", setStopped, "all"},
		}},
		{"Other options:", false, []option{
			{"--oversubscribe, --allow-run-as-root", "", "accepted for compatibility: both are allowed anyway", acceptSilently, ""},
			{"--completion", "SHELL", "print a completion script for bash, zsh or fish", printCompletion, "bash zsh fish"},
			{"--verbs-env", "", "print the variables of --verbs for a shell, and exit", printVerbsEnv, "libs preload"},
			{"--man", "", "print the manual page", printManual, ""},
			{"-V, --version", "", "print the version", printVersion, ""},
			{"-h, --help", "", "print this help", printHelp, ""},
		}},
	}
}

// command is a parsed command line.
type command struct {
	apps []*app
	env  []string // "name=value", for all ranks

	configFile string
	timeout    time.Duration // 0 means none
	hangAfter  time.Duration // 0 means never
	goOn       bool          // a rank that fails does not stop the others
	grace      time.Duration // 0 means the launcher's default
	arenaSize  uint64        // bytes; 0 means the default
	weakOrder  string        // seed, a decimal number; "" means none
	binding    binding
	wraps      []wrap
	stopped    rankSet
	output     outputOptions
	faults     faultOptions
	verbs      *verbs.Libraries // nil without --verbs

	reportBindings, dryRun bool

	watch        bool   // watch the ranks
	checkReport  string // the file of the findings, "" = none, "-" = standard output
	checkSARIF   bool
	checkPartial bool // ranks that are not watched are accepted
	checkIgnore  []*ndcheck.Rule
}

// app is a program with its options.
type app struct {
	ranks     int
	dir       string   // absolute, or "" for the current directory
	env       []string // "name=value"
	after     string   // the value of --after; "" if it starts with the program before it
	delay     time.Duration
	args      []string // the program and its arguments; not empty after readApp
	appOption string   // one of its options, for error messages
}

// size returns the number of ranks.
func (c *command) size() int {
	n := 0
	for _, p := range c.apps {
		n += p.ranks
	}
	return n
}

// app returns the program that is being parsed.
func (c *command) app() *app { return c.apps[len(c.apps)-1] }

// allNames returns the names of an option without dashes.
func (o *option) allNames() []string {
	var names []string
	for name := range strings.SplitSeq(o.names, ", ") {
		names = append(names, strings.TrimLeft(name, "-"))
	}
	return names
}
