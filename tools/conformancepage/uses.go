package main

import (
	"go/ast"
	"go/types"
	"maps"
	"slices"
)

// uses lists the parts of package nd that n names. It follows the functions and variables of the same package that n uses,
// as far as follow allows.
func (s *source) uses(n ast.Node, follow func(types.Object) bool) []string {
	names := make(map[string]bool)
	seen := make(map[types.Object]bool)
	var walk func(n ast.Node)
	walk = func(n ast.Node) {
		ast.Inspect(n, func(n ast.Node) bool {
			id, ok := n.(*ast.Ident)
			if !ok || s.info.Uses[id] == nil {
				return true
			}
			obj := s.info.Uses[id]
			for _, name := range s.names(obj) {
				names[name] = true
			}
			if fn, ok := obj.(*types.Func); ok {
				obj = fn.Origin()
			}
			if body := s.bodies[obj]; body != nil && !seen[obj] && follow(obj) {
				seen[obj] = true
				walk(body)
			}
			return true
		})
	}
	walk(n)
	return slices.Sorted(maps.Keys(names))
}

func everywhere(types.Object) bool { return true }
func nowhere(types.Object) bool    { return false }

// names returns the parts of package nd that an object is. A method of a type that implements
// interfaces of package nd is the method of those.
func (s *source) names(obj types.Object) []string {
	switch o := obj.(type) {
	case *types.Func:
		if recv := o.Signature().Recv(); recv != nil {
			names, ok := s.known[o]
			if !ok { // the answer takes its time, and is asked for often
				names = s.methods(o, recv.Type())
				s.known[o] = names
			}
			return names
		}
	case *types.Var:
		if o.IsField() {
			return s.field(o)
		}
	}
	if !s.ofModel(obj) || obj.Parent() != obj.Pkg().Scope() {
		return nil
	}
	return []string{obj.Name()}
}

// ofModel reports whether obj is declared in package nd or ndcompat.
func (s *source) ofModel(obj types.Object) bool {
	return obj.Pkg() != nil && (obj.Pkg() == s.model || obj.Pkg() == s.compat)
}

func (s *source) methods(m *types.Func, recv types.Type) (names []string) {
	if s.model == nil {
		return nil
	}
	base := recv
	if p, ok := base.(*types.Pointer); ok {
		base = p.Elem()
	}
	if s.ofModel(m) {
		if named, ok := base.(*types.Named); ok {
			names = []string{named.Obj().Name() + "." + m.Name()}
		}
		return names
	}
	for _, name := range s.model.Scope().Names() {
		t, ok := s.model.Scope().Lookup(name).(*types.TypeName)
		if !ok {
			continue
		}
		i, ok := t.Type().Underlying().(*types.Interface)
		if !ok || !types.Implements(types.NewPointer(base), i) {
			continue
		}
		for k := range i.NumMethods() {
			if i.Method(k).Name() == m.Name() {
				names = append(names, name+"."+m.Name())
			}
		}
	}
	return names
}

// field names the fields of AdapterInfo, which are the only ones that are listed.
func (s *source) field(v *types.Var) []string {
	if s.model == nil || v.Pkg() != s.model {
		return nil
	}
	info := s.model.Scope().Lookup("AdapterInfo").Type().Underlying().(*types.Struct)
	for i := range info.NumFields() {
		if info.Field(i) == v {
			return []string{"AdapterInfo." + v.Name()}
		}
	}
	return nil
}
