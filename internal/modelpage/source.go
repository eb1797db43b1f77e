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
	"slices"
	"strings"
)

const (
	modelPath = "github.com/softnd/softnd/nd"
	suitePath = modelPath + "/ndtest"
)

// listed is what the go command tells of a package.
type listed struct {
	ImportPath, Dir, Export string
	GoFiles                 []string
}

// list asks the go command for the suite and all that it imports, with compiled export data.
func list(root string) (map[string]listed, error) {
	cmd := exec.Command("go", "list", "-export", "-deps", "-json=ImportPath,Dir,Export,GoFiles", suitePath)
	cmd.Dir = root
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w: %s", err, &errs)
	}
	packages := make(map[string]listed)
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		var p listed
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			return packages, nil
		} else if err != nil {
			return nil, fmt.Errorf("go list: %w", err)
		}
		packages[p.ImportPath] = p
	}
}

func (p listed) parse(fset *token.FileSet) ([]*ast.File, error) {
	var files []*ast.File
	for _, name := range p.GoFiles {
		f, err := parser.ParseFile(fset, filepath.Join(p.Dir, name), nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		files = append(files, f)
	}
	return files, nil
}

// part is one exported piece of package nd.
type part struct {
	name   string // as in Go: "Endpoint.Send", "AccessViolation"
	kind   string // the heading under which it is listed
	source string // what the model calls it; may be empty
}

// parts lists package nd in the order of its files.
func parts(files []*ast.File) (all []part) {
	for _, f := range files {
		for _, d := range f.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				if d.Recv == nil && d.Name.IsExported() {
					all = append(all, part{d.Name.Name, "Functions", sourceOf(d.Doc)})
				}
			case *ast.GenDecl:
				switch d.Tok {
				case token.TYPE:
					for _, s := range d.Specs {
						all = append(all, partsOfType(s.(*ast.TypeSpec), d)...)
					}
				case token.CONST:
					all = append(all, constants(d)...)
				}
			}
		}
	}
	return all
}

func partsOfType(s *ast.TypeSpec, d *ast.GenDecl) (all []part) {
	if !s.Name.IsExported() {
		return nil
	}
	switch t := s.Type.(type) {
	case *ast.InterfaceType:
		doc := s.Doc
		if doc == nil {
			doc = d.Doc
		}
		for _, m := range t.Methods.List {
			for _, name := range m.Names {
				source := sourceOf(m.Doc)
				if source == "" {
					source = sourceOf(doc)
				}
				all = append(all, part{s.Name.Name + "." + name.Name, s.Name.Name, source})
			}
		}
	case *ast.StructType:
		if s.Name.Name != "AdapterInfo" {
			return nil
		}
		for _, f := range t.Fields.List {
			for _, name := range f.Names {
				all = append(all, part{"AdapterInfo." + name.Name, "AdapterInfo", "ND2_ADAPTER_INFO"})
			}
		}
	}
	return all
}

// constants lists typed constants, under their type.
func constants(d *ast.GenDecl) (all []part) {
	for _, s := range d.Specs {
		v := s.(*ast.ValueSpec)
		t, ok := v.Type.(*ast.Ident)
		if !ok || !t.IsExported() {
			continue
		}
		for _, name := range v.Names {
			if name.IsExported() {
				all = append(all, part{name.Name, t.Name, ""})
			}
		}
	}
	return all
}

// sourceOf returns what stands after "Source:" in a comment, on one line.
func sourceOf(doc *ast.CommentGroup) string {
	_, after, found := strings.Cut(doc.Text(), "Source:")
	if !found {
		return ""
	}
	after, _, _ = strings.Cut(after, "\n\n")
	return strings.TrimSuffix(strings.Join(strings.Fields(after), " "), ".")
}

// uses tells which parts of package nd each scenario uses: itself, or through helpers.
type uses struct{ direct, indirect map[string][]string } // by scenario id

// usage type-checks the suite.
func usage(fset *token.FileSet, packages map[string]listed) (uses, error) {
	files, err := packages[suitePath].parse(fset)
	if err != nil {
		return uses{}, err
	}
	info := &types.Info{Uses: make(map[*ast.Ident]types.Object), Defs: make(map[*ast.Ident]types.Object), Types: make(map[ast.Expr]types.TypeAndValue)}
	conf := types.Config{Importer: importer.ForCompiler(fset, "gc", func(path string) (io.ReadCloser, error) {
		return os.Open(packages[path].Export)
	})}
	if _, err := conf.Check(suitePath, fset, files, info); err != nil {
		return uses{}, err
	}
	c := &collector{info: info, bodies: make(map[types.Object]ast.Node)}
	for _, f := range files {
		for _, d := range f.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok {
				c.bodies[info.Defs[fn.Name]] = fn
			}
		}
	}
	u := uses{make(map[string][]string), make(map[string][]string)}
	for _, f := range files {
		ast.Inspect(f, func(n ast.Node) bool {
			lit, ok := n.(*ast.CompositeLit)
			if !ok || !c.isScenario(lit) {
				return true
			}
			id := idOf(lit)
			u.direct[id] = c.direct(lit)
			u.indirect[id] = c.all(lit)
			return false
		})
	}
	return u, nil
}

