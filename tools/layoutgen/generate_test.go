package main

import (
	"os"
	"strings"
	"testing"

	"github.com/softnd/softnd/internal/layout"
)

// The generated files are those of the present layout and states.
func TestGeneratedFilesAreCurrent(t *testing.T) {
	t.Chdir("..")
	if err := run(true); err != nil {
		t.Error(err)
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

// A line of STATES.txt that the generator does not know is an error, too, and so is one at another place.
func TestGenerateStatesRejectsUnknownLines(t *testing.T) {
	text, err := os.ReadFile("../../internal/layout/STATES.txt")
	if err != nil {
		t.Fatal(err)
	}
	for _, change := range [][2]string{
		{"undoes: Connect has", "undoes Connect has"},
		{"connector\n", "connectors\n"},
		{"  1 requested", "  2 requested"},
		{"none: requests", "any: requests"},
		{"none: requests", "none: asks"},
		{"accepted: aborts -> aborted", "accepted: aborts -> ended"},
		{"accepted: abandons -> aborted\n", "accepted: aborts -> aborted\n"},
		{"connected: ends -> ended", "connected: ends"},
		{"\n\nendpoint\n", "\nendpoint\n"},
	} {
		changed := strings.Replace(string(text), change[0], change[1], 1)
		if changed == string(text) {
			t.Fatalf("STATES.txt does not contain %q", change[0])
		}
		if _, err := generateStates(changed); err == nil {
			t.Errorf("the states with %q are accepted", change[1])
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
