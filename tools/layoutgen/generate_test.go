package main

import (
	"bytes"
	"os"
	"strings"
	"testing"

	"github.com/softnd/softnd/internal/layout"
)

// The generated C files are those of the present layout.
func TestGeneratedFilesAreCurrent(t *testing.T) {
	header, asserts, err := generate(layout.Text)
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string][]byte{headerFile: header, checkFile: asserts} {
		if have, err := os.ReadFile("../../" + name); err != nil {
			t.Error(err)
		} else if !bytes.Equal(have, want) {
			t.Errorf("%s is out of date: run go -C tools run ./layoutgen", name)
		}
	}
}

// A line of LAYOUT.txt that the generator does not know is an error, not an omission.
func TestGenerateRejectsUnknownLines(t *testing.T) {
	for _, change := range [][2]string{
		{"shm.rankRecord 64 bytes", "shm.unknown 64 bytes"},
		{"  7 WriteInEntry", "  7 OtherEntry"},
		{"  bits 20..31 tag", "  bits 20..31 label"},
		{"6 aborted", "6 aborted, 7 suspended"},
		{"header at 0, 4096 bytes", "header at 0"},
		{"   128    8 deaths", "   128 deaths"},
	} {
		text := strings.Replace(layout.Text, change[0], change[1], 1)
		if text == layout.Text {
			t.Fatalf("LAYOUT.txt does not contain %q", change[0])
		}
		if _, _, err := generate(text); err == nil {
			t.Errorf("the layout with %q is accepted", change[1])
		}
	}
}

func TestSnake(t *testing.T) {
	for name, want := range map[string]string{"pidNS": "pid_ns", "ReadIn": "read_in", "seq": "seq", "QP": "qp", "livenessRequests": "liveness_requests"} {
		if got := snake(name); got != want {
			t.Errorf("snake(%q) = %q, want %q", name, got, want)
		}
	}
}
