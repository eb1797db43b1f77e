package peers

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// libfabric has only one test.
func libfabric(s *session, f Figure) []*way {
	if f.Test != "send_lat" {
		return nil
	}
	return []*way{{name: "fi_pingpong -p shm", run: s.repeats(fabricPair([]string{"fi_pingpong", "-p", "shm"}, f.Size, "127.0.0.1"))}}
}

// fabricPair returns the measurement by a program of libfabric. Its client finds the server at an address.
func fabricPair(argv []string, size int, address string) pair {
	run := func(n int, more ...string) program {
		all := append(slices.Clone(argv), "-e", "rdm", "-S", strconv.Itoa(size), "-I", strconv.Itoa(n))
		return program{argv: append(all, more...)}
	}
	return pair{
		server: func(port string, n int) program { return run(n, "-B", port) },
		client: func(port string, n int) program { return run(n, "-P", port, address) },
		parse:  parsePingpong,
	}
}

// parsePingpong reads what fi_pingpong and the programs of fabtests write: a line of names and a line of figures, separated by spaces. The time of a transfer and the bytes
// per microsecond have two decimals each, so the larger of them is more precise.
func parsePingpong(output string) (float64, error) {
	var head, row []string
	var line string
	for l := range strings.Lines(output) {
		f := strings.Fields(l)
		if len(f) > 0 && f[0] == "bytes" {
			head = f
		} else if head != nil && len(f) > 0 {
			row, line = f, strings.TrimSpace(l)
			break
		}
	}
	wrong := func(line, expected string) error {
		return fmt.Errorf("fi_pingpong: line %q: expected %s", line, expected)
	}
	if head == nil {
		return 0, wrong(firstLine(output), "names of columns, \"bytes ...\"")
	}
	if len(row) != len(head) {
		return 0, wrong(line, fmt.Sprintf("%d figures, one for each of %v", len(head), head))
	}
	value := func(name string) float64 {
		at := slices.Index(head, name)
		if at < 0 {
			return 0
		}
		v, _ := strconv.ParseFloat(row[at], 64)
		return v
	}
	size, err := bytesOf(row[0])
	micros, perMicro := value("usec/xfer"), value("MB/sec")
	switch {
	case err != nil:
		return 0, wrong(line, "a size")
	case micros > perMicro:
		return micros * 1e3, nil
	case perMicro > 0:
		return size / perMicro * 1e3, nil
	default:
		return 0, wrong(line, "figures above 0 for usec/xfer and MB/sec")
	}
}

// bytesOf parses a size as fi_pingpong writes it: 8, 1.5k, 1m.
func bytesOf(text string) (float64, error) {
	factor := 1.0
	for i, suffix := range []string{"k", "m", "g"} {
		if cut, ok := strings.CutSuffix(text, suffix); ok {
			text, factor = cut, float64(int(1)<<(10*(i+1)))
		}
	}
	n, err := strconv.ParseFloat(text, 64)
	return n * factor, err
}
