package launcher

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/softnd/softnd/internal/linux"
	"github.com/softnd/softnd/internal/testkit/proctest"
)

func init() {
	for name, run := range map[string]func() error{
		"plan":     runPlan,
		"family":   runFamily,
		"stubborn": runStubborn,
		"child":    runChild,
		"tell":     runTell,
		"writer":   runWriter,
		"listener": runListener,
		"reader":   runReader,
		"front":    runFrontEnd,
		"own":      runOwn,
	} {
		proctest.Role(name, func(*proctest.Self) error { return run() })
	}
}

// runPlan follows PLAN_<rank>: "exit N", "signal N", or "", which waits for a signal. After
// "gate " it waits for a byte from the gate first.
func runPlan() error {
	plan := os.Getenv("PLAN_" + os.Getenv("RANK"))
	fmt.Println("ready", os.Getpid(), os.Getppid())
	if rest, ok := strings.CutPrefix(plan, "gate "); ok {
		if _, err := readGate(); err != nil {
			return err
		}
		plan = rest
	}
	verb, arg, _ := strings.Cut(plan, " ")
	n, _ := strconv.Atoi(arg)
	switch verb {
	case "exit":
		os.Exit(n)
	case "signal":
		fmt.Print("last words") // without a line feed, right before the end
		signal.Reset(syscall.Signal(n))
		if err := syscall.Kill(os.Getpid(), syscall.Signal(n)); err != nil {
			return err
		}
	}
	forever()
	return nil
}

// runFamily starts a grandchild in its own session that ignores all signals but SIGKILL and
// whose parent has exited. Then it ends as FAMILY says.
func runFamily() error {
	cmd := self("child")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	out, err := cmd.Output()
	if err != nil {
		return err
	}
	fmt.Println("grandchild", strings.TrimSpace(string(out)), os.Getpid(), os.Getppid())
	if os.Getenv("FAMILY") == "deaf" {
		signal.Ignore(syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
	}
	how, err := readGate()
	if err != nil {
		return err
	}
	if how == 'f' {
		os.Exit(9)
	}
	return nil
}

// runChild starts the grandchild, prints its PID, and exits.
func runChild() error {
	cmd := self("stubborn")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	fmt.Print(line)
	return err
}

func runStubborn() error {
	signal.Ignore(syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGPIPE)
	fmt.Println(os.Getpid()) // deaf by now
	forever()
	return nil
}

// runTell prints what a rank has inherited.
func runTell() error {
	dir, err := os.Getwd()
	if err != nil {
		return err
	}
	// The runtime has descriptors of its own; they are closed on exec, ours are not.
	var fds []string
	for fd := range 4096 {
		flags, _, errno := syscall.Syscall(syscall.SYS_FCNTL, uintptr(fd), syscall.F_GETFD, 0)
		if errno == 0 && flags&syscall.FD_CLOEXEC == 0 {
			fds = append(fds, strconv.Itoa(fd))
		}
	}
	fmt.Println("args", strings.Join(os.Args, "|"))
	fmt.Println("dir", dir)
	fmt.Println("fds", strings.Join(fds, " "))
	fmt.Println("group", syscall.Getpgrp() == os.Getpid())
	for _, entry := range os.Environ() {
		if strings.HasPrefix(entry, "TELL_") {
			fmt.Println("env", entry)
		}
	}
	return nil
}

// wantOutput returns the output of a rank of role writer to a stream: lines of arbitrary bytes,
// the last one without line feed.
func wantOutput(rank, stream int) []byte {
	r := rand.New(rand.NewPCG(uint64(rank), uint64(stream)))
	var b []byte
	for i := range 3000 {
		if i > 0 {
			b = append(b, '\n')
		}
		for range r.IntN(120) {
			c := byte(r.IntN(256))
			if c != '\n' {
				b = append(b, c)
			}
		}
	}
	return append(b, "end"...)
}

// runWriter writes wantOutput to both streams, split at arbitrary positions.
func runWriter() error {
	rank, _ := strconv.Atoi(os.Getenv("RANK"))
	left := [][]byte{wantOutput(rank, 0), wantOutput(rank, 1)}
	files := []*os.File{os.Stdout, os.Stderr}
	for len(left[0])+len(left[1]) > 0 {
		s := rand.IntN(2)
		n := min(len(left[s]), 1+rand.IntN(1000))
		if _, err := files[s].Write(left[s][:n]); err != nil {
			return err
		}
		left[s] = left[s][n:]
		if rand.IntN(50) == 0 {
			time.Sleep(time.Duration(rand.IntN(1000)) * time.Microsecond)
		}
	}
	return nil
}

// runListener prints each signal that it gets, and exits with 0 on the one in LISTEN_END.
// SIGTSTP stops it.
func runListener() error {
	deaf := signal.Ignored(syscall.SIGHUP)
	c := make(chan os.Signal, 16)
	if !deaf {
		signal.Notify(c, syscall.SIGHUP)
	}
	signal.Notify(c, syscall.SIGINT, syscall.SIGTERM, syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGCONT)
	fmt.Println("ready", os.Getpid(), "ignores hangup:", deaf)
	for sig := range c {
		fmt.Println("signal", int(sig.(syscall.Signal)))
		if strconv.Itoa(int(sig.(syscall.Signal))) == os.Getenv("LISTEN_END") {
			return nil
		}
	}
	return nil
}

func runReader() error {
	b, err := io.ReadAll(os.Stdin)
	fmt.Printf("read %q\n", b)
	return err
}

// runFrontEnd runs a job whose ranks play FRONT_RANK, in a process that may be killed.
// FRONT_BYSTANDER gives it a child outside of the job. FRONT_DEAF makes it ignore SIGHUP as nohup
// does.
func runFrontEnd() error {
	if os.Getenv("FRONT_DEAF") != "" {
		signal.Ignore(syscall.SIGHUP)
	}
	if os.Getenv("FRONT_BYSTANDER") != "" {
		cmd := self("stubborn")
		out, err := cmd.StdoutPipe()
		if err != nil {
			return err
		}
		if err := cmd.Start(); err != nil {
			return err
		}
		line, err := bufio.NewReader(out).ReadString('\n')
		if err != nil {
			return err
		}
		fmt.Print("[-1] bystander ", line)
	}
	ranks, err := strconv.Atoi(os.Getenv("FRONT_SIZE"))
	if err != nil {
		return err
	}
	cfg := config(os.Getenv("FRONT_RANK"), ranks)
	cfg.Files = []*os.File{os.NewFile(FirstFile, "gate")}
	cfg.Stdout, cfg.Stderr = os.Stdout, os.Stderr
	cfg.Signals = linux.CatchSignals()
	cfg.Warn = func(text string) { fmt.Fprintln(os.Stderr, text) }
	report, err := run(context.Background(), cfg)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		if errors.Is(err, errSupervisorLost) {
			os.Exit(72)
		}
		os.Exit(73)
	}
	for _, line := range report.Messages() {
		fmt.Fprintln(os.Stderr, line)
	}
	os.Exit(report.ExitStatus())
	return nil
}

// self returns a command that runs this binary in another role. The process may outlive its parent.
func self(role string, env ...string) *exec.Cmd {
	cmd := proctest.Command(role)
	cmd.Args[0] = filepath.Join("/somewhere", role)
	cmd.Env = append(cmd.Env, env...)
	cmd.SysProcAttr = nil
	return cmd
}

// forever waits to be killed. An empty select would be a deadlock for the Go runtime.
func forever() {
	for {
		time.Sleep(time.Hour)
	}
}
