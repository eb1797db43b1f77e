package measure

import (
	"slices"
	"strings"
	"testing"
)

func TestCheckHosts(t *testing.T) {
	over := []string{"write_lat", "read_lat", "send_lat", "write_bw", "read_bw", "send_bw", "msg_rate"}
	for _, test := range Tests() {
		err := test.Check(Options{Executor: "auto", Hosts: 2}, [2]bool{})
		if slices.Contains(over, test.Name) {
			if err != nil {
				t.Error(err)
			}
			if err := test.Check(Options{Executor: "target", Hosts: 2}, [2]bool{}); err == nil || !strings.Contains(err.Error(), "--executor") {
				t.Errorf("%s with executor target: %v", test.Name, err)
			}
		} else if err == nil || !strings.Contains(err.Error(), strings.Join(over, ", ")) {
			t.Errorf("%s: %v", test.Name, err)
		}
	}
}
