package faultplan

import (
	"fmt"
	"testing"

	"github.com/softnd/softnd/internal/vectors"
)

// The cases are rules, their digest, and then the events of a rank.
func TestVectorsOfFaults(t *testing.T) {
	var rules []Rule
	var in *Injector
	vectors.Check(t, "faults.txt", func(c vectors.Case) string {
		switch c.Kind() {
		case "rule":
			rules = append(rules, parse(c.Bytes(1)))
			return fmt.Sprintf("%x", len(rules))
		case "digest":
			return Digest(rules)
		case "rank":
			in = New(rules).For(int(int32(c.Number(1))))
			return fmt.Sprint(in != nil)
		}
		f, ok := in.Next(Event{Operation: Operation(c.Number(1)), Phase: Phase(c.Number(2)), Peer: int(int32(c.Number(3))),
			Endpoint: c.Number(4), Window: c.Number(5), Size: c.Number(6)})
		if !ok {
			return "0"
		}
		return fmt.Sprintf("%x", f.Number)
	})
}
