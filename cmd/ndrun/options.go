package main

import (
	"strings"
	"time"
)

// option is one line of the table by which the command line is read, and from which
// help, manual page and completion are made.
//
// The table is our own because mpiexec's command line is not what the option libraries
// read: long names have one dash (pflag takes -np for -n -p), options hold for the part
// between two colons, and some take two words.
type option struct {
	names   string // with dashes, as help shows them; one dash and two are the same
	value   string // what follows, as help shows it; "" for a switch; two words: NAME=VALUE will do
	help    string
	set     func(c *command, value string) error
	choices string // some values, for completion
}

// section is what help shows under one title.
type section struct {
	title   string
	perPart bool // its options belong to the program behind them
	options []option
}

var sections []section

func init() { // not where it is declared: help, which an option shows, is made from it
	sections = []section{
		{"Options of each program:", true, []option{
			{"-n, -np", "N", "number of its ranks, 1 to 1024 (default 1)", setRanks, ""},
			{"-wdir, -wd", "DIR", "directory in which its ranks start (default: this one)", setDir, ""},
			{"-env", "NAME VALUE", "variable for its ranks, besides those of ndrun; also NAME=VALUE", setEnv, ""},
			{"-x", "NAME[=VALUE]", "the same; NAME alone stands for ndrun's own, which ranks have anyway", setExport, ""},
		}},
		{"Options of the job:", false, []option{
			{"-configfile", "FILE", "read the programs from FILE: one a line, with its options", setConfigFile, ""},
			{"-genv", "NAME VALUE", "variable for all ranks; also NAME=VALUE", setGlobalEnv, ""},
			{"-host, -hosts", "LIST", "this host, on which all ranks run; any other is refused", setHosts, "localhost"},
			{"--timeout", "D", "stop the job after D, such as 90 (seconds) or 1m30s, with status 124", setTimeout, ""},
			{"--hang-after", "D", "report the cause if no rank makes progress for D; the job keeps running", setHangAfter, ""},
			{"--grace", "D", "time to end before a kill (default 250ms; 5s after a signal to ndrun)", setGrace, ""},
			{"--arena-size", "SIZE", "most memory that ranks can share, such as 512M (default: the machine's)", setArenaSize, ""},
			{"--bind-to", "WHERE", "none (default), core, socket, or list:CPUS such as list:0,2-3", setBinding, "none core socket list:"},
			{"--report-bindings", "", "tell on which processors each rank may run", setReportBindings, ""},
			{"--dry-run", "", "print what would be started as each rank, and start nothing", setDryRun, ""},
		}},
		{"Output and input:", false, []option{
			{"--label", "", "begin each line with the rank that wrote it, as \"[2] \" (default)", setLabel, ""},
			{"--no-label", "", "pass on the ranks' bytes as they are", setNoLabel, ""},
			{"--timestamps", "", "begin each line with the time at which it came", setTimestamps, ""},
			{"--json-lines", "", "each line as a JSON object, of both streams on standard output", setJSONLines, ""},
			{"--output", "DIR", "also put each rank's bytes into DIR/rank.N.out and .err", setOutputDir, ""},
			{"--stdin", "RANKS", "who gets the standard input: a list, all or none (default 0)", setStdin, "all none"},
			{"--report", "FILE", "write how each rank ended and what it took, as JSON", setReport, ""},
			{"--quiet", "", "nothing about how the job went; with --output, output in files only", setQuiet, ""},
		}},
		{"Debugging (RANKS is a list such as 0-3,5, or all):", false, []option{
			{"--wrap", "RANKS:COMMAND", "start these ranks under COMMAND, such as 'gdb --args'", addWrap, "all:"},
			{"--stop-at-start", "RANKS", "stop these ranks before their first instruction, to attach a debugger", setStopped, "all"},
		}},
		{"Other options:", false, []option{
			{"--oversubscribe", "", "accepted: more ranks than processors are always welcome", setNothing, ""},
			{"--allow-run-as-root", "", "accepted: root needs no permission", setNothing, ""},
			{"--completion", "SHELL", "print a script that completes this command in bash, zsh or fish", showCompletion, "bash zsh fish"},
			{"--man", "", "print the manual page", showManual, ""},
			{"-h, --help", "", "print this", showHelp, ""},
		}},
	}
}

// command is what the command line says.
type command struct {
	parts []*part
	env   []string // "name=value", for all ranks

	configFile string
	timeout    time.Duration // 0: none
	hangAfter  time.Duration // 0: never
	grace      time.Duration // 0: as the launcher has it
	arenaSize  uint64        // bytes; 0: as the arena has it
	binding    binding
	wraps      []wrap
	stopped    rankSet
	output     outputOptions

	reportBindings, dryRun bool
}

// part is a program with the options of its own.
type part struct {
	ranks int
	dir   string   // absolute, or "" for the current one
	env   []string // "name=value"
	args  []string // the program and its arguments; never empty once it is read
	given string   // an option of its own that it was given
}

// size is the number of ranks.
func (c *command) size() int {
	n := 0
	for _, p := range c.parts {
		n += p.ranks
	}
	return n
}

// part is the part that is being read.
func (c *command) part() *part { return c.parts[len(c.parts)-1] }

// allNames lists the names of an option without their dashes.
func (o *option) allNames() []string {
	var names []string
	for name := range strings.SplitSeq(o.names, ", ") {
		names = append(names, strings.TrimLeft(name, "-"))
	}
	return names
}
