package main

import (
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
)

// docs/ndinfo.1 lists every option, and man prints no warnings for it.
func TestManualPage(t *testing.T) {
	page, err := os.ReadFile("../../docs/ndinfo.1")
	if err != nil {
		t.Fatal(err)
	}
	var help strings.Builder
	if status := run([]string{"-h"}, &help, &help); status != 0 {
		t.Fatalf("exit status %d: %s", status, &help)
	}
	options := regexp.MustCompile(`(?m)^  -([a-z]+)`).FindAllStringSubmatch(help.String(), -1)
	if len(options) == 0 {
		t.Fatalf("no options: %s", &help)
	}
	for _, option := range options {
		if !regexp.MustCompile(`(?m)^\.B \\-` + option[1] + `\b`).Match(page) {
			t.Errorf("docs/ndinfo.1: nothing about --%s", option[1])
		}
	}
	man, err := exec.LookPath("man")
	if err != nil {
		t.Skip("man is not installed: ", err)
	}
	cmd := exec.Command(man, "--warnings", "-l", "../../docs/ndinfo.1")
	cmd.Env = append(os.Environ(), "LC_ALL=C", "MANWIDTH=80")
	text, err := cmd.CombinedOutput()
	if err != nil || strings.Contains(string(text), "warning") || !strings.Contains(string(text), "ndinfo hang NAME") {
		t.Errorf("%v\n%s", err, text)
	}
}
