package main

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
)

// pageFile lists the calls that are not built, for users.
const pageFile = "docs/verbs-unsupported.md"

// inlineHeading is that of a block of calls that verbs.h defines.
const inlineHeading = "inline"

// results says what a call that is not built returns, in the order of the page.
var results = [][2]string{{"errno", "return `EOPNOTSUPP`"}, {"minus", "return -1"}, {"null", "return NULL"}, {"zero", "return 0"}}

// page has the calls that are not built, by section and kind.
type page struct {
	sections []string
	calls    map[string][]string // by section and kind
}

// begin begins a block.
func (p *page) begin(library string, inline bool) {
	section := library
	if inline {
		section = "Inline calls of verbs.h"
	}
	if p.calls == nil {
		p.calls = map[string][]string{}
	}
	p.sections = slices.DeleteFunc(p.sections, func(s string) bool { return s == section })
	p.sections = append(p.sections, section)
}

func (p *page) add(name, kind string) {
	key := p.sections[len(p.sections)-1] + kind
	p.calls[key] = append(p.calls[key], name)
}

func (p *page) text() []byte {
	var b bytes.Buffer
	b.WriteString("# Verbs calls that are not supported\n\n`go -C tools run ./verbsnames` generates this page from [names.txt](../c/verbs/names.txt), and fails " +
		"with `-check` if the page is\nout of date. All other calls of rdma-core [work](verbs.md). Each call below sets `errno` to `EOPNOTSUPP`.\n")
	slices.Sort(p.sections)
	for _, section := range p.sections {
		fmt.Fprintf(&b, "\n## %s\n\n", section)
		for _, r := range results {
			if calls := slices.Sorted(slices.Values(p.calls[section+r[0]])); len(calls) > 0 {
				fmt.Fprintf(&b, "- %s: %s\n", r[1], "`"+strings.Join(calls, "`, `")+"`")
			}
		}
	}
	return b.Bytes()
}
