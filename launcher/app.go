package launcher

import (
	"os"
	"path/filepath"
	"slices"
	"time"
)

// App is a program of a job and the number of ranks that run it.
type App struct {
	Ranks int // 1 or more

	// Path is the executable. It is not looked up in PATH. A relative path starts at Dir. If
	// Program is set, the executable is this open file, which need not have a name. Args are its
	// arguments from argv[0] on. Messages show the base name of argv[0].
	Path    string
	Program *os.File
	Args    []string

	Dir string   // working directory of the ranks; "" means that of the caller
	Env []string // "name=value"; a later entry overrides an earlier one

	// After is the time from the start of the rank before these ranks to their own start.
	// Listeners is a number of ranks directly before them. They start when each of those, or a
	// process that it has started, listens for connections, or has ended. Both fields are 0 in
	// the first App.
	After     time.Duration
	Listeners int
}

// ranks returns the number of ranks of the job.
func (cfg *Config) ranks() int {
	n := 0
	for _, a := range cfg.Apps {
		n += a.Ranks
	}
	return n
}

// app returns the program that rank runs.
func (cfg *Config) app(rank int) *App {
	return appOf(cfg.Apps, func(a *App) int { return a.Ranks }, rank)
}

// appOf returns the program that rank runs.
func appOf[A any](apps []A, ranks func(*A) int, rank int) *A {
	for i := range apps {
		if n := ranks(&apps[i]); rank >= n {
			rank -= n
			continue
		}
		return &apps[i]
	}
	panic("launcher: rank is beyond the last program")
}

// names returns the program name of each rank for messages.
func (cfg *Config) names() []string {
	var names []string
	for _, a := range cfg.Apps {
		for range a.Ranks {
			names = append(names, filepath.Base(a.Args[0]))
		}
	}
	return names
}

// programs returns the open files that are programs, each once, in the order in which they are
// sent to the supervisor.
func (cfg *Config) programs() []*os.File {
	var files []*os.File
	for _, a := range cfg.Apps {
		if a.Program != nil && !slices.Contains(files, a.Program) {
			files = append(files, a.Program)
		}
	}
	return files
}

// appSpec is an [App] as it is sent to the supervisor.
type appSpec struct {
	Ranks   int
	Path    string // unused if Program is set
	Program int    // 1-based index into jobSpec.programs; 0 means that the program is Path
	Args    []string
	Dir     string
	Env     []string

	After     time.Duration
	Listeners int
}

func (cfg *Config) appSpecs(programs []*os.File) []appSpec {
	var specs []appSpec
	for _, a := range cfg.Apps {
		specs = append(specs, appSpec{a.Ranks, a.Path, slices.Index(programs, a.Program) + 1, a.Args, a.Dir, a.Env, a.After, a.Listeners})
	}
	return specs
}

// app returns the program that rank runs.
func (j *jobSpec) app(rank int) *appSpec {
	return appOf(j.Apps, func(a *appSpec) int { return a.Ranks }, rank)
}
