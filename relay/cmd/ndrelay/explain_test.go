package main

import (
	"errors"
	"strings"
	"testing"
)

func TestExplain(t *testing.T) {
	cause := errors.New("no link")
	for want, relays := range map[string][]string{
		"hosts 0 and 2 both have the address 172.17.0.1":                                          {"172.17.0.1:1", "10.0.0.2:1", "172.17.0.1:2"},
		"host 0 has the address 10.0.0.1 and host 1 fd00::1, and no link connects IPv4 with IPv6": {"10.0.0.1:1", "[fd00::1]:1"},
	} {
		if err := explain(cause, relays); !errors.Is(err, cause) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v", relays, err)
		}
	}
	for _, relays := range [][]string{{"10.0.0.1:1", "10.0.0.2:1"}, {"x"}} {
		if err := explain(cause, relays); err != cause {
			t.Errorf("%v: %v", relays, err)
		}
	}
}
