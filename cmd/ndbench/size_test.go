package main

import "testing"

func TestSizes(t *testing.T) {
	for text, want := range map[string]int{
		"1": 1, "8": 8, "8B": 8, "64K": 64 << 10, "64k": 64 << 10, "64KiB": 64 << 10, "1M": 1 << 20, "1mb": 1 << 20, "1G": 1 << 30, " 2K ": 2048,
	} {
		if got, err := parseSize(text); err != nil || got != want {
			t.Errorf("parseSize(%q) = %d, %v, want %d", text, got, err, want)
		}
	}
	for _, text := range []string{"", "0", "-1", "K", "1.5K", "12Q", "2G", "1KK", "99999999999999999999", "9999999999G"} {
		if got, err := parseSize(text); err == nil {
			t.Errorf("parseSize(%q) = %d, want an error", text, got)
		}
	}
}
