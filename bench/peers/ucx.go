package peers

import (
	"encoding/csv"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// ucxTest is a test of ucx_perftest: of package uct, the transports themselves, or of ucp, the layer for programs.
type ucxTest struct {
	name  string
	uct   bool
	least int // smallest size that it takes
	limit int // largest size that it takes, 0 = any
}

const (
	ucxHeader = 8  // the part of an active message of uct that ucx_perftest takes for its header
	ucxShort  = 92 // payload that fits into each short active message of uct
)

var ucxTests = map[string][]ucxTest{
	"write_lat": {{name: "put_lat", uct: true}, {name: "ucp_put_lat"}},
	"posted":    {{name: "put_bw", uct: true}},
	"write_bw":  {{name: "put_bw", uct: true}, {name: "ucp_put_bw"}},
	"send_lat":  {{"am_lat", true, ucxHeader, ucxShort}, {name: "ucp_am_lat"}, {name: "tag_lat"}},
	"send_bw":   {{"am_bw", true, ucxHeader, ucxShort}, {name: "ucp_am_bw"}, {name: "tag_bw"}},
	"msg_rate":  {{"am_bw", true, ucxHeader, ucxShort}, {name: "ucp_am_bw"}, {name: "tag_bw"}},
}

func ucx(s *session, f Figure) []*way {
	var ways []*way
	for _, t := range ucxTests[f.Test] {
		if f.Size < t.least || t.limit > 0 && f.Size > t.limit {
			continue
		}
		ways = append(ways, &way{name: t.name, run: s.repeats(t.pair(f.Size))})
	}
	return ways
}

func (t ucxTest) pair(size int) pair {
	run := func(more ...string) program {
		env := []string{"UCX_TLS=posix,cma", "UCX_WARN_UNUSED_ENV_VARS=n"}
		return program{argv: append([]string{"ucx_perftest"}, more...), env: env}
	}
	return pair{
		server: func(port string, n int) program { return run("-p", port) },
		client: func(port string, n int) program {
			argv := []string{"127.0.0.1", "-p", port, "-f", "-v", "-t", t.name, "-s", strconv.Itoa(size),
				"-n", strconv.Itoa(n), "-w", strconv.Itoa(n/10 + 1)}
			if t.uct {
				argv = append(argv, "-x", "posix", "-d", "memory")
			}
			return run(argv...)
		},
		parse: parseUCX,
	}
}

// parseUCX reads the table with commas: a line of names, a line of figures, and between them warnings of UCX in
// brackets. The rate has more digits than the time. In latency tests it is the rate of half round trips.
func parseUCX(output string) (float64, error) {
	const column = "overall_mr"
	names, figures, complaint := "", "", ""
	for line := range strings.Lines(output) {
		line = strings.TrimSpace(line)
		switch {
		case strings.HasPrefix(line, "["):
			complaint = line
		case strings.HasPrefix(line, "iterations,"):
			names = line
		case names != "" && line != "" && figures == "":
			figures = line
		}
	}
	wrong := func(line, expected string) error {
		if complaint != "" {
			line = complaint
		}
		return fmt.Errorf("ucx_perftest: line %q: expected %s", line, expected)
	}
	switch {
	case names == "":
		return 0, wrong(firstLine(output), "names of columns, \"iterations,...\"")
	case figures == "":
		return 0, wrong(names, "a line of figures below it")
	}
	head, err := csv.NewReader(strings.NewReader(names)).Read()
	if err != nil {
		return 0, wrong(names, "names of columns with commas between")
	}
	at := slices.Index(head, column)
	if at < 0 {
		return 0, wrong(names, "a column "+column)
	}
	row, err := csv.NewReader(strings.NewReader(figures)).Read()
	if err != nil || len(row) != len(head) {
		return 0, wrong(figures, fmt.Sprintf("%d figures with commas between", len(head)))
	}
	rate, err := strconv.ParseFloat(strings.TrimSpace(row[at]), 64)
	if err != nil || !(rate > 0) {
		return 0, wrong(figures, "a rate in column "+column)
	}
	return 1e9 / rate, nil
}

// firstLine returns the first line of a text that is not empty.
func firstLine(text string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(text), "\n")
	return line
}
