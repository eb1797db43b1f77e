package bootstrap

import (
	"strings"
	"testing"
)

func TestHostInfoDecidesWhetherRanksShareAFabric(t *testing.T) {
	own := hostInfo{"boot", "net:[1]", 7, "here"}
	for _, tc := range []struct {
		other hostInfo
		want  string
	}{
		{own, ""},
		{hostInfo{"boot", "net:[1]", 7, "a container's name"}, ""},
		{hostInfo{"other", "net:[1]", 7, "there"}, "rank 3 runs on host there, rank 0 on host here; "},
		{hostInfo{"boot", "net:[2]", 7, "here"}, "rank 3 is in another network namespace (net:[2]) than rank 0 (net:[1])"},
		{hostInfo{"boot", "net:[1]", 8, "here"}, "rank 3 runs as user 8, rank 0 as user 7"},
	} {
		sent, err := parseHostInfo(tc.other.String())
		if err != nil || sent != tc.other || strings.ContainsAny(tc.other.String(), " \n") {
			t.Errorf("%+v arrives as %+v, %v", tc.other, sent, err)
		}
		if got := own.separated(sent, 3); (tc.want == "") != (got == "") || !strings.HasPrefix(got, tc.want) {
			t.Errorf("%+v: %q, want %q", tc.other, got, tc.want)
		}
	}
	if _, err := parseHostInfo("user=x"); err == nil {
		t.Error("a value without a user is accepted")
	}
}
