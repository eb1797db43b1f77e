package bootstrap

import (
	"slices"
	"strings"
	"testing"
)

func TestRanksAreGroupedIntoHosts(t *testing.T) {
	own := hostInfo{"boot", "net:[1]", 7, "here"}
	infos := []hostInfo{
		own,
		{"other", "net:[1]", 7, "there"},
		{"boot", "net:[1]", 7, "a container's name"},
		{"boot", "net:[2]", 7, "here"},
		{"boot", "net:[1]", 8, "here"},
		{"other", "net:[1]", 7, "there"},
	}
	for i, info := range infos {
		sent, err := parseHostInfo(info.String())
		if err != nil || sent != info || strings.ContainsAny(info.String(), " \n") {
			t.Errorf("%+v arrives as %+v, %v", info, sent, err)
		}
		infos[i] = sent
	}
	if of, count := group(infos); count != 4 || !slices.Equal(of, []int{0, 1, 0, 2, 3, 1}) {
		t.Errorf("%d hosts: %v", count, of)
	}
	if of, count := group(infos[:1]); count != 1 || len(of) != 1 {
		t.Errorf("one rank: %d hosts, %v", count, of)
	}
	if _, err := parseHostInfo("user=x"); err == nil {
		t.Error("a value without a user is accepted")
	}
}
