package modelpage

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

const (
	modelPath    = "github.com/softnd/softnd/nd"
	suitePath    = modelPath + "/ndtest"
	providerPath = "github.com/softnd/softnd/endpoint"
)

// listed is what the go command tells of a package.
type listed struct {
	ImportPath, Dir, Export string
	GoFiles                 []string
}

// tree is the module as the go command sees it: packages, also those with their tests inside, with
// compiled export data.
type tree struct {
	fset     *token.FileSet
	packages map[string]listed
	importer types.Importer
}

// list asks the go command for the packages that the page is about, and all that they import.
func list(root string) (*tree, error) {
	cmd := exec.Command("go", "list", "-test", "-export", "-deps", "-json=ImportPath,Dir,Export,GoFiles", modelPath, suitePath, providerPath)
	cmd.Dir = root
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w: %s", err, &errs)
	}
	t := &tree{fset: token.NewFileSet(), packages: make(map[string]listed)}
	t.importer = importer.ForCompiler(t.fset, "gc", func(path string) (io.ReadCloser, error) {
		return os.Open(t.packages[path].Export)
	})
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		var p listed
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			return t, nil
		} else if err != nil {
			return nil, fmt.Errorf("go list: %w", err)
		}
		t.packages[p.ImportPath] = p
	}
}

// withTests is how the go command calls a package that holds its test files too.
func withTests(path string) string { return path + " [" + path + ".test]" }

func (t *tree) parse(importPath string) ([]*ast.File, error) {
	p := t.packages[importPath]
	var files []*ast.File
	for _, name := range p.GoFiles {
		f, err := parser.ParseFile(t.fset, filepath.Join(p.Dir, name), nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		files = append(files, f)
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("no package %s", importPath)
	}
	return files, nil
}

// source is a type-checked package.
type source struct {
	fset   *token.FileSet
	files  []*ast.File
	info   *types.Info
	model  *types.Package            // package nd as it sees it
	bodies map[types.Object]ast.Node // its functions, and the values of its variables
	known  map[*types.Func][]string  // what methods told of methods
}

// load parses a package and checks its types.
func (t *tree) load(importPath string) (*source, error) {
	files, err := t.parse(importPath)
	if err != nil {
		return nil, err
	}
	path, _, _ := strings.Cut(importPath, " ")
	return check(t.fset, path, files, t.importer)
}

func check(fset *token.FileSet, path string, files []*ast.File, from types.Importer) (*source, error) {
	s := &source{fset: fset, files: files, bodies: make(map[types.Object]ast.Node), known: make(map[*types.Func][]string)}
	s.info = &types.Info{
		Uses: make(map[*ast.Ident]types.Object), Defs: make(map[*ast.Ident]types.Object), Types: make(map[ast.Expr]types.TypeAndValue),
	}
	conf := types.Config{Importer: from}
	pkg, err := conf.Check(path, fset, files, s.info)
	if err != nil {
		return nil, err
	}
	for _, p := range append(pkg.Imports(), pkg) {
		if p.Path() == modelPath {
			s.model = p
		}
	}
	for _, f := range files {
		for _, d := range f.Decls {
			s.remember(d)
		}
	}
	return s, nil
}

func (s *source) remember(d ast.Decl) {
	switch d := d.(type) {
	case *ast.FuncDecl:
		s.bodies[s.info.Defs[d.Name]] = d
	case *ast.GenDecl:
		for _, spec := range d.Specs {
			if v, ok := spec.(*ast.ValueSpec); ok {
				for _, name := range v.Names {
					s.bodies[s.info.Defs[name]] = v
				}
			}
		}
	}
}
