package main

import (
	"fmt"
	"slices"

	"github.com/softnd/softnd/internal/linux"
)

// rankSet is a set of ranks. The zero value is empty.
type rankSet struct {
	text    string // as the user wrote it
	all     bool
	numbers []int
}

func parseRanks(text string) (rankSet, error) {
	if text == "all" {
		return rankSet{text: text, all: true}, nil
	}
	numbers, err := linux.ParseList(text, maxRanks-1)
	return rankSet{text: text, numbers: numbers}, err
}

func (s rankSet) has(rank int) bool { return s.all || slices.Contains(s.numbers, rank) }

// checkSize returns an error if the set has a rank that a job of that size does not have.
func (s rankSet) checkSize(size int) error {
	for _, n := range s.numbers {
		if n >= size {
			return fmt.Errorf("rank %d does not exist: want some of %s", n, linux.FormatList(upTo(size)))
		}
	}
	return nil
}

func upTo(n int) []int {
	numbers := make([]int, n)
	for i := range numbers {
		numbers[i] = i
	}
	return numbers
}
