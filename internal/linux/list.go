package linux

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Lists of numbers such as 0-3,5, as the kernel writes lists of processors. Command lines and messages have them for ranks, too.

// ParseList parses a list of numbers and ranges such as "0-3,5", with numbers from 0 to max. The
// result has the order of the list.
func ParseList(list string, max int) ([]int, error) {
	var numbers []int
	for item := range strings.SplitSeq(list, ",") {
		from, to, isRange := strings.Cut(item, "-")
		if !isRange {
			to = from
		}
		first, err := strconv.Atoi(from)
		last, err2 := strconv.Atoi(to)
		if errors.Join(err, err2) != nil || first < 0 || strings.ContainsAny(item, "+ ") {
			return nil, fmt.Errorf("%q is not a number or range: want a list such as 0-3,5", item)
		}
		if last < first {
			return nil, fmt.Errorf("range %s is descending: want %d-%d", item, last, first)
		}
		if last > max {
			return nil, fmt.Errorf("number %d is too large: want at most %d", last, max)
		}
		for n := first; n <= last; n++ {
			numbers = append(numbers, n)
		}
	}
	return numbers, nil
}

// FormatList formats numbers in the syntax of [ParseList], in ascending order.
func FormatList(numbers []int) string {
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