// collector finds what of package nd a piece of the suite uses.
type collector struct {
	info   *types.Info
	bodies map[types.Object]ast.Node // functions of the suite
}

func (c *collector) isScenario(lit *ast.CompositeLit) bool {
	named, ok := c.info.Types[lit].Type.(*types.Named)
	return ok && named.Obj().Name() == "scenario" && idOf(lit) != ""
}

func idOf(lit *ast.CompositeLit) string {
	for _, e := range lit.Elts {
		if kv, ok := e.(*ast.KeyValueExpr); ok {
			if key, ok := kv.Key.(*ast.Ident); ok && key.Name == "id" {
				if v, ok := kv.Value.(*ast.BasicLit); ok {
					return strings.Trim(v.Value, `"`)
				}
			}
		}
	}
	return ""
}

// direct lists what stands in n itself.
func (c *collector) direct(n ast.Node) []string {
	var names []string
	c.visit(n, func(obj types.Object) { names = append(names, nameOf(obj)) }, func(types.Object) {})
	slices.Sort(names)
	return slices.Compact(names)
}

// all adds what the functions of the suite use that n calls, and so on.
func (c *collector) all(n ast.Node) []string {
	seen := make(map[types.Object]bool)
	var names []string
	var walk func(n ast.Node)
	walk = func(n ast.Node) {
		c.visit(n, func(obj types.Object) { names = append(names, nameOf(obj)) }, func(fn types.Object) {
			if body := c.bodies[fn]; body != nil && !seen[fn] {
				seen[fn] = true
				walk(body)
			}
		})
	}
	walk(n)
	slices.Sort(names)
	return slices.Compact(names)
}

// visit calls model for each object of package nd that n names, and own for each function of the suite.
func (c *collector) visit(n ast.Node, model, own func(types.Object)) {
	ast.Inspect(n, func(n ast.Node) bool {
		id, ok := n.(*ast.Ident)
		if !ok {
			return true
		}
		obj := c.info.Uses[id]
		if obj == nil || obj.Pkg() == nil {
			return true
		}
		switch obj.Pkg().Path() {
		case modelPath:
			model(obj)
		case suitePath:
			if fn, ok := obj.(*types.Func); ok {
				own(fn.Origin())
			}
		}
		return true
	})
}

// nameOf writes a method as Type.Method and a field as AdapterInfo.Field.
func nameOf(obj types.Object) string {
	switch o := obj.(type) {
	case *types.Func:
		if recv := o.Signature().Recv(); recv != nil {
			if named, ok := recv.Type().(*types.Named); ok {
				return named.Obj().Name() + "." + o.Name()
			}
		}
	case *types.Var:
		if o.IsField() {
			return "AdapterInfo." + o.Name() // the only struct whose fields are listed
		}
	}
	return obj.Name()
}

// testFiles tells which test files name what: methods as ".Name", the rest as "nd.Name" or, in
// package nd itself, as "Name".
func testFiles(root string) (map[string][]string, error) {
	byName := make(map[string][]string)
	for _, dir := range []string{"nd", "endpoint", "window"} {
		files, err := filepath.Glob(filepath.Join(root, dir, "*_test.go"))
		if err != nil {
			return nil, err
		}
		for _, name := range files {
			f, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
			if err != nil {
				return nil, err
			}
			short := dir + "/" + filepath.Base(name)
			for word := range words(f, dir == "nd") {
				byName[word] = append(byName[word], short)
			}
		}
	}
	return byName, nil
}

func words(f *ast.File, inModel bool) map[string]bool {
	found := make(map[string]bool)
	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.SelectorExpr:
			if pkg, ok := n.X.(*ast.Ident); ok && pkg.Name == "nd" {
				found["nd."+n.Sel.Name] = true
			} else {
				found["."+n.Sel.Name] = true
			}
		case *ast.Ident:
			if inModel {
				found["nd."+n.Name] = true
			}
		}
		return true
	})
	return found
}
