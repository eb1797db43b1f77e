package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path"
	"regexp"
	"strings"
)

// sources are the Go files of a tree.
type sources struct {
	fset     *token.FileSet
	packages map[string]*folder // by directory
	points   map[string]string  // names of failpoints by their constants
	reached  map[string][]string
}

// folder is what the Go files of a directory declare.
type folder struct {
	names   map[string]bool // exported: top level, Type.Method, and Type.field of structs, which ends with " field"
	tests   map[string]bool
	mention map[string][]string // functions of tests: the names that they mention
}

func newSources() *sources {
	return &sources{fset: token.NewFileSet(), packages: make(map[string]*folder), points: make(map[string]string), reached: make(map[string][]string)}
}

var (
	isTest  = regexp.MustCompile(`^(Test|Benchmark|Fuzz|Example)([^a-z]|$)`)
	step    = regexp.MustCompile(`(?m)^\t(\w+): +\{Name: "([a-z-]+)"`)
	reached = regexp.MustCompile(`failpoint\.Reach\(failpoint\.(\w+)\)`)
)

// read adds a file, if it is one in Go.
func (s *sources) read(name string, text []byte) error {
	if path.Ext(name) != ".go" {
		return nil
	}
	file, err := parser.ParseFile(s.fset, name, text, parser.SkipObjectResolution)
	if err != nil {
		return err
	}
	dir := path.Dir(name)
	f := s.packages[dir]
	if f == nil {
		f = &folder{names: make(map[string]bool), tests: make(map[string]bool), mention: make(map[string][]string)}
		s.packages[dir] = f
	}
	if strings.HasSuffix(name, "_test.go") {
		f.readTests(file)
		return nil
	}
	for _, d := range file.Decls {
		f.declare(d)
	}
	if path.Base(dir) == "failpoint" {
		for _, m := range step.FindAllSubmatch(text, -1) {
			s.points[string(m[1])] = string(m[2])
		}
	}
	for _, m := range reached.FindAllSubmatch(text, -1) {
		s.reached[string(m[1])] = append(s.reached[string(m[1])], name)
	}
	return nil
}

func (f *folder) readTests(file *ast.File) {
	for _, d := range file.Decls {
		fn, ok := d.(*ast.FuncDecl)
		if !ok {
			continue
		}
		if fn.Recv == nil && isTest.MatchString(fn.Name.Name) {
			f.tests[fn.Name.Name] = true
		}
		ast.Inspect(fn, func(n ast.Node) bool {
			if id, ok := n.(*ast.Ident); ok && id != fn.Name {
				f.mention[fn.Name.Name] = append(f.mention[fn.Name.Name], id.Name)
			}
			return true
		})
	}
}

// declare adds the exported identifiers of a declaration.
func (f *folder) declare(d ast.Decl) {
	add := func(name string, owner *ast.Ident, suffix string) {
		if ast.IsExported(name) && (owner == nil || owner.IsExported()) {
			if owner != nil {
				name = owner.Name + "." + name
			}
			f.names[name+suffix] = true
		}
	}
	if fn, ok := d.(*ast.FuncDecl); ok {
		if fn.Recv == nil {
			add(fn.Name.Name, nil, "")
		} else {
			add(fn.Name.Name, receiver(fn.Recv.List[0].Type), "")
		}
		return
	}
	for _, spec := range d.(*ast.GenDecl).Specs {
		switch spec := spec.(type) {
		case *ast.ValueSpec:
			for _, name := range spec.Names {
				add(name.Name, nil, "")
			}
		case *ast.TypeSpec:
			add(spec.Name.Name, nil, "")
			members, suffix := new(ast.FieldList), ""
			switch t := spec.Type.(type) {
			case *ast.InterfaceType:
				members = t.Methods
			case *ast.StructType:
				members, suffix = t.Fields, " field"
			}
			for _, member := range members.List {
				for _, name := range member.Names {
					add(name.Name, spec.Name, suffix)
				}
			}
		}
	}
}

// receiver returns the name of a method's type.
func receiver(t ast.Expr) *ast.Ident {
	for {
		switch x := t.(type) {
		case *ast.StarExpr:
			t = x.X
		case *ast.IndexExpr:
			t = x.X
		case *ast.IndexListExpr:
			t = x.X
		default:
			return x.(*ast.Ident)
		}
	}
}

// facts adds the tests, those of allocations, and the failpoints.
func (s *sources) facts(all facts) {
	for dir, f := range s.packages {
		counting := map[string]bool{"AllocsPerRun": true}
		for range f.mention { // a helper may call a helper
			for name, mentioned := range f.mention {
				for _, m := range mentioned {
					counting[name] = counting[name] || counting[m]
				}
			}
		}
		for name := range f.tests {
			all.add("test in Go", name, "", dir)
			if counting[name] {
				all.add("test of allocations", name, "", dir)
			}
		}
	}
	for point, name := range s.points {
		all.add("failpoint", name, "", s.reached[point]...)
	}
}

// exported returns the exported identifiers of a package.
func (s *sources) exported(dir string, withFields bool) (names []string) {
	if f := s.packages[dir]; f != nil {
		for name := range f.names {
			if withFields || !strings.HasSuffix(name, " field") {
				names = append(names, name)
			}
		}
	}
	return names
}

// exportedBelow counts the exported identifiers of the packages in and below a folder, without fields and internal packages.
func (s *sources) exportedBelow(top string) (n int) {
	for dir := range s.packages {
		if (dir + "/")[:min(len(dir)+1, len(top)+1)] == top+"/" && !strings.Contains("/"+dir+"/", "/internal/") {
			n += len(s.exported(dir, false))
		}
	}
	return n
}
