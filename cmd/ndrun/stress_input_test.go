package main

import (
	"bufio"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/cespare/xxhash/v2"
	"golang.org/x/sys/unix"

	"github.com/softnd/softnd/internal/testkit/proctest"
	"github.com/softnd/softnd/internal/testkit/scale"
)

// runHash prints the hash and the length of its standard input.
func runHash([]string) error {
	h := xxhash.New()
	n, err := io.Copy(h, os.Stdin)
	fmt.Printf("hash %016x of %d\n", h.Sum64(), n)
	return err
}

func TestStressInput(t *testing.T) {
	length := int64(scale.Of(16<<20, 1<<30))
	for _, readers := range []string{"0", "all"} {
		t.Run(readers, func(t *testing.T) {
			_, seed := seeded(t)
			left := watchLeftovers(t)
			cmd := built(t, append(left.env(), proctest.RoleEnv+"=rank"), "-n", "3", "--stdin", readers, testBinary(t), "hash")
			in, err := cmd.StdinPipe()
			if err != nil {
				t.Fatal(err)
			}
			var out strings.Builder
			cmd.Stdout, cmd.Stderr = &out, os.Stderr
			if err := left.start(cmd); err != nil {
				t.Fatal(err)
			}
			h := xxhash.New()
			var key [32]byte
			key[0] = byte(seed)
			if _, err := io.CopyN(io.MultiWriter(in, h), rand.NewChaCha8(key), length); err != nil {
				t.Fatal(err)
			}
			in.Close()
			if got := status(cmd.Wait()); got != 0 {
				t.Errorf("exit status %d", got)
			}
			for rank := range 3 {
				want := fmt.Sprintf("[%d] hash %016x of %d\n", rank, h.Sum64(), length)
				if rank > 0 && readers == "0" {
					want = fmt.Sprintf("[%d] hash %016x of 0\n", rank, xxhash.New().Sum64())
				}
				if !strings.Contains(out.String(), want) {
					t.Errorf("no %q in\n%s", want, out.String())
				}
			}
			left.mustBeNone()
		})
	}
}

// openTerminal creates a pseudoterminal.
func openTerminal(t *testing.T) (master, terminal *os.File) {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { master.Close() })
	if err := unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	terminal, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { terminal.Close() })
	return master, terminal
}

// inTerminal runs a script of an interactive shell with job control in a terminal, with typed as
// keyboard input. It returns the output of the terminal. The shell lives until all of it has been read: the end of a session
// discards output that is still on its way.
func inTerminal(t *testing.T, typed, script string, env ...string) string {
	t.Helper()
	ndrun, err := build1()
	if err != nil {
		t.Fatal(err)
	}
	master, terminal := openTerminal(t)
	cmd := built(t, env)
	const end = "end of the script"
	cmd.Path, cmd.Args = "/bin/bash", []string{"bash", "-c", "set -m; stty tostop -echo; " + script + "\necho " + end + "; read -r"}
	cmd.Env = append(cmd.Env, "NDRUN="+ndrun, "SELF="+testBinary(t))
	cmd.Stdin, cmd.Stdout, cmd.Stderr = terminal, terminal, terminal
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	terminal.Close()
	if _, err := io.WriteString(master, typed); err != nil {
		t.Fatal(err)
	}
	output := make(chan string)
	go func() {
		var all strings.Builder
		for s := bufio.NewScanner(master); s.Scan(); { // until the last one closes the terminal
			line := strings.TrimSuffix(s.Text(), "\r")
			if line == end {
				io.WriteString(master, "\n")
				continue
			}
			all.WriteString(line + "\n")
		}
		output <- all.String()
	}()
	cmd.Wait()
	return <-output
}

// The terminal does not stop ndrun in the background, and no rank takes input that is typed for
// the shell.
func TestBackgroundJobIsNotStopped(t *testing.T) {
	for _, readers := range []string{"0", "all", "none"} {
		output := inTerminal(t, "for the shell\n", `
			/bin/echo never output &
			until state=$(jobs) && [[ $state == *Stopped* ]]; do sleep 0.01; done; echo Stopped
			"$NDRUN" -n 2 --stdin `+readers+` sh -c 'cat; echo rank $SOFTND_RANK' & wait $!
			echo status $?; kill -9 %1; read line; echo left: $line`)
		for _, want := range []string{"Stopped", "[0] rank 0\n", "[1] rank 1\n", "status 0\n", "left: for the shell\n"} {
			if !strings.Contains(output, want) {
				t.Errorf("--stdin %s: no %q in\n%s", readers, want, output)
			}
		}
	}
}

// In the foreground rank 0 reads the terminal. Input that it does not read stays in the terminal.
func TestUnreadInputStaysInTerminal(t *testing.T) {
	output := inTerminal(t, "for rank 0\nfor the shell\n", `
		"$NDRUN" -n 2 sh -c 'if [ $SOFTND_RANK = 0 ]; then read line; echo got $line; fi'
		echo status $?; read line; echo left: $line`)
	for _, want := range []string{"[0] got for rank 0\n", "status 0\n", "left: for the shell\n"} {
		if !strings.Contains(output, want) {
			t.Errorf("no %q in\n%s", want, output)
		}
	}
}

// All processes of a job end, although they fork, start sessions and ignore SIGTERM. No other
// process is harmed.
func TestStubbornTreeIsKilled(t *testing.T) {
	left := watchLeftovers(t)
	output := inTerminal(t, "", `
		sleep 1000 & bystander=$!
		env "`+left.mark+`" "$NDRUN" -n 2 --quiet bash -c '
			trap "" TERM
			setsid bash -c "trap \"\" TERM; (sleep 1000 &) & sleep 1000 & echo ready >&3; wait" 3>&1 | (read; [ $SOFTND_RANK = 0 ] && kill -9 $$; sleep 1000)'
		echo status $?
		kill -0 $bystander && echo bystander lives; kill -9 $bystander`)
	for _, want := range []string{"status 137\n", "bystander lives\n"} {
		if !strings.Contains(output, want) {
			t.Errorf("no %q in\n%s", want, output)
		}
	}
	if left := marked(left.mark); len(left) > 0 {
		t.Errorf("after the end of ndrun: %v", left)
	}
}
