// Package numlist reads and writes lists of numbers as command lines and messages have
// them: 0-3,5.
package numlist

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Parse reads a list of numbers from 0 to most and of ranges, such as "0-3,5".
// The numbers stay in the order in which they are named.
func Parse(list string, most int) ([]int, error) {
	var numbers []int
	for item := range strings.SplitSeq(list, ",") {
		from, to, isRange := strings.Cut(item, "-")
		if !isRange {
			to = from
		}
		first, err := strconv.Atoi(from)
		last, err2 := strconv.Atoi(to)
		if errors.Join(err, err2) != nil || first < 0 || strings.ContainsAny(item, "+ ") {
			return nil, fmt.Errorf("%q is no number and no range: write a list such as 0-3,5", item)
		}
		if last < first {
			return nil, fmt.Errorf("the range %s runs backwards: write %d-%d", item, last, first)
		}
		if last > most {
			return nil, fmt.Errorf("%d is too large: numbers go up to %d", last, most)
		}
		for n := first; n <= last; n++ {
			numbers = append(numbers, n)
		}
	}
	return numbers, nil
}

// Format writes numbers as Parse reads them, in ascending order.
func Format(numbers []int) string {
	sorted := slices.Compact(slices.Sorted(slices.Values(numbers)))
	var items []string
	for len(sorted) > 0 {
		n := 1
		for n < len(sorted) && sorted[n] == sorted[0]+n {
			n++
		}
		item := strconv.Itoa(sorted[0])
		if n > 1 {
			item += "-" + strconv.Itoa(sorted[n-1])
		}
		items = append(items, item)
		sorted = sorted[n:]
	}
	return strings.Join(items, ",")
}
