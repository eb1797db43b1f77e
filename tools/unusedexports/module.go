package main

import (
	"cmp"
	"errors"
	"fmt"
	"go/ast"
	"go/token"
	"go/types"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/tools/go/packages"
)

// extensions are the packages for people who extend softnd, relative to the module. Those below them belong to them,
// apart from internal ones.
var extensions = []string{"shm", "window", "endpoint", "launcher", "bench"}

// decl is an exported identifier of one of the extensions.
type decl struct {
	name    string // with its package and type
	pkg     string // path of its package
	obj     types.Object
	owner   *decl // the type of a method or field
	isField bool
	isUsed  bool
}

// module is the type-checked module.
type module struct {
	root     string // directory
	fset     *token.FileSet
	packages []*packages.Package // tests included
	decls    []*decl
	byPlace  map[string]*decl // by file, line and name, since a package and its variants for tests have objects of their own
}

// load type-checks the module in dir and that of the tools below it, with their tests, and lists the exported identifiers of the extensions.
func load(dir string) (*module, error) {
	root, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	m := &module{root: root, fset: token.NewFileSet(), byPlace: make(map[string]*decl)}
	for _, d := range []string{root, filepath.Join(root, "tools")} {
		if _, err := os.Stat(filepath.Join(d, "go.mod")); err != nil && d != root {
			continue
		}
		loaded, err := packages.Load(&packages.Config{
			Mode: packages.NeedName | packages.NeedFiles | packages.NeedImports | packages.NeedTypes | packages.NeedSyntax |
				packages.NeedTypesInfo | packages.NeedModule,
			Dir: d, Fset: m.fset, Tests: true,
		}, "./...")
		if err != nil {
			return nil, err
		}
		m.packages = append(m.packages, loaded...)
	}
	for _, p := range m.packages {
		for _, e := range p.Errors {
			err = errors.Join(err, e)
		}
		if p.ID == p.PkgPath && isExtension(p) {
			m.declare(p)
		}
	}
	if len(m.decls) == 0 && err == nil {
		err = fmt.Errorf("%s: no packages of the extensions: run it in the root of the module", dir)
	}
	slices.SortFunc(m.decls, func(a, b *decl) int { return cmp.Compare(a.name, b.name) })
	return m, err
}

func isExtension(p *packages.Package) bool {
	if p.Module == nil {
		return false
	}
	path, ok := strings.CutPrefix(p.PkgPath, p.Module.Path+"/")
	first, _, _ := strings.Cut(path, "/")
	return ok && slices.Contains(extensions, first) && !strings.Contains("/"+path+"/", "/internal/")
}

// place returns where an object is declared.
func (m *module) place(obj types.Object) string {
	pos := m.fset.Position(obj.Pos())
	if file, err := filepath.Rel(m.root, pos.Filename); err == nil {
		pos.Filename = file
	}
	return pos.String()
}

// key identifies the declaration of an object. Export data of another module knows its line, but not its column.
func (m *module) key(obj types.Object) string {
	pos := m.fset.Position(obj.Pos())
	return fmt.Sprintf("%s:%d:%s", pos.Filename, pos.Line, obj.Name())
}

func (m *module) add(d *decl) *decl {
	m.decls = append(m.decls, d)
	m.byPlace[m.key(d.obj)] = d
	return d
}

// declare lists the exported identifiers of a package: those at the top level, and the exported methods and fields of
// exported types.
func (m *module) declare(p *packages.Package) {
	scope := p.Types.Scope()
	short := strings.TrimPrefix(p.PkgPath, p.Module.Path+"/")
	for _, name := range scope.Names() {
		obj := scope.Lookup(name)
		if !obj.Exported() {
			continue
		}
		top := m.add(&decl{name: short + "." + name, pkg: p.PkgPath, obj: obj})
		tn, ok := obj.(*types.TypeName)
		if !ok || tn.IsAlias() {
			continue
		}
		member := func(obj types.Object, isField bool) {
			if obj.Exported() {
				m.add(&decl{name: top.name + "." + obj.Name(), pkg: p.PkgPath, obj: obj, owner: top, isField: isField})
			}
		}
		named := tn.Type().(*types.Named)
		for method := range named.Methods() {
			member(method, false)
		}
		switch t := named.Underlying().(type) {
		case *types.Interface:
			for method := range t.ExplicitMethods() {
				member(method, false)
			}
		case *types.Struct:
			for f := range t.Fields() {
				if !f.Embedded() {
					member(f, true)
				}
			}
		}
	}
}

// count returns the number of exported identifiers, fields apart.
func (m *module) count() (n int) {
	for _, d := range m.decls {
		if !d.isField {
			n++
		}
	}
	return n
}

// printCounts writes the number of exported identifiers of each package, fields apart.
func (m *module) printCounts(out io.Writer) {
	count := make(map[string]int)
	var paths []string
	for _, d := range m.decls {
		if d.isField {
			continue
		}
		if count[d.pkg] == 0 {
			paths = append(paths, d.pkg)
		}
		count[d.pkg]++
	}
	for _, path := range paths {
		fmt.Fprintf(out, "%5d %s\n", count[path], path)
	}
	fmt.Fprintf(out, "%5d exported identifiers: top level and methods, without fields\n", m.count())
}

// findUses marks the identifiers that other packages use.
func (m *module) findUses() {
	for _, p := range m.packages {
		m.usesOf(p)
	}
	for _, p := range m.packages {
		if p.ID == p.PkgPath {
			m.implementations(p)
		}
	}
	for _, d := range m.decls {
		if d.isField && hasTag(d.owner.obj, d.obj) || !d.isField && d.owner != nil && isForErrors(d.obj.Name()) {
			d.isUsed = true
		}
	}
	for m.spread() {
	}
}

