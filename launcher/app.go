package launcher

import (
	"os"
	"path/filepath"
	"slices"
)

// Part is a program and the ranks that run it.
type Part struct {
	Ranks int // from 1

	// The program is Path, not looked up, relative to Dir unless it is absolute; or
	// Program, an open file that need not have a name any more. Args holds its
	// arguments from argv[0] on; the base name of argv[0] stands in messages.
	Path    string
	Program *os.File
	Args    []string

	Dir string   // where the ranks start; "" is the caller's directory
	Env []string // "name=value"; a later entry beats an earlier one
}

// ranks is the number of ranks of the job.
func (cfg *Config) ranks() int {
	n := 0
	for _, p := range cfg.Parts {
		n += p.Ranks
	}
	return n
}

// part is the part to which rank belongs.
func (cfg *Config) part(rank int) *Part {
	return partOf(cfg.Parts, func(p *Part) int { return p.Ranks }, rank)
}

// partOf finds the part to which rank belongs.
func partOf[P any](parts []P, ranks func(*P) int, rank int) *P {
	for i := range parts {
		if n := ranks(&parts[i]); rank >= n {
			rank -= n
			continue
		}
		return &parts[i]
	}
	panic("launcher: a rank beyond the last part")
}

// names gives the name of each rank's program for messages.
func (cfg *Config) names() []string {
	var names []string
	for _, p := range cfg.Parts {
		for range p.Ranks {
			names = append(names, filepath.Base(p.Args[0]))
		}
	}
	return names
}

// programs lists the open files that are programs, each once, in the order in which
// the keeper gets them.
func (cfg *Config) programs() []*os.File {
	var files []*os.File
	for _, p := range cfg.Parts {
		if p.Program != nil && !slices.Contains(files, p.Program) {
			files = append(files, p.Program)
		}
	}
	return files
}

// jobPart is a Part as the keeper knows it.
type jobPart struct {
	Ranks   int
	Path    string // unused if Program is set
	Program int    // the how manieth of the job's programs; 0: the program is Path
	Args    []string
	Dir     string
	Env     []string
}

// jobParts are the parts for the keeper.
func (cfg *Config) jobParts(programs []*os.File) []jobPart {
	var parts []jobPart
	for _, p := range cfg.Parts {
		parts = append(parts, jobPart{p.Ranks, p.Path, slices.Index(programs, p.Program) + 1, p.Args, p.Dir, p.Env})
	}
	return parts
}

// part is the part to which rank belongs.
func (j *job) part(rank int) *jobPart {
	return partOf(j.Parts, func(p *jobPart) int { return p.Ranks }, rank)
}
