package main

import (
	"fmt"
	"go/ast"
	"go/constant"
	"go/types"
	"slices"
	"strings"
)

// use records the parts of package nd that a scenario uses, or several scenarios that are made in one place.
type use struct {
	label         string
	ids           []string
	direct, wider []string // itself; with the helpers that it calls
}

// rows finds the scenarios among known in the suite. It is an error if one of these is not found.
func (s *source) rows(known []string) ([]use, error) {
	var all []use
	found := make(map[string]bool)
	for _, f := range s.files {
		for _, d := range f.Decls {
			ast.Inspect(d, func(n ast.Node) bool {
				ids := s.idsOf(n, known)
				if len(ids) == 0 {
					return true
				}
				for _, id := range ids {
					found[id] = true
				}
				all = append(all, s.use(n, d, ids))
				return false
			})
		}
	}
	for _, id := range known {
		if !found[id] {
			return nil, fmt.Errorf("%s: not found in the source of the suite", id)
		}
	}
	slices.SortFunc(all, func(a, b use) int { return strings.Compare(a.label, b.label) })
	return all, nil
}

// use returns the use of the expression n in d. Scenarios that are made in a loop depend on all of d.
func (s *source) use(n ast.Node, d ast.Decl, ids []string) use {
	if len(ids) > 1 {
		return use{ids[0] + " to " + ids[len(ids)-1], ids, nil, s.uses(d, everywhere)}
	}
	return use{ids[0], ids, s.uses(n, nowhere), s.uses(n, everywhere)}
}

// idsOf returns the known scenarios that n makes, if it is an expression for scenarios.
func (s *source) idsOf(n ast.Node, known []string) (ids []string) {
	e, ok := n.(ast.Expr)
	if !ok {
		return nil
	}
	named, ok := s.info.Types[e].Type.(*types.Named)
	if !ok || named.Obj().Name() != "scenario" {
		return nil
	}
	var id ast.Expr
	switch e := e.(type) {
	case *ast.CompositeLit:
		id = fieldOf(e, "id")
	case *ast.CallExpr:
		return matching(s.firstText(e), known)
	}
	if call, ok := id.(*ast.CallExpr); ok { // which makes the number
		return matching(s.firstText(call), known)
	}
	return matching(s.text(id), known)
}

func fieldOf(lit *ast.CompositeLit, name string) ast.Expr {
	for _, e := range lit.Elts {
		if kv, ok := e.(*ast.KeyValueExpr); ok {
			if key, ok := kv.Key.(*ast.Ident); ok && key.Name == name {
				return kv.Value
			}
		}
	}
	return nil
}

// firstText returns the first argument of a call that is a constant string. In f("C001")(x) it is
// an argument of f.
func (s *source) firstText(call *ast.CallExpr) string {
	for _, arg := range call.Args {
		if text := s.text(arg); text != "" {
			return text
		}
	}
	if inner, ok := call.Fun.(*ast.CallExpr); ok {
		return s.firstText(inner)
	}
	return ""
}

// text returns the value of a constant string, and "" for anything else.
func (s *source) text(e ast.Expr) string {
	if v := s.info.Types[e].Value; v != nil && v.Kind() == constant.String {
		return constant.StringVal(v)
	}
	return ""
}

// matching returns the ids that pattern gives, which is one, or a format with a number.
func matching(pattern string, ids []string) (some []string) {
	for _, id := range ids {
		var n int
		if _, err := fmt.Sscanf(id, pattern, &n); id == pattern || err == nil && id == fmt.Sprintf(pattern, n) {
			some = append(some, id)
		}
	}
	return some
}
