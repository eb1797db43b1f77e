package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// tree writes packages that import others, and returns their directory.
func tree(t *testing.T, imports map[string]string) string {
	t.Helper()
	root := t.TempDir()
	for file, imported := range imports {
		file = filepath.Join(root, file)
		if err := os.MkdirAll(filepath.Dir(file), 0o777); err != nil {
			t.Fatal(err)
		}
		text := "package p\n"
		for _, name := range strings.Fields(imported) {
			text += "import _ \"" + name + "\"\n"
		}
		if err := os.WriteFile(file, []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

var three = []box{{"top: the root", []string{"."}}, {"middle", []string{"a"}}, {"bottom", []string{"a/low", "b"}}}

func TestPicture(t *testing.T) {
	root := tree(t, map[string]string{
		"x.go":              module + "/a fmt " + module + "/b",
		"a/x.go":            module + "/a/low",
		"a/x_test.go":       module,
		"a/low/x.go":        "os",
		"b/x.go":            "",
		"tools/x.go":        module,
		"a/testdata/x/x.go": module,
	})
	want := "```mermaid\nflowchart TD\n    top[\"top: the root\"]\n    middle[\"middle\"]\n    bottom[\"bottom\"]\n    top --> middle\n    middle --> bottom\n```\n"
	if got, err := picture(root, three); err != nil || got != want {
		t.Errorf("%s, %v; want %s", got, err, want)
	}
}

func TestPictureRefuses(t *testing.T) {
	for want, imports := range map[string]map[string]string{
		"d has no box":              {"d/x.go": ""},
		"middle lead back to it":    {"a/x.go": module + "/b", "b/x.go": module + "/a"},
		"the root lead back to it:": {"x.go": module + "/b", "b/x.go": module + "/a", "a/x.go": module},
	} {
		if got, err := picture(tree(t, imports), three); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %s, %v", want, got, err)
		}
	}
}

func TestPictureIsReadable(t *testing.T) {
	if len(boxes) > 20 {
		t.Errorf("%d boxes", len(boxes))
	}
}
