package main

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

const largestSize = 1 << 30

// parseSize parses a number of bytes, with an optional suffix for powers of 1024: 8, 64K, 1M, 1MiB.
func parseSize(text string) (int, error) {
	number := strings.ToUpper(strings.TrimSpace(text))
	number = strings.TrimSuffix(strings.TrimSuffix(number, "B"), "I")
	factor := 1
	for _, e := range []struct {
		ending string
		factor int
	}{{"K", 1 << 10}, {"M", 1 << 20}, {"G", 1 << 30}} {
		if rest, ok := strings.CutSuffix(number, e.ending); ok {
			number, factor = rest, e.factor
		}
	}
	n, err := strconv.Atoi(number)
	if err != nil {
		return 0, errors.New("want a size such as 8, 64K or 1M")
	}
	if n < 1 || n > largestSize/factor {
		return 0, fmt.Errorf("out of range: want 1 to %d bytes", largestSize)
	}
	return n * factor, nil
}
