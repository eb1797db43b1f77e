package measure

import (
	"fmt"
	"slices"
	"strings"
)

// Names of the options that not all tests use, as in the command line of ndbench.
const (
	optionSize     = "--size"
	optionDepth    = "--depth"
	optionPairs    = "--pairs"
	optionInline   = "--inline"
	optionValidate = "--validate"
	optionEvents   = "--events"
	optionPrivate  = "--memory private"
)

// unused has the options that have no effect in a test. Tests of transfers use all that are not listed.
var unused = map[string][]string{
	"write_lat": {optionDepth}, "read_lat": {optionDepth, optionInline}, "send_lat": {optionDepth}, "write_completion": {optionDepth},
	"atomic_lat":      {optionSize, optionDepth, optionInline, optionValidate},
	"read_bw":         {optionInline},
	"bind_invalidate": {optionDepth, optionPairs, optionInline, optionValidate},
	"mr_lat":          {optionPairs, optionInline, optionValidate, optionEvents, optionPrivate},
	"mr_rate":         {optionPairs, optionInline, optionValidate, optionEvents, optionPrivate},
	"connect_rate":    {optionSize, optionDepth, optionPairs, optionInline, optionValidate, optionEvents, optionPrivate},
	"barrier":         {optionSize, optionDepth, optionPairs, optionInline, optionValidate, optionEvents, optionPrivate},
	"wakeup":          {optionSize, optionDepth, optionPairs, optionInline, optionValidate, optionEvents},
	"oversubscribed":  {optionDepth, optionPairs, optionInline, optionValidate, optionEvents},
	"blocked":         {optionSize, optionDepth, optionPairs, optionInline, optionValidate, optionEvents, optionPrivate},
	"alloc_noise":     {optionDepth, optionPairs, optionValidate},
	"arena_memory":    {optionSize, optionDepth, optionPairs, optionInline, optionValidate, optionEvents, optionPrivate},
}

// checkEffect returns an error if an option has no effect in the test.
func (t Test) checkEffect(o Options) error {
	var without []string
	for _, given := range []struct {
		option string
		is     bool
	}{
		{optionSize, len(o.Sizes) > 0}, {optionDepth, o.Depth > 0}, {optionPairs, o.Pairs > 1}, {optionInline, o.Inline},
		{optionValidate, o.Validate}, {optionEvents, o.Events}, {optionPrivate, o.Private},
	} {
		if given.is && slices.Contains(unused[t.Name], given.option) {
			without = append(without, given.option)
		}
	}
	if len(without) == 0 {
		return nil
	}
	return fmt.Errorf("%s: no effect in this test: %s: omit it, or choose another test", t.Name, strings.Join(without, ", "))
}
