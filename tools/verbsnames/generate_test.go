package main

import (
	"os"
	"strings"
	"testing"
)

// The generated files are those of the present list.
func TestGeneratedFilesAreCurrent(t *testing.T) {
	t.Chdir("..")
	if err := run(true); err != nil {
		t.Error(err)
	}
}

// A line that the generator does not know is an error, not an omission.
func TestGenerateRejectsUnknownLines(t *testing.T) {
	list, err := os.ReadFile("../../" + listFile)
	if err != nil {
		t.Fatal(err)
	}
	for _, change := range [][2]string{
		{"ibv_alloc_pd built", "ibv_alloc_pd done"},
		{"ibv_alloc_pd built", "ibv_alloc_pd"},
		{"ibv_alloc_pd built", "ibv_alloc_pd built\nibv_alloc_pd built"},
		{"libibverbs IBVERBS_1.1\n", "libverbs IBVERBS_1.1\n"},
		{"libibverbs IBVERBS_1.1\n", "libibverbs\n"},
		{"libibverbs IBVERBS_1.1\n", "libibverbs IBVERBS_1.1 IBVERBS_1.2\n"},
		{"libibverbs private 34 57", "libibverbs privy 34 57"},
	} {
		text := strings.Replace(string(list), change[0], change[1], 1)
		if text == string(list) {
			t.Fatalf("the list does not contain %q", change[0])
		}
		if _, err := generate(text); err == nil {
			t.Errorf("the list with %q is accepted", change[1])
		}
	}
}
