package linux

import (
	"slices"
	"testing"
)

func TestNumbers(t *testing.T) {
	for list, want := range map[string][]int{
		"0": {0}, "3,1,2": {3, 1, 2}, "0-3,5": {0, 1, 2, 3, 5}, "2-2": {2}, "9": {9},
	} {
		if got, err := ParseList(list, 9); err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: %v, %v; want %v", list, got, err, want)
		}
	}
	for _, list := range []string{"", ",", "1,", "a", "-", "1-", "-1", "1-2-3", "+1", " 1", "0x1", "10", "1-10", "3-2", "99999999999999999999", "0-99999999999"} {
		if got, err := ParseList(list, 9); err == nil {
			t.Errorf("%q: %v, want an error", list, got)
		}
	}
	for want, numbers := range map[string][]int{
		"": nil, "0": {0}, "0-1": {1, 0}, "0,2": {2, 0, 2}, "0-3,5,7-8": {8, 7, 5, 3, 2, 1, 0},
	} {
		if got := FormatList(numbers); got != want {
			t.Errorf("%v: %s, want %s", numbers, got, want)
		}
	}
}
