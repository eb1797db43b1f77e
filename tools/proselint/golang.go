package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"regexp"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// goFile is a parsed file and the text that is extracted from it.
type goFile struct {
	fset *token.FileSet
	ex   extracted
	skip map[*ast.BasicLit]bool // strings that are no prose
}

// fromGo extracts comments, strings that hold a space, and declared names. Paths of imports, tags of fields and regular
// expressions are left out.
func fromGo(file, text string) (extracted, error) {
	g := &goFile{fset: token.NewFileSet(), skip: make(map[*ast.BasicLit]bool)}
	f, err := parser.ParseFile(g.fset, file, text, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return extracted{}, err
	}
	for _, group := range f.Comments {
		g.comments(group)
	}
	if !strings.HasSuffix(file, "_test.go") {
		g.docs(f)
	}
	ast.Inspect(f, func(n ast.Node) bool {
		g.node(n)
		return true
	})
	return g.ex, nil
}

func (g *goFile) line(p token.Pos) int { return g.fset.Position(p).Line }

func (g *goFile) report(p token.Pos, text, rule, advice string) {
	g.ex.findings = append(g.ex.findings, finding{line: g.line(p), text: text, rule: rule, advice: advice, context: text})
}

var (
	directive  = regexp.MustCompile(`^(//(go|nolint|lint|export|line)\b|//[a-z]+:[a-z])`)
	docLink    = regexp.MustCompile(`\[\*?([A-Za-z_][\w./]*)\]`)
	docHeading = regexp.MustCompile(`^# `)
)

// comments extracts the paragraphs of a comment. Lines that the godoc tool would show as code are left out.
func (g *goFile) comments(group *ast.CommentGroup) {
	current := block{kind: comment}
	end := func() {
		if current.text != "" {
			g.ex.blocks = append(g.ex.blocks, joinCode(current))
		}
		current = block{kind: comment}
	}
	inList := false
	for _, c := range group.List {
		if directive.MatchString(c.Text) {
			continue
		}
		text := strings.TrimPrefix(c.Text, "//")
		if strings.HasPrefix(c.Text, "/*") {
			text = strings.TrimSuffix(strings.TrimPrefix(c.Text, "/*"), "*/")
		}
		first := g.line(c.Pos())
		for i, line := range strings.Split(text, "\n") {
			trimmed := strings.TrimSpace(line)
			isItem := listItem.MatchString(line) && strings.HasPrefix(line, " ")
			isIndented := strings.HasPrefix(line, "\t") || strings.HasPrefix(line, "  ")
			switch {
			case trimmed == "":
				end()
				inList = false
			case isItem:
				end()
				inList = true
				current.add(docText(listItem.ReplaceAllString(line, "")), first+i)
			case isIndented && !inList:
				end()
			case docHeading.MatchString(trimmed):
				end()
				current.kind = heading
				current.add(docText(trimmed[2:]), first+i)
				end()
			default:
				current.add(docText(trimmed), first+i)
			}
		}
	}
	end()
}

// docText replaces the links of godoc with their names.
func docText(s string) string { return docLink.ReplaceAllString(s, "$1") }

// docs checks that the doc comment of a function or type begins with its name.
func (g *goFile) docs(f *ast.File) {
	for _, d := range f.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			g.doc(d.Name, d.Doc)
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				s, ok := spec.(*ast.TypeSpec)
				if !ok {
					continue
				}
				if s.Doc == nil && len(d.Specs) == 1 {
					g.doc(s.Name, d.Doc)
				} else {
					g.doc(s.Name, s.Doc)
				}
			}
		}
	}
}

func (g *goFile) doc(name *ast.Ident, doc *ast.CommentGroup) {
	words := strings.Fields(doc.Text())
	if len(words) > 1 && (words[0] == "A" || words[0] == "An" || words[0] == "The") {
		words = words[1:]
	}
	if len(words) == 0 || words[0] == "Deprecated:" {
		return
	}
	switch first := strings.TrimSuffix(words[0], "'s"); {
	case first == name.Name:
	case strings.TrimRight(first, ":,;.") == name.Name:
		g.report(doc.Pos(), words[0], "doc", "continue the sentence with a verb: \""+name.Name+" returns ...\"")
	default:
		g.report(doc.Pos(), words[0], "doc", "begin the comment with the name: \""+name.Name+" ...\"")
	}
}

// node extracts strings and declared names.
func (g *goFile) node(n ast.Node) {
	switch n := n.(type) {
	case *ast.ImportSpec:
		g.skip[n.Path] = true
	case *ast.Field:
		if n.Tag != nil {
			g.skip[n.Tag] = true
		}
		for _, id := range n.Names {
			g.name(name, id)
		}
	case *ast.StructType:
		for _, f := range n.Fields.List {
			if isFlagOrNumber(f.Type) {
				for _, id := range f.Names {
					g.name(field, id)
				}
			}
		}
	case *ast.FuncDecl:
		g.name(name, n.Name)
		if n.Recv == nil {
			g.name(test, n.Name)
		}
	case *ast.TypeSpec:
		g.name(name, n.Name)
	case *ast.ValueSpec:
		for _, id := range n.Names {
			g.name(name, id)
		}
	case *ast.LabeledStmt:
		g.name(name, n.Label)
	case *ast.AssignStmt:
		if n.Tok == token.DEFINE {
			g.exprNames(n.Lhs...)
		}
	case *ast.RangeStmt:
		if n.Tok == token.DEFINE {
			g.exprNames(n.Key, n.Value)
		}
	case *ast.CallExpr:
		g.call(n)
	case *ast.KeyValueExpr:
		if key, ok := n.Key.(*ast.Ident); ok && (key.Name == "Detail" || key.Name == "Next") {
			g.message(n.Value)
		}
	case *ast.BasicLit:
		g.text(n)
	}
}

