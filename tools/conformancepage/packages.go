package main

import (
	"errors"
	"fmt"
	"go/ast"
	"go/token"
	"go/types"

	"golang.org/x/tools/go/packages"
)

const (
	modelPath    = "github.com/softnd/softnd/nd"
	compatPath   = modelPath + "/ndcompat"
	suitePath    = modelPath + "/ndtest"
	providerPath = "github.com/softnd/softnd/endpoint"
)

// withTests returns the ID of a package together with its test files.
func withTests(path string) string { return path + " [" + path + ".test]" }

// load type-checks the packages that the page is about, in the module in directory root, and returns them by their IDs.
func load(root string) (map[string]*source, error) {
	loaded, err := packages.Load(&packages.Config{
		Mode: packages.NeedName | packages.NeedFiles | packages.NeedImports | packages.NeedTypes | packages.NeedSyntax |
			packages.NeedTypesInfo,
		Dir:   root,
		Tests: true,
	}, modelPath, compatPath, suitePath, providerPath)
	if err != nil {
		return nil, err
	}
	sources := make(map[string]*source)
	for _, p := range loaded {
		for _, e := range p.Errors {
			err = errors.Join(err, e)
		}
		sources[p.ID] = newSource(p.Fset, p.Syntax, p.Types, p.TypesInfo)
	}
	for _, id := range []string{modelPath, compatPath, suitePath, withTests(modelPath), withTests(compatPath), withTests(providerPath)} {
		if sources[id] == nil {
			err = errors.Join(err, fmt.Errorf("no package %s", id))
		}
	}
	return sources, err
}

// source is a type-checked package.
type source struct {
	fset   *token.FileSet
	files  []*ast.File
	info   *types.Info
	model  *types.Package            // package nd as it imports it
	compat *types.Package            // package ndcompat as it imports it; nil if it does not
	bodies map[types.Object]ast.Node // its functions, and the values of its variables
	known  map[*types.Func][]string  // results of methods, which is slow
}

func newSource(fset *token.FileSet, files []*ast.File, pkg *types.Package, info *types.Info) *source {
	s := &source{fset: fset, files: files, info: info, bodies: make(map[types.Object]ast.Node), known: make(map[*types.Func][]string)}
	for _, p := range append(pkg.Imports(), pkg) {
		switch p.Path() {
		case modelPath:
			s.model = p
		case compatPath:
			s.compat = p
		}
	}
	for _, f := range files {
		for _, d := range f.Decls {
			s.addBodies(d)
		}
	}
	return s
}

// addBodies records the functions and variables that d declares.
func (s *source) addBodies(d ast.Decl) {
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
