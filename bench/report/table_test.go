package report

import (
	"bytes"
	"testing"
)

const table = `Example(R) Processor 9000, 2 cores, kernel 6.18.44, linux/amd64, go1.26.8
softnd unknown, 2026-03-04 05:06 UTC, ndbench suite --quick

write_lat (less is better)
  provider    size  settings                                                                          median  95 % from       to  of limit    limit              p50      p99    p99.9  p99.99      max  note
  softnd    64 KiB  depth 16, 64 pairs, 4 ranks, events, target executes, private memory, both ways  4.32 µs    4.30 µs  4.40 µs    1.73 ×  2.50 µs  memcpy  4.32 µs  5.00 µs  12.5 µs  100 µs  1.50 ms  one, "two"; three
  ucx          8 B  not pinned                                                                       61.2 ns    61.2 ns  61.2 ns

send_bw (more is better)
  provider   size  settings     median  95 % from         to  of limit      limit
  softnd    1 MiB  depth 8   12.3 GB/s  12.0 GB/s  12.5 GB/s   0.950 ×  13.0 GB/s  memcpy
`

func TestTable(t *testing.T) {
	var b bytes.Buffer
	if err := sample().WriteTable(&b); err != nil {
		t.Fatal(err)
	}
	if b.String() != table {
		t.Errorf("got\n%s\nwant\n%s", b.String(), table)
	}
}

func TestFiguresForPeople(t *testing.T) {
	for _, c := range []struct{ got, want string }{
		{Figure(0, "B"), "0 B"},
		{Figure(8, "B"), "8 B"},
		{Figure(1000, "B"), "1000 B"},
		{Figure(1024, "B"), "1 KiB"},
		{Figure(1536, "B"), "1.50 KiB"},
		{Figure(64<<10, "B"), "64 KiB"},
		{Figure(1<<20, "B"), "1 MiB"},
		{Figure(0, "ns"), "0 ns"},
		{Figure(0.12345, "ns"), "0.123 ns"},
		{Figure(9.996, "ns"), "10.0 ns"},
		{Figure(61.25, "ns"), "61.2 ns"},
		{Figure(99.96, "ns"), "100 ns"},
		{Figure(999.7, "ns"), "1.00 µs"},
		{Figure(2.5e9, "ns"), "2.50 s"},
		{Figure(12345, "MB/s"), "12.3 GB/s"},
		{Figure(34.5e6, "msg/s"), "34.5 M msg/s"},
		{Figure(1200, "ops/s"), "1.20 k ops/s"},
		{Figure(2<<20, "B"), "2 MiB"},
		{Figure(0.00123, "%"), "0.00123 %"},
		{Figure(1.084, "ratio"), "1.08"},
	} {
		if c.got != c.want {
			t.Errorf("got %q, want %q", c.got, c.want)
		}
	}
}
