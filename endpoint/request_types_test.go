package endpoint

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/softnd/softnd/endpoint/internal/mode"
	"github.com/softnd/softnd/faults"
	"github.com/softnd/softnd/nd"
	"github.com/softnd/softnd/nd/ndcompat"
)

// typePlaces are the places that must know each type of request. Each returns what is missing, or "".
var typePlaces = map[string]func(t *testing.T, r nd.RequestType) string{
	"mode.Request.OpName": func(_ *testing.T, r nd.RequestType) string {
		if r.Initiator() && opName(r) == r.String() {
			return "it has no name in errors"
		}
		return ""
	},
	"queuePair.execute": func(t *testing.T, r nd.RequestType) string {
		text, _, _ := strings.Cut(source(t, "."), "\nfunc (ep *queuePair) executeOneSided(")
		if _, text, _ = strings.Cut(text, "\nfunc (ep *queuePair) execute("); r.Initiator() && !strings.Contains(text, "nd."+r.String()) {
			return "no case executes it"
		}
		return ""
	},
	"nd.OperationStats": func(_ *testing.T, r nd.RequestType) string {
		if new(nd.OperationStats).Of(r) == nil {
			return "no counter counts its results"
		}
		return ""
	},
	"addStats": func(_ *testing.T, r nd.RequestType) string {
		one, sum := new(nd.OperationStats), nd.EndpointStats{}
		if count := one.Of(r); count != nil {
			count.Succeeded = 1
		}
		addStats(&sum, nd.EndpointStats{Operations: one})
		if *sum.Operations != *one {
			return "the sum of the closed endpoints lacks its results"
		}
		return ""
	},
	"nd/ndcheck": func(t *testing.T, r nd.RequestType) string {
		if !strings.Contains(source(t, "../nd/ndcheck"), "nd."+r.String()) {
			return "the checker never names it"
		}
		return ""
	},
	"nd/ndcompat": func(_ *testing.T, r nd.RequestType) string {
		if ndcompat.NDKOperationTypeOf(r) == 0 {
			return "it has no number of NDK"
		}
		return ""
	},
	"faults": func(_ *testing.T, r nd.RequestType) string {
		rule := faults.Rule{Operations: []string{strings.ReplaceAll(opName(r), " ", "-")}, Action: "kill"}
		if _, err := faults.New(1, rule); r.Initiator() && err != nil {
			return err.Error()
		}
		return ""
	},
	"endpoint/internal/mode/fault": func(t *testing.T, r nd.RequestType) string {
		if r.Initiator() && !strings.Contains(source(t, "internal/mode/fault"), fmt.Sprintf("%q:", opName(r))) {
			return "its table of operations lacks the name: no rule acts at the request"
		}
		return ""
	},
}

// unknownTypes has the types that a place does not have to know, with the reason.
var unknownTypes = map[string]map[string]string{
	"faults": {
		"RequestFetchAndAdd":    "a rule for Reads is about atomics",
		"RequestCompareAndSwap": "a rule for Reads is about atomics",
		"RequestSwap":           "a rule for Reads is about atomics",
	},
	"nd/ndcompat": {
		"RequestFetchAndAdd":           "NDK has no atomics",
		"RequestCompareAndSwap":        "NDK has no atomics",
		"RequestSwap":                  "NDK has no atomics",
		"RequestReceiveImmediate":      "NDK has no immediate data",
		"RequestReceiveWriteImmediate": "NDK has no immediate data",
	},
}

// TestRequestTypesAreKnown fails for a type of the core that one of the places does not know, which a default would hide.
func TestRequestTypesAreKnown(t *testing.T) {
	core := source(t, ".") + source(t, "internal/mode")
	n := 0
	for r := range nd.RequestType(0x10000) {
		if strings.HasPrefix(r.String(), "RequestType(") || !strings.Contains(core, "nd."+r.String()) {
			continue // no type, or one that the core does not serve
		}
		n++
		for place, missing := range typePlaces {
			text, reason := missing(t, r), unknownTypes[place][r.String()]
			if text != "" && reason == "" {
				t.Errorf("%s does not know %v: %s: see docs/new-request.md", place, r, text)
			}
			if text == "" && reason != "" {
				t.Errorf("%s knows %v: remove it from unknownTypes", place, r)
			}
		}
	}
	if n < 8 {
		t.Errorf("found %d types", n)
	}
}

// TestPostsAreChecked fails for a post of the core that package ndcheck does not declare: the checker's endpoint embeds
// [nd.Endpoint], so that the post compiles, and is not checked.
func TestPostsAreChecked(t *testing.T) {
	core, checker := source(t, "."), source(t, "../nd/ndcheck")
	posts := 0
	for m := range reflect.TypeFor[nd.Endpoint]().Methods() {
		isPost := m.Type.NumIn() > 0 && m.Type.In(0).Kind() == reflect.Uint64 // the first parameter of each is reqCtx
		if !isPost || !strings.Contains(core, "func (ep *queuePair) "+m.Name+"(") {
			continue
		}
		posts++
		if !strings.Contains(checker, "func (ep *endpoint) "+m.Name+"(") {
			t.Errorf("package ndcheck does not have %s: see docs/new-request.md", m.Name)
		}
	}
	if posts < 9 {
		t.Errorf("found %d posts", posts)
	}
}

func opName(r nd.RequestType) string { return (&mode.Request{Kind: r}).OpName() }

// source returns the text of the package in a folder, without its tests.
func source(t *testing.T, dir string) string {
	t.Helper()
	files, err := filepath.Glob(dir + "/*.go")
	if err != nil || len(files) == 0 {
		t.Fatalf("%d files in %s, %v", len(files), dir, err)
	}
	var all strings.Builder
	for _, f := range files {
		if strings.HasSuffix(f, "_test.go") {
			continue
		}
		text, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		all.Write(text)
	}
	return all.String()
}
