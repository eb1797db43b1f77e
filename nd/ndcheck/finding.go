package ndcheck

import (
	"fmt"
	"strings"
)

// Finding is one mistake of the program.
type Finding struct {
	Rule *Rule `json:"rule"`
	Rank int   `json:"rank"` // of the process that reports
	// The act, with the objects and the bytes, and the line of the program.
	What string `json:"what"`
	// Site is such as "cmd/grid/rank.go:42 (main.send)". The file is relative to the root of the program's module if that is known.
	Site string `json:"site,omitempty"`
	// Other is the second act, if the mistake consists of two. OtherRank did it at OtherSite.
	Other     string `json:"other,omitempty"`
	OtherSite string `json:"otherSite,omitempty"`
	OtherRank int    `json:"otherRank,omitempty"` // 0 also if there is no second act
	// Address and Length are the bytes concerned, in addresses of their owner. Length is 0 if there are none.
	Address uint64 `json:"address,omitempty"`
	Length  uint64 `json:"length,omitempty"`
	// Expected is the call of [nd.Expect] that has announced the finding; nil = none.
	Expected *Expectation `json:"expected,omitempty"`
}

// String returns the report: a line for the rule, a line for each act, one for the bytes, and one with the change that
// repairs it. The files have no directories, unless two files have one name.
func (f Finding) String() string {
	var b strings.Builder
	short := baseOf
	if file, _, _ := strings.Cut(f.Site, ":"); f.Other != "" && f.OtherSite != "" {
		if other, _, _ := strings.Cut(f.OtherSite, ":"); file != other && baseOf(file) == baseOf(other) {
			short = func(site string) string { return site }
		}
	}
	fmt.Fprintf(&b, "%s %s: %s\n", f.Rule.ID, f.Rule.Severity, f.Rule.Title)
	line := func(rank int, what, site string) {
		b.WriteString("  ")
		fmt.Fprintf(&b, "rank %d: %s", rank, what)
		if site != "" {
			b.WriteString(", at " + short(site))
		}
		b.WriteByte('\n')
	}
	line(f.Rank, f.What, f.Site)
	if f.Other != "" {
		line(f.OtherRank, f.Other, f.OtherSite)
	}
	if f.Length > 0 {
		fmt.Fprintf(&b, "  bytes: %d at %#x\n", f.Length, f.Address)
	}
	fmt.Fprintf(&b, "  fix: %s\n", f.Rule.Fix)
	return b.String()
}
