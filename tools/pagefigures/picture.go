package main

import (
	"fmt"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

const module = "github.com/softnd/softnd"

// box is a box of the picture of imports. Each of its folders stands for the packages in and below it, apart from those that another
// box or another entry names more closely.
type box struct {
	name    string // begins with a word of its own
	folders []string
}

var boxes = []box{
	{"cmd: ndrun, ndinfo, ndbench", []string{"cmd"}},
	{"examples", []string{"examples"}},
	{"softndtest, softndvar", []string{"softndtest", "softndvar"}},
	{"relay: a module of its own", []string{"relay"}},
	{"bench: measure, report, plot, peers, suite", []string{"bench"}},
	{"softnd: the root package", []string{"."}},
	{"launcher", []string{"launcher"}},
	{"internal/hang", []string{"internal/hang"}},
	{"internal/meet", []string{"internal/meet"}},
	{"endpoint", []string{"endpoint"}},
	{"internal/statuspage", []string{"internal/statuspage"}},
	{"internal/relayhook", []string{"internal/relayhook"}},
	{"window", []string{"window"}},
	{"shm", []string{"shm"}},
	{"faults, internal/faultplan", []string{"faults", "internal/faultplan"}},
	{"nd/ndtest, nd/ndcheck, nd/ndcompat", []string{"nd/ndtest", "nd/ndcheck", "nd/ndcompat"}},
	{"nd: the model", []string{"nd"}},
	{"internal/linux, asym, doorbell, layout, goruntime, meet/unixsock", []string{"internal/linux", "internal/asym",
		"internal/doorbell", "internal/layout", "internal/goruntime", "internal/meet/unixsock", "internal/testkit/failpoint"}},
}

// onlyTests are the folders that only tests import, and the module of the tools. The picture leaves them out.
var onlyTests = []string{"internal/testkit", "internal/vectors", "tests", "c", "nd/ndtest/testdata", "tools"}

// picture returns the boxes and their imports as a diagram for Mermaid. An arrow that follows from others is left out.
func picture(root string, boxes []box) (string, error) {
	all, err := imports(root)
	if err != nil {
		return "", err
	}
	uses := make([]map[int]bool, len(boxes))
	for i := range boxes {
		uses[i] = make(map[int]bool)
	}
	for _, p := range slices.Sorted(maps.Keys(all)) {
		from := boxOf(p, boxes)
		if from == none {
			return "", fmt.Errorf("package %s has no box in the picture: give it one in tools/pagefigures/picture.go", p)
		}
		for _, imported := range all[p] {
			if to := boxOf(imported, boxes); from >= 0 && to >= 0 && to != from {
				uses[from][to] = true
			}
		}
	}
	reach, err := closure(uses, boxes)
	if err != nil {
		return "", err
	}
	var out strings.Builder
	out.WriteString("```mermaid\nflowchart TD\n")
	for _, b := range boxes {
		fmt.Fprintf(&out, "    %s[\"%s\"]\n", id(b), b.name)
	}
	for i, b := range boxes {
		for _, j := range slices.Sorted(maps.Keys(uses[i])) {
			isImplied := false
			for k := range uses[i] {
				isImplied = isImplied || reach[k][j]
			}
			if !isImplied {
				fmt.Fprintf(&out, "    %s --> %s\n", id(b), id(boxes[j]))
			}
		}
	}
	out.WriteString("```\n")
	return out.String(), nil
}

// id returns the first word of the name of a box.
func id(b box) string {
	word, _, _ := strings.Cut(b.name, " ")
	return strings.ReplaceAll(strings.Trim(word, ":,"), "/", "_")
}

const (
	none    = -1
	leftOut = -2
)

// boxOf returns the index of the box with the folder that names a package most closely.
func boxOf(pkg string, boxes []box) int {
	found, length := none, 0
	try := func(folder string, i int) {
		if (pkg == folder || strings.HasPrefix(pkg, folder+"/")) && len(folder) > length {
			found, length = i, len(folder)
		}
	}
	for i, b := range boxes {
		for _, folder := range b.folders {
			try(folder, i)
		}
	}
	for _, folder := range onlyTests {
		try(folder, leftOut)
	}
	return found
}

// closure returns the boxes that each box reaches by imports. It is an error if one reaches itself.
func closure(uses []map[int]bool, boxes []box) ([]map[int]bool, error) {
	reach := make([]map[int]bool, len(uses))
	for i := range uses {
		reach[i] = make(map[int]bool)
		for todo := slices.Collect(maps.Keys(uses[i])); len(todo) > 0; {
			j := todo[len(todo)-1]
			todo = todo[:len(todo)-1]
			if !reach[i][j] {
				reach[i][j] = true
				todo = slices.AppendSeq(todo, maps.Keys(uses[j]))
			}
		}
		if reach[i][i] {
			return nil, fmt.Errorf("the imports of %s lead back to it: layers import in one direction only", boxes[i].name)
		}
	}
	return reach, nil
}

// imports returns the packages below root with the packages of softnd that each imports, tests apart, as paths relative to the module.
func imports(root string) (map[string][]string, error) {
	all := make(map[string][]string)
	err := filepath.WalkDir(root, func(file string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if name := d.Name(); file != root && (name[0] == '.' || name[0] == '_' || name == "testdata") {
				return filepath.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(file, ".go") || strings.HasSuffix(file, "_test.go") {
			return nil
		}
		f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ImportsOnly)
		if err != nil {
			return err
		}
		dir, err := filepath.Rel(root, filepath.Dir(file))
		if err != nil {
			return err
		}
		pkg := filepath.ToSlash(dir)
		if _, ok := all[pkg]; !ok {
			all[pkg] = nil
		}
		for _, spec := range f.Imports {
			name, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				return err
			}
			if name == module || strings.HasPrefix(name, module+"/") {
				all[pkg] = append(all[pkg], path.Clean("."+strings.TrimPrefix(name, module)))
			}
		}
		return nil
	})
	return all, err
}

const pictureStart, pictureEnd = "<!--imports-->\n", "<!--/imports-->"

// fillPicture returns a page with the picture of imports, if it has a place for one.
func fillPicture(text string) (_ string, changes []change, err error) {
	before, rest, ok := strings.Cut(text, pictureStart)
	if !ok {
		return text, nil, nil
	}
	have, after, ok := strings.Cut(rest, pictureEnd)
	if !ok {
		return "", nil, fmt.Errorf("the picture of imports has no end: want %s", pictureEnd)
	}
	want, err := picture(".", boxes)
	if err != nil {
		return "", nil, err
	}
	if have != want {
		changes = []change{{1 + strings.Count(before, "\n"), "the picture of imports", "another one", "a picture"}}
	}
	return before + pictureStart + want + pictureEnd + after, changes, nil
}
