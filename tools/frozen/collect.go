package main

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/cespare/xxhash/v2"
)

// public are the packages for users.
var public = []string{".", "nd", "nd/ndcheck", "nd/ndtest", "nd/ndcompat", "faults", "softndtest", "softndvar"}

// extensions are the packages for people who extend softnd, whose exported identifiers are counted.
var extensions = []string{"shm", "window", "endpoint", "launcher", "bench"}

// collect returns the facts of the tree in dir.
func collect(dir string) ([]fact, error) {
	all, lines := make(facts), make(map[string]int)
	sources := newSources()
	err := filepath.WalkDir(dir, func(file string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, _ := filepath.Rel(dir, file)
		if d.IsDir() {
			if strings.HasPrefix(d.Name(), ".") && name != "." {
				return fs.SkipDir
			}
			if path.Dir(name) == "internal" {
				lines["folders in internal/"]++
			}
			return nil
		}
		text, err := os.ReadFile(file)
		if err != nil || bytes.IndexByte(text, 0) >= 0 {
			return err
		}
		count(lines, name, text)
		all.labels(name, text)
		all.page(name, string(text))
		return sources.read(name, text)
	})
	if err != nil {
		return nil, err
	}
	sources.facts(all)
	for _, d := range extensions {
		lines["exported identifiers"] += sources.exportedBelow(d)
	}
	for name, n := range lines {
		all.add(sizes, name, fmt.Sprint(n))
	}
	if err := all.api(dir, sources); err != nil {
		return nil, err
	}
	if err := all.cTests(dir); err != nil {
		return nil, err
	}
	return all.sorted(), nil
}

// count adds the lines of a file to the sizes.
func count(lines map[string]int, name string, text []byte) {
	n := bytes.Count(text, []byte("\n"))
	top, _, hasFolder := strings.Cut(name, "/")
	switch ext := path.Ext(name); {
	case strings.HasSuffix(name, "_test.go"):
		lines["lines: Go, tests"] += n
		lines["longest test file"] = max(lines["longest test file"], n)
	case ext == ".go":
		lines["lines: Go, product"] += n
		if !hasFolder {
			top = "root"
		}
		if strings.HasPrefix(name, "nd/ndtest/") || strings.HasPrefix(name, "nd/ndcheck/") || top == "cmd" {
			top = path.Join(strings.Split(name, "/")[:2]...)
		}
		lines["lines: Go, product, "+top] += n
	case ext == ".c" || ext == ".h" || ext == ".hpp" || ext == ".cpp" || ext == ".f90":
		lines["lines: C"] += n
		if strings.HasPrefix(name, "c/src/") {
			lines["lines: C, src"] += n
		}
	case ext == ".md":
		lines["words of pages"] += len(bytes.Fields(text))
	}
	if !hasFolder && strings.HasSuffix(name, ".go") {
		lines["Go files in the root"]++
	}
}

var order = regexp.MustCompile(`[^"]ORDER ([a-z][a-z-]*(?:, [a-z][a-z-]*)*)`)

// labels adds both ends of each label in a source.
func (all facts) labels(name string, text []byte) {
	kind := ""
	switch {
	case strings.HasPrefix(name, "c/src/"):
		kind = "order in C"
	case path.Ext(name) == ".go" && !strings.HasSuffix(name, "_test.go") && !strings.HasPrefix(name, "tools/"):
		kind = "order in Go"
	default:
		return
	}
	for _, m := range order.FindAllSubmatch(text, -1) {
		for label := range strings.SplitSeq(string(m[1]), ", ") {
			all.add(kind, label, "", name)
		}
	}
}

var (
	row      = regexp.MustCompile(`(?m)^(?:\| )?([CRX]\d{3}) (?:\| (?:.* \| )?)?((?:passed|skipped|failed|no test)[^|;\n]*)`)
	rowText  = regexp.MustCompile(`(?m)^([CRX]\d{3}) (.*)$`)
	pairing  = regexp.MustCompile(`(?m)^(?:\| |- )(\S+/(?:goroutines|processes|threads))(.*)$`)
	modelRun = regexp.MustCompile(`^(.*?) *\| *([a-z].*?) *\| *(.*?) *\| *(.*)$`)
)

// page adds the layout hash, the rows of conformance with their results, and the runs of the models.
func (all facts) page(name, text string) {
	switch name {
	case "internal/layout/LAYOUT.txt":
		all.add("layout", "hash", fmt.Sprintf("%016x", xxhash.Sum64String(text)))
	case "docs/conformance.md", "docs/conformance-c.md":
		kind := strings.TrimSuffix(path.Base(name), ".md")
		for _, m := range pairing.FindAllStringSubmatch(text, -1) {
			all.add(kind, m[1], strings.TrimSpace(m[2]))
		}
		for _, m := range row.FindAllStringSubmatch(text, -1) {
			all.add(kind, m[1], strings.TrimSpace(m[2])) // without the runs that skip the row
		}
	case "nd/ndtest/ROWS.txt":
		for _, m := range rowText.FindAllStringSubmatch(text, -1) {
			all.add("conformance row", m[1], m[2])
		}
	case "docs/model/check.sh":
		_, table, _ := strings.Cut(text, "<<END\n")
		table, _, _ = strings.Cut(table, "\nEND\n")
		model, runs := "", make(map[string]int)
		for line := range strings.Lines(table) {
			if line = strings.TrimSpace(line); strings.HasSuffix(line, ".pml") {
				model = line
			} else if m := modelRun.FindStringSubmatch(line); m != nil {
				all.add("model", model+": "+m[1], strings.Join(m[2:], " | "))
				runs[model]++
			}
		}
		for model, n := range runs {
			all.add("model", model, fmt.Sprintf("%d runs", n))
		}
	}
}

// api adds a hash of the documentation of each public package, and its exported names.
func (all facts) api(dir string, s *sources) error {
	for _, p := range public {
		text, err := output(dir, "go", "doc", "-all", "./"+p)
		if err != nil {
			return err
		}
		all.add("documentation", p, fmt.Sprintf("%x", sha256.Sum256([]byte(text)))[:16])
		for _, name := range s.exported(p, true) {
			all.add("exported", p+"."+name, "")
		}
	}
	return nil
}

var ctest = regexp.MustCompile(`(?m)^ *Test +#\d+: (.*)$`)

// cTests adds the tests of the C library by name. It configures a build.
func (all facts) cTests(dir string) error {
	build, err := os.MkdirTemp("", "frozen-c-*")
	if err != nil {
		return err
	}
	defer os.RemoveAll(build)
	if err := command(dir, "cmake", "-S", "c", "-B", build); err != nil {
		return err
	}
	text, err := output(build, "ctest", "-N")
	for _, m := range ctest.FindAllStringSubmatch(text, -1) {
		all.add("test in C", m[1], "")
	}
	return err
}
