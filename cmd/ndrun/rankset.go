package main

import (
	"fmt"
	"slices"

	"github.com/softnd/softnd/internal/numlist"
)

// rankSet is a choice of ranks. The zero value has none.
type rankSet struct {
	text    string // as the user wrote it
	all     bool
	numbers []int
}

func parseRanks(text string) (rankSet, error) {
	if text == "all" {
		return rankSet{text: text, all: true}, nil
	}
	numbers, err := numlist.Parse(text, maxRanks-1)
	return rankSet{text: text, numbers: numbers}, err
}

func (s rankSet) has(rank int) bool { return s.all || slices.Contains(s.numbers, rank) }

// within returns an error if the set names a rank that a job of that size does not have.
func (s rankSet) within(size int) error {
	for _, n := range s.numbers {
		if n >= size {
			return fmt.Errorf("there is no rank %d: the job has the ranks %s", n, numlist.Format(upTo(size)))
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
