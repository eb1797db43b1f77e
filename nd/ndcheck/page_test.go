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
    [1]   rank 1: Write 7 on endpoint 4 to rank 0 (64 bytes) failed: access violation: it used the token of window 2 of rank 0 at offset 0, at writer.go:74 (main.flood)
    [1]   rank 0: ended the token of window 2 of rank 0, 1.8ms before this report, at owner.go:134 (main.invalidate)
    [1]   bytes: 64 at 0x7f4dc2390000
    [1]   fix: take the peer's last result through the token before you invalidate it, or let the peer call SendAndInvalidate

The first line is the rule. "Write 7" is the request with context 7. Objects are numbered in the order of their creation, separately
for each rank and each kind. The address is that of the memory's owner.

- Each finding is printed once for the same rule and lines. At the end, ` + "`ndrun`" + ` prints how many there were. It exits with status 4 if
  everything else has succeeded but a finding is an error.
- Programs in C are not watched, nor are programs that do not call ` + "`softnd.Init`" + `. ` + "`ndrun`" + ` first prints which ranks were not watched. If
  everything else has succeeded and no finding is an error, it then exits with status 5. ` + "`--check=partial`" + ` accepts such ranks, as far as the
  exit status is concerned. It can be given together with ` + "`--check=FILE`" + `. JSON reports list the ranks as ` + "`unwatched`" + `, and SARIF reports as
  notifications of the invocation.
- ` + "`--check=FILE`" + ` also writes the findings to FILE. If FILE ends with ` + "`.json`" + `, the format is JSON, as
  [findings.schema.json](../nd/ndcheck/findings.schema.json) says. If FILE ends with ` + "`.sarif`" + `, it is SARIF 2.1.0. With ` + "`--check=json`" + ` or
  ` + "`--check=sarif`" + `, the findings follow the output of the job. In both formats, the paths of files are relative to the root of the
  program's module, so that code hosts find the files. Files of other modules have the import path in front. The text has names without
  directories, unless two files of a finding have one name. ` + "`go run`" + ` with a list of files does not know the directory of the program.
- ` + "`--check-ignore N303,N801`" + ` leaves these rules out. Without ` + "`ndrun`" + `, the variable ` + "`SOFTND_CHECK_IGNORE`" + ` does the same.
- Without ` + "`ndrun`" + `, set ` + "`SOFTND_CHECK=1`" + `. The checker then knows one process only, and says less about other ranks. The same holds for jobs of
  ` + "`softnd.Join`" + `.
- A wrapper may close the descriptors of a rank, as ` + "`sudo`" + ` does. The rank then gets the journal of the checker from ` + "`ndrun`" + `.
- In a test, pass ` + "`softnd.WithChecker`" + ` to ` + "`softnd.Join`" + ` or ` + "`softndtest.Run`" + `, or wrap any provider with ` + "`ndcheck.Wrap`" + `.
- The checker gives requests and endpoints numbers of its own. Events of the logger show these, and results have those of the program.

## Mistakes on purpose

A program may break a rule on purpose. It then says so, with the object, the reason, and the rules:

    nd.Expect(ep, "the owner invalidates the window while this rank writes through it", "N101", "N107")

The findings of these rules about this object are expected. They are counted apart, as in ` + "`check: no findings; 4 expected: N101 (1), N107 (3)`" + `,
and do not change the exit status. JSON reports have the reason in ` + "`expected`" + `, and SARIF reports in ` + "`suppressions`" + `.

- The rank that breaks the rule calls ` + "`nd.Expect`" + `, before it does so. Reports name this rank first.
- The object is an endpoint, a completion queue, a window, a region, or the adapter, which stands for all its objects. The expectation
  ends when the object is closed.
- If none of the rules is broken until the end of the job, that is a finding itself: N901. So name several rules in one call if the
  timing decides which one is broken.
- Without the checker, ` + "`nd.Expect`" + ` does nothing.

The example ` + "`revoke`" + ` shows its use. To leave a rule out in a whole run, use ` + "`--check-ignore`" + `.

## What it costs

` + "`ndrun --check -n 2 ndbench posted -s 8,4K,1M`" + ` measures it, and so do ` + "`write_lat`" + ` and ` + "`send_lat`" + ` in place of ` + "`posted`" + `. Half a round trip
of these two contains what both ranks do. With the checker:

| | 8 B | 4 KiB | 1 MiB |
|---|---|---|---|
| ` + "`posted`" + `: a Write and its result | 5.1 µs | 5.4 µs | 124 µs |
| ` + "`write_lat`" + ` | 4.7 µs | 5.0 µs | 77 µs |
| ` + "`send_lat`" + ` | 5.9 µs | 6.4 µs | 83 µs |

The example ` + "`heat`" + ` with two ranks takes 1.6 times as long. These figures are not generated. Each is the best of nine repeats, on two
processors of an AMD EPYC that had other work, in November 2026. [Speed](speed.md) has the figures without the checker. On such a
machine, most repeats of the latencies took up to ten times as long, because both ranks wait for one lock. A checked Write takes it
twice: at its post, and when its result is taken. The checker reads the buffers of a Send or Write twice.

Programs without the checker pay nothing, because the checker is a wrapper around the adapter.

## Requests in flight

A request is in flight from its post until the program has taken its result. A request with ` + "`SilentSuccess`" + ` is in flight until the
program has taken the result of a later request of the same endpoint. There are exceptions, which avoid wrong reports, and cost missing ones:

- A message may say that earlier requests are complete. The same holds for the result of a Read, a failure, a barrier, and a new
  connection. After any of these, the program may change the buffers of all earlier Sends and Writes.
- Two accesses are unordered only if the process that posts the second one has learned nothing since the post of the first.
  A Write to its memory may have told it something, unless the process that has posted the Write has learned nothing either.
- A Send orders the Writes before it on the same endpoint before everything that its receiver does afterwards.
- A buffer may change if a peer has written to it since the post. The checker knows the last 32 ranges that peers have written to. After
  older Writes to further ranges, any buffer may change.

## What it cannot know

- It cannot see loads and stores of the program. It notices a changed buffer by its content, so it misses a change back
  to the same bytes. Of each buffer of a Receive, it compares the last 4 KiB behind the message. It ignores messages without bytes.
- A Write of a word of up to 8 bytes and a Read of the same word are not a conflict (N301): programs poll flags that way. A program that
  reads more, and detects a mixture of old and new bytes by a checksum, may ignore the report.
- A flag or a credit word that a peer writes, and this process polls, is no message. The checker cannot see that the program has read it.
  So it reports a source buffer that changes before its result is taken (N201), even if such a flag says that the data has arrived.
- A process that synchronises by other means than messages, barriers and disconnections, such as TCP, may ignore N303.
- A wait is hopeless (N703) only if no other goroutine may post. The checker reports it after 0.5 s, if no other goroutine runs code of
  the program.
- After a failure, a program may give up its objects in any state. A failure is a failed result, or the error of a wait or a barrier. Then
  the checker does not report N501, N505, N601 and N602 until a request succeeds that the program posts later, or its next wait for the
  queue. It never reports the first two and N602 for an endpoint that has failed. The end of a connection by a call is no failure.
- With a fault plan, it does not report N503 and N507: the plan may have made the failures up.
- It reports N303 when the memory is closed, and N701 when the endpoint is closed. A program that never calls ` + "`Job.Close`" + ` may miss them.
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
