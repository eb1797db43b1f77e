package ndcheck_test

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"testing"

	"github.com/softnd/softnd/nd/ndcheck"
)

var update = flag.Bool("update", false, "write docs/check.md instead of comparing it")

const pageFile = "../../docs/check.md"

const pageHead = `# The checker

The checker watches how a program uses softnd, and reports mistakes. A report names
the rule, the ranks, the objects, the bytes, the lines of the program, and the fix. The checker finds mistakes that succeed by
luck, such as a buffer that changes while a request sends it. It also explains failures that a status cannot explain. For example, it
names the rank that has invalidated a token, the line, and the time.

    go run ./cmd/ndrun --check -n 4 ./program
    go run ./cmd/ndrun --check=findings.json -n 4 ./program

A report looks like this:

    [1] softnd check: N101 error: token used after its invalidation
    [1]   rank 1: Write 7 of endpoint 4, 64 bytes failed: access violation: it used the token of a window, at writer.go:74 (main.flood)
    [1]   rank 0: ended the token of window 2 of rank 0, 1.8ms before this report, at owner.go:134 (main.invalidate)
    [1]   fix: take the peer's last result through the token before you invalidate it, or let the peer call SendAndInvalidate

- Each finding is printed once for the same rule and lines. At the end, ` + "`" + `ndrun` + "`" + ` prints how many there were. It exits with status 4 if
  everything else has succeeded but a finding is an error.
- ` + "`" + `--check=FILE` + "`" + ` also writes the findings to FILE. If FILE ends with ` + "`" + `.json` + "`" + `, the format is JSON, as
  [findings.schema.json](../nd/ndcheck/findings.schema.json) says. If FILE ends with ` + "`" + `.sarif` + "`" + `, it is SARIF 2.1.0. With ` + "`" + `--check=json` + "`" + ` or
  ` + "`" + `--check=sarif` + "`" + `, the findings follow the output of the job.
- Without ` + "`" + `ndrun` + "`" + `, set ` + "`" + `SOFTND_CHECK=1` + "`" + `. The checker then knows one process only, and says less about other ranks. The same holds for jobs of
  ` + "`" + `softnd.Join` + "`" + `, and for ranks whose wrapper closes their descriptors, as ` + "`" + `sudo` + "`" + ` does.
- In a test, pass ` + "`" + `softnd.WithChecker` + "`" + ` to ` + "`" + `softnd.Join` + "`" + ` or ` + "`" + `softndtest.Run` + "`" + `, or wrap any provider with ` + "`" + `ndcheck.Wrap` + "`" + `.
- Programs in C are not watched.
- The checker gives requests and endpoints numbers of its own. Events of the logger show these, and results have those of the program.

## What it costs

The time of a Write and of taking its result, as ` + "`go test -bench Write ./nd/ndcheck`" + ` reports it:

| bytes | without the checker | one process | with the journal of a job, as under ` + "`ndrun`" + ` |
|---|---|---|---|
| 8 | 0.05 µs | 1.9 µs | 12 µs |
| 65,536 | 0.8 µs | 27 µs | 31 µs |

Each figure is the smallest of three, on two processors of an AMD EPYC that had other work, in November 2026. The checker reads
the buffers of each request twice. A Write takes the lock of the journal four times.
Programs without the checker pay nothing, because the checker is a wrapper around the adapter.

## Requests in flight

A request is in flight from its post until the program has taken its result. A request with ` + "`" + `SilentSuccess` + "`" + ` is in flight until the
program has taken the result of a later request of the same endpoint. There are two exceptions, which avoid false reports:

- A message of the peer may say that earlier requests are complete. So when the program takes the result of a Receive, or passes a
  barrier, it may change the buffers of all requests before its last Send.
- A Send orders the Writes before it on the same endpoint before everything that its receiver does afterwards.

## What it cannot know

- It cannot see loads and stores of the program. It notices a changed buffer by its content, so it misses a change back
  to the same bytes. Of each buffer of a Receive, it compares the last 4 KiB behind the message. It ignores messages without bytes.
- A Write of a word of up to 8 bytes and a Read of the same word are not a conflict (N301): programs poll flags that way. A program that
  reads more, and detects a mixture of old and new bytes by a checksum, may ignore the report.
- A process that synchronises by other means than messages, barriers and disconnections, such as TCP, may ignore N303.
- A wait is hopeless (N703) only if no other goroutine is about to post. The checker reports it if none has posted for 0.5 s.
- It cannot know what is on purpose. The example ` + "`revoke`" + ` revokes access that its peers use, so it breaks N101, N107, N303 and N506.
- Accesses of a process that has died are forgotten. If a stopped process keeps the journal of the job locked, the
  others go on after 1 s, and report less until it continues.
- A rank that writes over the journal can cause wrong findings, but no failure.

## Rules

The identifiers do not change. An *error* is a mistake: the data is undefined, or the connection ends. A *warning* is code that works
by luck, or fails under load. A *note* is correct, but slow, or not portable to cards. The common limits in N801 are those
of the Linux drivers irdma (13 entries) and bnxt_re (96 bytes inline).
`

// The page has a section for each rule, with the text of the rule.
func TestPage(t *testing.T) {
	var b bytes.Buffer
	b.WriteString(pageHead)
	for _, r := range ndcheck.Rules() {
		fmt.Fprintf(&b, "\n### %s\n\n%s: %s. %s\n\nFix: %s.\n", r.ID, r.Severity, r.Title, r.Why, r.Fix)
	}
	if *update {
		if err := os.WriteFile(pageFile, b.Bytes(), 0o666); err != nil {
			t.Fatal(err)
		}
		return
	}
	page, err := os.ReadFile(pageFile)
	if err != nil || !bytes.Equal(page, b.Bytes()) {
		t.Errorf("%s is out of date (%v): run go test ./nd/ndcheck -run TestPage -update", pageFile, err)
	}
}
