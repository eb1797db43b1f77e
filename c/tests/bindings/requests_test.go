package bindings

import (
	"regexp"
	"strings"
	"testing"
)

// typeSwitches are the functions of the library that must have a case for each type of an initiator request.
var typeSwitches = map[string]string{
	"snd_request_name": "src/endpoint/req_execute.c",
	"snd_execute":      "src/endpoint/req_execute.c",
	"operation_of":     "src/endpoint/fault.c",
	"allowed_flags":    "src/endpoint/qp_post.c",
	"post_one":         "src/endpoint/qp_post.c",
}

// TestSwitchesKnowRequests fails for a type of request that one of the switches leaves to its default.
func TestSwitchesKnowRequests(t *testing.T) {
	n := 0
	for name := range parseHeader(t).constants {
		if !strings.HasPrefix(name, "SND_REQUEST_") || strings.HasPrefix(name, "SND_REQUEST_RECEIVE") {
			continue
		}
		n++
		for function, path := range typeSwitches {
			body := regexp.MustCompile(`(?ms)^[a-z].*\b` + function + `\([^)]*\)\n\{.*?^\}`).FindString(read(t, path))
			if !strings.Contains(body, "case "+name+":") {
				t.Errorf("%s in %s has no case %s: see docs/new-request.md", function, path, name)
			}
		}
	}
	if n < 6 {
		t.Errorf("found %d types", n)
	}
}
