package flagnames

import "testing"

func TestJoin(t *testing.T) {
	names := []Name{{0x5, "Both"}, {0x1, "Low"}, {0x2, "Middle"}}
	for v, want := range map[uint32]string{
		0:    "0",
		0x1:  "Low",
		0x5:  "Both",
		0x7:  "Both|Middle",
		0x4:  "0x4",
		0x13: "Low|Middle|0x10",
	} {
		if got := Join(v, names); got != want {
			t.Errorf("Join(%#x) = %q, want %q", v, got, want)
		}
	}
}
