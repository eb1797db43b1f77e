// Package bindings checks that softnd.f90 and softnd.hpp declare what softnd.h declares: a call, a constant, a member or
// an argument that only the header has fails a test. It needs no compiler.
package bindings

import (
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// declaration is a call or a struct: its arguments or members, each with its type.
type declaration struct {
	result string // of a call
	parts  []part
}

type part struct{ name, kind string }

// header is the content of softnd.h.
type header struct {
	constants map[string]int64
	enums     []string
	structs   map[string]declaration
	calls     map[string]declaration
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile("../../" + path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

var (
	cComment  = regexp.MustCompile(`(?s)/\*.*?\*/`)
	cConstant = regexp.MustCompile(`(?m)^#define (SND_\w+) (.*[0-9].*)$`)
	cEnum     = regexp.MustCompile(`typedef enum (\w+) \{([^}]*)\}`)
	cStruct   = regexp.MustCompile(`typedef struct (\w+) \{([^}]*)\}`)
	cCall     = regexp.MustCompile(`SND_API (?:SND_NORETURN )?([^;#]*?\**)(snd_\w+)\(([^;]*)\);`)
	cPart     = regexp.MustCompile(`^(?:const )?(\w+) (\**)(\w+)(\[\w+\])?$`)
	cNumber   = regexp.MustCompile(`-?\b(0x[0-9A-F]+|[0-9]+)`)
)

func parseHeader(t *testing.T) *header {
	h := &header{map[string]int64{}, nil, map[string]declaration{}, map[string]declaration{}}
	text := cComment.ReplaceAllString(read(t, "include/softnd/softnd.h"), "")
	for _, m := range cConstant.FindAllStringSubmatch(text, -1) {
		h.constants[m[1]] = number(t, m[1], cNumber.FindString(m[2]))
	}
	for _, m := range cEnum.FindAllStringSubmatch(text, -1) {
		h.enums = append(h.enums, m[1])
		for constant := range strings.SplitSeq(m[2], ",") {
			name, value, _ := strings.Cut(constant, "=")
			h.constants[strings.TrimSpace(name)] = number(t, name, strings.TrimSpace(value))
		}
	}
	for _, m := range cStruct.FindAllStringSubmatch(text, -1) {
		h.structs[m[1]] = declaration{}
	}
	for _, m := range cStruct.FindAllStringSubmatch(text, -1) {
		h.structs[m[1]] = declaration{parts: h.members(t, m[2])}
	}
	for _, m := range cCall.FindAllStringSubmatch(text, -1) {
		d := declaration{result: h.result(t, strings.TrimSpace(strings.ReplaceAll(m[1], "const ", "")))}
		if m[3] != "void" {
			for argument := range strings.SplitSeq(strings.Join(strings.Fields(m[3]), " "), ", ") {
				d.parts = append(d.parts, h.argument(t, argument))
			}
		}
		h.calls[m[2]] = d
	}
	return h
}

func number(t *testing.T, name, text string) int64 {
	t.Helper()
	n, err := strconv.ParseInt(text, 0, 64)
	if err != nil {
		t.Fatalf("value of %s: %v", name, err)
	}
	return n
}

func (h *header) members(t *testing.T, text string) (all []part) {
	for member := range strings.SplitSeq(text, ";") {
		member = strings.Join(strings.Fields(member), " ")
		if member == "" {
			continue
		}
		m := cPart.FindStringSubmatch(member)
		if m == nil {
			t.Fatalf("cannot read the member %q", member)
		}
		kind, name := "type(c_ptr)", fortranName(m[3])
		switch {
		case m[4] != "":
			kind, name = "character(kind=c_char)", name+strings.NewReplacer("[", "(", "]", ")").Replace(m[4])
		case m[2] == "":
			kind = h.scalar(t, m[1])
		}
		all = append(all, part{name, kind})
	}
	return all
}

// fortranName returns the name that a member or an argument has in Fortran, where type is a keyword.
func fortranName(name string) string {
	if name == "type" {
		return "request_type"
	}
	return name
}

func (h *header) result(t *testing.T, c string) string {
	switch {
	case c == "void":
		return ""
	case strings.HasSuffix(c, "*"):
		return "type(c_ptr)"
	}
	return h.scalar(t, c)
}

// scalar returns the Fortran type of a type of C that is no pointer.
func (h *header) scalar(t *testing.T, c string) string {
	t.Helper()
	if _, ok := h.structs[c]; ok {
		return "type(" + c + ")"
	}
	if slices.Contains(h.enums, c) {
		return "integer(c_int)"
	}
	if c == "snd_event_handler" {
		return "type(c_funptr)"
	}
	kind, ok := map[string]string{"snd_status": "c_int32_t", "uint32_t": "c_int32_t", "int32_t": "c_int32_t", "uint64_t": "c_int64_t",
		"int64_t": "c_int64_t", "uint16_t": "c_int16_t", "uint8_t": "c_int8_t", "int": "c_int", "size_t": "c_size_t"}[c]
	if !ok {
		t.Fatalf("no Fortran type is known for %s: extend this test", c)
	}
	return "integer(" + kind + ")"
}

func (h *header) argument(t *testing.T, c string) part {
	t.Helper()
	m := cPart.FindStringSubmatch(c)
	if m == nil {
		t.Fatalf("cannot read the argument %q", c)
	}
	kind, name := m[1], fortranName(m[3])
	_, isStruct := h.structs[kind]
	intent := ", intent(out)"
	if strings.HasPrefix(c, "const ") {
		intent = ", intent(in)"
	}
	switch {
	case m[2] == "**":
		return part{name, "type(c_ptr), intent(out)"}
	case m[2] == "" && m[4] == "":
		return part{name, h.scalar(t, kind) + ", value"}
	case kind == "char":
		return part{name, "character(kind=c_char)" + intent}
	case isStruct || kind == "int" || strings.HasSuffix(kind, "_t"):
		return part{name, h.scalar(t, kind) + intent}
	}
	return part{name, "type(c_ptr), value"} // a handle, or memory of any type
}

var (
	fConstant = regexp.MustCompile(`(?m)^  integer\(\w+\), parameter :: (snd_\w+) = (-?[0-9]+)(?:\w*)( - 1)?`)
	fType     = regexp.MustCompile(`(?s)  type, bind\(c\) :: (\w+)\n(.*?)  end type`)
	fCall     = regexp.MustCompile(`(?s)    (?:function|subroutine) (\w+)\(([^)]*)\)(?: result\(r\))?(?: &\n *| )bind\(c(?:, name='(\w+)')?\)\n(.*?)    end `)
	fLine     = regexp.MustCompile(`(?m)^ +(.*?) :: (.*)$`)
)

// fortranParts returns the declarations in a type or an interface.
func fortranParts(text string) map[string]string {
	all := map[string]string{}
	for _, m := range fLine.FindAllStringSubmatch(text, -1) {
		kind := strings.NewReplacer("snd_status)", "c_int32_t)", "inout", "out", ", optional", "").Replace(m[1])
		for name := range strings.SplitSeq(m[2], ", ") {
			name, _, _ = strings.Cut(name, " = ")
			all[strings.TrimSuffix(name, "(*)")] = kind
		}
	}
	return all
}

func TestFortranConstants(t *testing.T) {
	fortran := map[string]int64{}
	for _, m := range fConstant.FindAllStringSubmatch(read(t, "fortran/softnd.f90"), -1) {
		fortran[m[1]] = number(t, m[1], m[2])
		if m[3] != "" { // the least number has no literal
			fortran[m[1]]--
		}
	}
	h := parseHeader(t)
	if len(h.constants) < 60 {
		t.Errorf("only %d constants read from softnd.h", len(h.constants))
	}
	for name, want := range h.constants {
		if want > 1<<31-1 {
			want -= 1 << 32 // Fortran has no unsigned numbers
		}
		switch got, ok := fortran[strings.ToLower(name)]; {
		case !ok:
			t.Errorf("softnd.f90 has no %s", strings.ToLower(name))
		case got != want:
			t.Errorf("%s is %d in softnd.f90, and %d in softnd.h", name, got, want)
		}
		delete(fortran, strings.ToLower(name))
	}
	for name := range fortran {
		t.Errorf("softnd.h has no constant like %s of softnd.f90", name)
	}
}

func TestFortranTypes(t *testing.T) {
	fortran := map[string]string{}
	for _, m := range fType.FindAllStringSubmatch(read(t, "fortran/softnd.f90"), -1) {
		fortran[m[1]] = m[2]
	}
	for name, want := range parseHeader(t).structs {
		// The order counts here, so the lines are compared.
		var lines []string
		for _, p := range want.parts {
			lines = append(lines, p.kind+" :: "+p.name)
		}
		var got []string
		for line := range strings.Lines(fortran[name]) {
			line, _, _ = strings.Cut(strings.TrimSpace(line), " = ")
			got = append(got, line)
		}
		if !slices.Equal(got, lines) {
			t.Errorf("type %s in softnd.f90:\n%s\nwant, as in softnd.h:\n%s", name, strings.Join(got, "\n"), strings.Join(lines, "\n"))
		}
	}
}

func TestFortranCalls(t *testing.T) {
	type call struct{ arguments, body string }
	fortran := map[string]call{}
	for _, m := range fCall.FindAllStringSubmatch(read(t, "fortran/softnd.f90"), -1) {
		name := m[1]
		if m[3] != "" {
			name = m[3]
		}
		fortran[name] = call{m[2], m[4]}
	}
	for name, want := range parseHeader(t).calls {
		got, ok := fortran[name]
		if !ok {
			t.Errorf("softnd.f90 has no %s", name)
			continue
		}
		var arguments []string
		kinds := fortranParts(got.body)
		for _, p := range want.parts {
			arguments = append(arguments, p.name)
			if kinds[p.name] != p.kind {
				t.Errorf("argument %s of %s is %q in softnd.f90, want %q", p.name, name, kinds[p.name], p.kind)
			}
		}
		if list := strings.Join(arguments, ", "); got.arguments != list {
			t.Errorf("%s has the arguments (%s) in softnd.f90, want (%s)", name, got.arguments, list)
		}
		if kinds["r"] != want.result {
			t.Errorf("%s returns %q in softnd.f90, want %q", name, kinds["r"], want.result)
		}
	}
}

// A compiler refuses a longer line.
func TestFortranLinesAreShort(t *testing.T) {
	for _, path := range []string{"fortran/softnd.f90", "tests/fortran.f90", "examples/hello.f90", "examples/heat.f90"} {
		n := 0
		for line := range strings.Lines(read(t, path)) {
			if n++; len(strings.TrimSuffix(line, "\n")) > 132 {
				t.Errorf("%s:%d: the line has %d characters, of which 132 count: continue it with & in the next line", path, n, len(line)-1)
			}
		}
	}
}

// TestCppCalls needs no types: the compiler checks the calls that softnd.hpp makes.
func TestCppCalls(t *testing.T) {
	text := cComment.ReplaceAllString(read(t, "include/softnd/softnd.hpp"), "")
	calls := parseHeader(t).calls
	if len(calls) < 80 {
		t.Errorf("only %d calls read from softnd.h", len(calls))
	}
	delete(calls, "snd_check") // softnd::check throws instead
	for name := range calls {
		if !regexp.MustCompile(`\b` + name + `\b`).MatchString(text) {
			t.Errorf("softnd.hpp does not use %s: add a member function", name)
		}
	}
	if m := regexp.MustCompile(`(?i)0x[0-9a-f]{8}`).FindString(text); m != "" {
		t.Errorf("softnd.hpp has the number %s: use the constant of softnd.h", m)
	}
}