func (g *goFile) exprNames(all ...ast.Expr) {
	for _, e := range all {
		if id, ok := e.(*ast.Ident); ok {
			g.name(name, id)
		}
	}
}

func (g *goFile) name(k kind, id *ast.Ident) {
	g.ex.blocks = append(g.ex.blocks, block{k, id.Name, []mark{{0, g.line(id.Pos())}}})
}

// isFlagOrNumber reports whether a field's type is a basic one, or an atomic one.
func isFlagOrNumber(t ast.Expr) bool {
	switch t := t.(type) {
	case *ast.Ident:
		return t.Name == "bool" || strings.HasPrefix(t.Name, "int") || strings.HasPrefix(t.Name, "uint")
	case *ast.SelectorExpr:
		pkg, ok := t.X.(*ast.Ident)
		return ok && pkg.Name == "atomic"
	}
	return false
}

// call checks the messages of errors, and leaves regular expressions out.
func (g *goFile) call(n *ast.CallExpr) {
	sel, ok := n.Fun.(*ast.SelectorExpr)
	if !ok || len(n.Args) == 0 {
		return
	}
	pkg, ok := sel.X.(*ast.Ident)
	if !ok {
		return
	}
	switch pkg.Name + "." + sel.Sel.Name {
	case "errors.New", "fmt.Errorf":
		g.message(n.Args[0])
	case "regexp.MustCompile", "regexp.Compile", "regexp.MatchString":
		if lit, ok := n.Args[0].(*ast.BasicLit); ok {
			g.skip[lit] = true
		}
	}
}

// message checks that the text of an error begins in lower case and has no full stop at its end.
func (g *goFile) message(e ast.Expr) {
	switch e := e.(type) {
	case *ast.BasicLit:
		s, err := strconv.Unquote(e.Value)
		if err != nil || e.Kind != token.STRING || s == "" {
			return
		}
		if isCapitalized(s) {
			g.report(e.Pos(), firstWords(s), "message", "an error message begins in lower case")
		}
		if strings.HasSuffix(s, ".") && !strings.HasSuffix(s, "..") || strings.HasSuffix(s, "!") {
			g.report(e.Pos(), lastWords(s), "message", "an error message has no full stop at its end")
		}
	case *ast.BinaryExpr:
		if first, ok := e.X.(*ast.BasicLit); ok && first.Kind == token.STRING {
			if s, err := strconv.Unquote(first.Value); err == nil && isCapitalized(s) {
				g.report(e.Pos(), firstWords(s), "message", "an error message begins in lower case")
			}
		}
		if last, ok := e.Y.(*ast.BasicLit); ok && last.Kind == token.STRING {
			if s, err := strconv.Unquote(last.Value); err == nil && strings.HasSuffix(s, ".") && !strings.HasSuffix(s, "..") {
				g.report(e.Pos(), lastWords(s), "message", "an error message has no full stop at its end")
			}
		}
	case *ast.CallExpr:
		if sel, ok := e.Fun.(*ast.SelectorExpr); ok && sel.Sel.Name == "Sprintf" && len(e.Args) > 0 {
			g.message(e.Args[0])
		}
	}
}

// isCapitalized reports whether a text begins with an ordinary word in upper case. A name of Go or of a variable, which
// has further capitals, a full stop, or a colon behind it, is no such word.
func isCapitalized(s string) bool {
	word, _, _ := strings.Cut(s, " ")
	first, size := utf8.DecodeRuneInString(word)
	if !unicode.IsUpper(first) || len(word) == size {
		return false
	}
	for _, r := range word[size:] {
		if !unicode.IsLower(r) && r != '\'' && r != ',' {
			return false
		}
	}
	return true
}

func lastWords(s string) string {
	words := strings.Fields(s)
	if len(words) > 4 {
		words = append([]string{"..."}, words[len(words)-4:]...)
	}
	return strings.Join(words, " ")
}

// text extracts a string that holds a space and is not the source of a program.
func (g *goFile) text(lit *ast.BasicLit) {
	if lit.Kind != token.STRING || g.skip[lit] {
		return
	}
	s, err := strconv.Unquote(lit.Value)
	if err != nil || !strings.Contains(strings.TrimSpace(s), " ") || strings.Contains("\n"+s, "\npackage ") {
		return
	}
	line, isRaw := g.line(lit.Pos()), lit.Value[0] == '`'
	current := block{kind: quoted}
	end := func() {
		if current.text != "" {
			g.ex.blocks = append(g.ex.blocks, current)
		}
		current = block{kind: quoted}
	}
	for i, part := range strings.Split(s, "\n") {
		if !isRaw {
			i = 0
		}
		if part = strings.TrimSpace(part); part == "" {
			end()
			continue
		}
		current.add(part, line+i)
	}
	end()
}
