package main

import (
	"cmp"
	"go/ast"
	"go/types"
	"slices"
	"strings"
)

// test is a test function, with the parts of package nd that it uses.
type test struct {
	name  string // with its package
	parts []string
}

// tests lists the tests of a package. A function that they call counts if it is in their own file, because helpers of
// many tests do more than each of these needs.
func (s *source) tests(short string) (all []test) {
	for _, f := range s.files {
		file := s.fset.File(f.Pos())
		near := func(obj types.Object) bool { return s.fset.File(obj.Pos()) == file }
		for _, d := range f.Decls {
			fn, ok := d.(*ast.FuncDecl)
			if ok && strings.HasSuffix(file.Name(), "_test.go") && isTest(fn) {
				all = append(all, test{short + "." + fn.Name.Name, s.uses(fn, near)})
			}
		}
	}
	slices.SortFunc(all, func(a, b test) int { // the ones with the fewest parts are about these
		return cmp.Or(cmp.Compare(len(a.parts), len(b.parts)), cmp.Compare(a.name, b.name))
	})
	return all
}

// callers returns, for each part of package nd, the exported functions of a package that use it.
func (s *source) callers() map[string][]string {
	by := make(map[string][]string)
	for _, f := range s.files {
		for _, d := range f.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && fn.Recv == nil && fn.Name.IsExported() && !isTest(fn) {
				for _, part := range s.uses(fn, nowhere) {
					by[part] = append(by[part], fn.Name.Name)
				}
			}
		}
	}
	return by
}

// isTest reports whether go test runs the function. It runs fuzz targets with their stored inputs, and no benchmarks.
func isTest(fn *ast.FuncDecl) bool {
	name := fn.Name.Name
	return fn.Recv == nil && name != "TestMain" && (strings.HasPrefix(name, "Test") || strings.HasPrefix(name, "Fuzz"))
}
