package main

import (
	"go/ast"
	"go/token"
	"go/types"
	"regexp"
	"strings"
)

// part is one exported identifier of package nd.
type part struct {
	name   string // as in Go: "Endpoint.Send", "AccessViolation"
	kind   string // the heading under which it is listed
	source string // its name in the model; may be empty
}

// parts lists package nd in the order of its files.
func parts(files []*ast.File) (all []part) {
	sources := sourcesOfTypes(files)
	for _, f := range files {
		for _, d := range f.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				all = append(all, function(d)...)
			case *ast.GenDecl:
				switch d.Tok {
				case token.TYPE:
					for _, s := range d.Specs {
						all = append(all, partsOfType(s.(*ast.TypeSpec), sources)...)
					}
				case token.CONST:
					all = append(all, constants(d, sources)...)
				}
			}
		}
	}
	return all
}

// function lists a function, or a method of a struct if the model has it.
func function(d *ast.FuncDecl) []part {
	source := sourceOf(d.Doc)
	if d.Recv == nil && d.Name.IsExported() {
		return []part{{d.Name.Name, "Functions", source}}
	}
	if d.Recv == nil || source == "" {
		return nil
	}
	recv := types.ExprString(d.Recv.List[0].Type)
	recv = strings.TrimPrefix(recv, "*")
	return []part{{recv + "." + d.Name.Name, recv, source}}
}

func sourcesOfTypes(files []*ast.File) map[string]string {
	sources := make(map[string]string)
	for _, f := range files {
		for _, d := range f.Decls {
			g, ok := d.(*ast.GenDecl)
			if !ok || g.Tok != token.TYPE {
				continue
			}
			for _, s := range g.Specs {
				s := s.(*ast.TypeSpec)
				sources[s.Name.Name] = firstSource(s.Doc, g.Doc)
			}
		}
	}
	return sources
}

func partsOfType(s *ast.TypeSpec, sources map[string]string) (all []part) {
	if !s.Name.IsExported() {
		return nil
	}
	var fields *ast.FieldList
	switch t := s.Type.(type) {
	case *ast.InterfaceType:
		fields = t.Methods
	case *ast.StructType:
		if s.Name.Name == "AdapterInfo" {
			fields = t.Fields
		}
	}
	if fields == nil {
		return nil
	}
	for _, f := range fields.List {
		for _, name := range f.Names {
			source := firstSource(f.Doc, f.Comment)
			if source == "" {
				source = sources[s.Name.Name]
			}
			all = append(all, part{s.Name.Name + "." + name.Name, s.Name.Name, source})
		}
	}
	return all
}

// constants lists typed constants, under their type.
func constants(d *ast.GenDecl, sources map[string]string) (all []part) {
	for _, s := range d.Specs {
		v := s.(*ast.ValueSpec)
		t, ok := v.Type.(*ast.Ident)
		if !ok || !t.IsExported() {
			continue
		}
		for _, name := range v.Names {
			if !name.IsExported() {
				continue
			}
			source := firstSource(v.Doc, v.Comment)
			if source == "" {
				source = strings.ReplaceAll(sources[t.Name], "*", upper(name.Name))
			}
			all = append(all, part{name.Name, t.Name, source})
		}
	}
	return all
}

var wordEnd = regexp.MustCompile(`([a-z])([A-Z0-9])|([A-Z])([A-Z][a-z])`)

// upper writes a constant as the model does: "IOTimeout" as "IO_TIMEOUT", "NDKInline" as "INLINE".
func upper(name string) string {
	return strings.ToUpper(wordEnd.ReplaceAllString(strings.TrimPrefix(name, "NDK"), "${1}${3}_${2}${4}"))
}

func firstSource(comments ...*ast.CommentGroup) string {
	for _, c := range comments {
		if source := sourceOf(c); source != "" {
			return source
		}
	}
	return ""
}

// sourceOf returns the text after "Source:" in a comment, on one line.
func sourceOf(doc *ast.CommentGroup) string {
	_, after, found := strings.Cut(doc.Text(), "Source:")
	if !found {
		return ""
	}
	after, _, _ = strings.Cut(after, "\n\n")
	return strings.TrimSuffix(strings.Join(strings.Fields(after), " "), ".")
}
