package measure

import (
	"bufio"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/softnd/softnd/bench/report"
)

// recorded is what softnd_perf has answered to each command, by its first word. A sample has a line for each operation.
var recorded = map[string]string{
	"open": "ok 0.000", "close": "ok 0.000", "run": "ok 2000.000", "sample": "ok 4\n60.1\n70.2\n60.1\n9000.5",
	"line": "ok 50.000", "exchange": "ok 5.000", "memcpy": "ok 16.000",
}

// fakeHelper returns a helper that gives recorded answers, apart from those in special. Its commands are in the list when
// it has left.
func fakeHelper(rank int, special map[string]string) (pipes, func() []string) {
	commands, in := io.Pipe()
	out, answers := io.Pipe()
	left := make(chan []string, 1)
	go func() {
		var all []string
		fmt.Fprintln(answers, "softnd_perf 1")
		for lines := bufio.NewScanner(commands); lines.Scan(); {
			all = append(all, lines.Text())
			word, _, _ := strings.Cut(lines.Text(), " ")
			answer, ok := special[word]
			switch {
			case ok:
			case word == "sample" && rank == 1:
				answer = "ok 0"
			default:
				answer = recorded[word]
			}
			if answer == "" { // it exits
				break
			}
			fmt.Fprintln(answers, answer)
		}
		commands.Close()
		answers.Close()
		left <- all
	}()
	return pipes{out, in}, func() []string { return <-left }
}

// pipes are the standard output and input of a helper.
type pipes struct {
	io.Reader
	io.WriteCloser
}

// TestHelpers: two helpers get the same commands, and the results contain their figures.
func TestHelpers(t *testing.T) {
	for _, c := range []struct {
		test         string
		o            Options
		value, ratio float64
		p50          float64 // 0 = no distribution
		open         string
	}{
		{"write_lat", Options{}, 250, 5, 30, "open write_lat 8 1 0 0 1 0 0 0 0"},
		{"send_lat", Options{Inline: true}, 250, 5, 30, "open send_lat 8 2 64 1 1 0 0 0 1"},
		{"read_lat", Options{Pairs: 3}, 500, 10, 60.1, "open read_lat 8 1 0 0 3 0 0 0 0"},
		{"write_completion", Options{}, 500, 5, 60.1, "open write_completion 8 1 0 0 1 0 1 1 0"},
		{"write_bw", Options{Sizes: []int{64}}, 128, 0.032, 914.3, "open write_bw 64 64 0 0 1 0 0 0 0"},
		{"msg_rate", Options{}, 2e6, 0.1, 0, "open msg_rate 8 128 256 0 1 1 0 0 0"},
		{"posted", Options{Depth: 1, Executor: "target"}, 500, 100, 60, "open posted 8 1 0 0 1 0 0 1 0"},
		{"bind_invalidate", Options{Sizes: []int{64}}, 500, 100, 60.1, "open bind_invalidate 64 1 0 0 1 0 0 0 0"},
	} {
		t.Run(c.test, func(t *testing.T) {
			c.o.Iterations, c.o.Repeats, c.o.WarmUp = 4, 3, 2
			found, commands, err := runHelpers(t, c.test, c.o, nil)
			if err != nil {
				t.Fatal(err)
			}
			wellFormed(t, found)
			if len(found) != 1 || found[0].Value != c.value || found[0].Limit == nil || found[0].Limit.Ratio != c.ratio || len(found[0].Repeats) != 3 {
				t.Fatalf("%+v\nwant one of %v, %v of the limit", found, c.value, c.ratio)
			}
			p50 := 0.0
			if d := found[0].Distribution; d != nil {
				p50 = d.P50
			}
			if p50 < 0.99*c.p50 || p50 > 1.01*c.p50 {
				t.Errorf("p50 is %v, want %v", p50, c.p50)
			}
			if !slices.Equal(commands[0], commands[1]) {
				t.Errorf("rank 0 got %q\nrank 1 got %q", commands[0], commands[1])
			}
			if first, last := commands[0][0], commands[0][len(commands[0])-1]; first != c.open || last != "close" {
				t.Errorf("from %q to %q, want from %q to close", first, last, c.open)
			}
		})
	}
}

// runHelpers runs a test with two fake helpers. It returns the commands of both.
func runHelpers(t *testing.T, test string, o Options, special map[string]string) ([]report.Result, [2][]string, error) {
	t.Helper()
	var helpers [2]pipes
	var commands [2]func() []string
	for rank := range helpers {
		helpers[rank], commands[rank] = fakeHelper(rank, special)
	}
	w, err := NewWorld(t.Context(), nil, false, [2]io.ReadWriter{helpers[0], helpers[1]}, nil)
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(Tests(), func(m Test) bool { return m.Name == test })
	found, err := Tests()[i].Run(t.Context(), w, o)
	var got [2][]string
	for rank, h := range helpers {
		h.Close()
		io.Copy(io.Discard, h)
		got[rank] = commands[rank]()
	}
	return found, got, err
}

func TestHelpersThatFail(t *testing.T) {
	for answer, want := range map[string]string{
		"": "rank 0, a helper: it has exited", "ok": `answer "ok": want ok and a number`, "ok -1": "want ok and a number",
		"ok NaN": "want ok and a number", "failed": `answer "failed"`, "ok 3": "3 operations timed, want 4",
		"ok 4\n1\nx": `operation of "x" ns`,
	} {
		_, _, err := runHelpers(t, "read_lat", Options{Iterations: 4, Repeats: 1}, map[string]string{"sample": answer})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("answer %q: %v, want %q", answer, err, want)
		}
	}
	other := pipes{Reader: strings.NewReader("softnd_perf 0\n")}
	if _, err := NewWorld(t.Context(), nil, false, [2]io.ReadWriter{other, other}, nil); err == nil || !strings.Contains(err.Error(), "build it from the same revision") {
		t.Errorf("another greeting: %v", err)
	}
}

// TestCheckHelpers: an option that helpers lack is an error before the measurement.
func TestCheckHelpers(t *testing.T) {
	both, mixed := [2]bool{true, true}, [2]bool{true, false}
	for _, c := range []struct {
		test   string
		o      Options
		helped [2]bool
		want   string
	}{
		{"write_lat", Options{Inline: true, Private: true, Pairs: 64}, mixed, ""},
		{"bind_invalidate", Options{}, both, ""},
		{"bind_invalidate", Options{}, mixed, "ranks in different languages"},
		{"barrier", Options{}, both, "ranks in C"},
		{"barrier", Options{}, [2]bool{}, ""},
		{"write_bw", Options{Bidirectional: true}, both, "--bidirectional"},
		{"send_lat", Options{Events: true}, both, "--events"},
		{"send_lat", Options{Validate: true}, both, "--validate"},
	} {
		i := slices.IndexFunc(Tests(), func(m Test) bool { return m.Name == c.test })
		err := Tests()[i].Check(c.o, c.helped)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.test, err, c.want)
		}
	}
}