// usesOf marks the identifiers of other packages that a package mentions. The tests of a package are part of it.
func (m *module) usesOf(p *packages.Package) {
	self := strings.TrimSuffix(p.PkgPath, "_test")
	use := func(obj types.Object) {
		if obj.Pos().IsValid() {
			if d := m.byPlace[m.key(obj)]; d != nil && d.pkg != self {
				d.isUsed = true
			}
		}
	}
	for _, obj := range p.TypesInfo.Uses {
		use(obj)
	}
	for e, tv := range p.TypesInfo.Types {
		lit, ok := e.(*ast.CompositeLit)
		if !ok || len(lit.Elts) == 0 {
			continue
		}
		if _, isKeyed := lit.Elts[0].(*ast.KeyValueExpr); isKeyed {
			continue
		}
		if s, ok := tv.Type.Underlying().(*types.Struct); ok {
			for f := range s.Fields() {
				use(f)
			}
		}
	}
}

// implementations marks the methods with which types of the extensions implement interfaces that a package declares or
// mentions, and which belong to another package than the type.
func (m *module) implementations(p *packages.Package) {
	seen := make(map[*types.Interface]bool)
	implement := func(t types.Type) {
		i, ok := t.Underlying().(*types.Interface)
		if !ok || i.NumMethods() == 0 || seen[i] {
			return
		}
		seen[i] = true
		if _, isParameter := t.(*types.TypeParam); isParameter || !isTelling(i) {
			return
		}
		owner := p.PkgPath
		if named, ok := t.(*types.Named); ok {
			if owner = ""; named.Obj().Pkg() != nil {
				owner = named.Obj().Pkg().Path()
			}
		}
		m.implement(i, owner)
	}
	implement(types.Universe.Lookup("error").Type())
	for _, tv := range p.TypesInfo.Types {
		implement(tv.Type)
	}
	for _, imported := range p.Types.Imports() {
		for _, name := range imported.Scope().Names() {
			if tn, ok := imported.Scope().Lookup(name).(*types.TypeName); ok && tn.Exported() {
				implement(tn.Type())
			}
		}
	}
}

// isTelling reports whether a type that implements the interface does so on purpose: a single Close or Len does not say.
func isTelling(i *types.Interface) bool {
	if i.NumMethods() > 1 {
		return true
	}
	switch i.Method(0).Name() {
	case "Close", "Len", "Reset", "Size", "Name", "Done", "Start", "Wait", "Run":
		return false
	}
	return true
}

// implement marks the methods with which types of the extensions, except those of package owner, implement i. It reports
// whether it has marked any.
func (m *module) implement(i *types.Interface, owner string) (hasMarked bool) {
	for _, d := range m.decls {
		tn, ok := d.obj.(*types.TypeName)
		if !ok || d.pkg == owner || types.IsInterface(tn.Type()) {
			continue
		}
		if !types.Implements(types.NewPointer(tn.Type()), i) {
			continue
		}
		for method := range i.Methods() {
			found, _, _ := types.LookupFieldOrMethod(tn.Type(), true, tn.Pkg(), method.Name())
			if found == nil || !found.Pos().IsValid() {
				continue
			}
			if of := m.byPlace[m.key(found)]; of != nil && !of.isUsed {
				of.isUsed, hasMarked = true, true
			}
		}
	}
	return hasMarked
}

// isForErrors reports whether package errors calls a method of this name, by interfaces that it does not name.
func isForErrors(method string) bool { return method == "Unwrap" || method == "Is" || method == "As" }

// hasTag reports whether a field of the struct type t has a tag: package reflect uses it then.
func hasTag(t, field types.Object) bool {
	s, ok := t.Type().Underlying().(*types.Struct)
	if !ok {
		return false
	}
	for i := range s.NumFields() {
		if s.Field(i) == field {
			return s.Tag(i) != ""
		}
	}
	return false
}

// spread marks the types of used methods and fields, the types in the signatures of used identifiers, the methods of used
// interfaces, and the methods that implement those. It reports whether it has marked any.
func (m *module) spread() (hasMarked bool) {
	mark := func(d *decl) {
		if d != nil && !d.isUsed {
			d.isUsed, hasMarked = true, true
		}
	}
	for _, d := range m.decls {
		if d.isUsed {
			mark(d.owner)
			m.mentioned(d.obj.Type(), mark)
			if i, ok := d.obj.Type().Underlying().(*types.Interface); ok && i.NumMethods() > 0 && isTelling(i) {
				hasMarked = m.implement(i, "") || hasMarked
			}
		} else if d.owner != nil && d.owner.isUsed && types.IsInterface(d.owner.obj.Type()) {
			mark(d)
		}
	}
	return hasMarked
}

// mentioned marks the types of the extensions that occur in a type.
func (m *module) mentioned(t types.Type, mark func(*decl)) {
	switch t := t.(type) {
	case *types.Alias:
		mark(m.byPlace[m.key(t.Obj())])
		m.mentioned(t.Rhs(), mark)
	case *types.Named:
		if t.Obj().Pos().IsValid() {
			mark(m.byPlace[m.key(t.Obj())])
		}
		for arg := range t.TypeArgs().Types() {
			m.mentioned(arg, mark)
		}
	case *types.Signature:
		for v := range t.Params().Variables() {
			m.mentioned(v.Type(), mark)
		}
		for v := range t.Results().Variables() {
			m.mentioned(v.Type(), mark)
		}
	case *types.Map:
		m.mentioned(t.Key(), mark)
		m.mentioned(t.Elem(), mark)
	case interface{ Elem() types.Type }: // pointers, slices, arrays, channels
		m.mentioned(t.Elem(), mark)
	}
}
