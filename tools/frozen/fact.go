package main

import (
	"cmp"
	_ "embed"
	"fmt"
	"io"
	"slices"
	"strings"
)

// sizes is the kind of the facts that are meant to change.
const sizes = "size"

// fact is something that a restructuring must keep.
type fact struct {
	kind, name string
	value      string
	places     []string // files or packages, sorted, one for each time that it is there
}

func (f fact) String() string {
	return strings.Join([]string{f.kind, f.name, f.value, strings.Join(f.places, " ")}, "\t")
}

// facts collects facts by kind, name and value.
type facts map[[3]string][]string

func (all facts) add(kind, name, value string, places ...string) {
	key := [3]string{kind, name, value}
	all[key] = append(all[key], places...)
}

func (all facts) sorted() []fact {
	var list []fact
	for key, places := range all {
		slices.Sort(places)
		list = append(list, fact{key[0], key[1], key[2], places})
	}
	slices.SortFunc(list, func(a, b fact) int {
		return cmp.Or(cmp.Compare(a.kind, b.kind), cmp.Compare(a.name, b.name), cmp.Compare(a.value, b.value))
	})
	return list
}

// parse reads the facts that printFacts has written.
func parse(text string) []fact {
	all := make(facts)
	for line := range strings.Lines(text) {
		f := strings.Split(strings.TrimRight(line, "\n"), "\t")
		all.add(f[0], f[1], f[2], strings.Fields(f[3])...)
	}
	return all.sorted()
}

//go:embed renamed.txt
var renamed string

// rename returns facts of tests under the names that the tests have now, according to a text like renamed.txt.
func rename(old []fact, text string) []fact {
	names := make(map[[2]string]string)
	for line := range strings.Lines(text) {
		if f := strings.Fields(line); f[0] != "#" {
			names[[2]string{f[0], f[1]}] = f[2]
		}
	}
	all := make(facts)
	for _, f := range old {
		if !strings.HasPrefix(f.kind, "test ") {
			all.add(f.kind, f.name, f.value, f.places...)
			continue
		}
		if len(f.places) == 0 { // of C
			all.add(f.kind, cmp.Or(names[[2]string{f.name, "c"}], f.name), f.value)
			continue
		}
		for _, place := range f.places {
			name := cmp.Or(names[[2]string{f.name, place}], f.name)
			if key := [3]string{f.kind, name, f.value}; !slices.Contains(all[key], place) {
				all.add(f.kind, name, f.value, place)
			}
		}
	}
	return all.sorted()
}

// printChanges writes how new differs from old, and reports whether a fact is lost or has another value.
func printChanges(out io.Writer, old, new []fact) bool {
	type key struct{ kind, name string }
	find := make(map[key]fact)
	for _, f := range new {
		find[key{f.kind, f.name}] = f
	}
	count := make(map[string]int)
	say := func(what string, f fact, from, to string) {
		count[what]++
		fmt.Fprintf(out, "%-8s %s %s: %s -> %s\n", what, f.kind, f.name, from, to)
	}
	for _, was := range old {
		k := key{was.kind, was.name}
		is, found := find[k]
		delete(find, k)
		switch before, after := strings.Join(was.places, " "), strings.Join(is.places, " "); {
		case !found:
			say("lost", was, strings.TrimSpace(was.value+" "+before), "nothing")
		case was.kind == sizes:
			if was.value != is.value {
				say("size", was, was.value, is.value)
			}
		case was.value != is.value:
			say("changed", was, was.value, is.value)
		case len(was.places) > len(is.places):
			say("fewer", was, before, after)
		case len(was.places) < len(is.places):
			say("more", was, before, after)
		case before != after:
			say("moved", was, before, after)
		}
	}
	for _, f := range new {
		if _, isNew := find[key{f.kind, f.name}]; isNew {
			say("new", f, "nothing", strings.TrimSpace(f.value+" "+strings.Join(f.places, " ")))
		}
	}
	fmt.Fprintf(out, "%d lost, %d changed, %d fewer, %d more, %d moved, %d new, %d sizes\n",
		count["lost"], count["changed"], count["fewer"], count["more"], count["moved"], count["new"], count["size"])
	return count["lost"]+count["changed"]+count["fewer"] > 0
}
