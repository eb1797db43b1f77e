package main

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/softnd/softnd/internal/testkit/proctest"
)

// SIGQUIT ends ndrun without a stack dump before there is a job, here while ndrun reads a FIFO as
// its configuration file.
func TestQuitBeforeTheJob(t *testing.T) {
	fifo := filepath.Join(t.TempDir(), "job")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := ndrun(t, "-configfile", fifo)
	p, errOut := startReadingErrors(t, cmd)
	var w *os.File
	proctest.Eventually(t, "the other end of the pipe is open", func() bool {
		var err error
		if w, err = os.OpenFile(fifo, os.O_WRONLY|syscall.O_NONBLOCK, 0); err != nil && !errors.Is(err, syscall.ENXIO) {
			t.Fatal(err)
		}
		return err == nil
	})
	defer w.Close()
	if err := cmd.Process.Signal(syscall.SIGQUIT); err != nil {
		t.Fatal(err)
	}
	said := ""
	for errOut.Scan() {
		said += errOut.Text() + "\n"
	}
	_ = p.End()
	if status := cmd.ProcessState.ExitCode(); said != "" || status != 128+3 {
		t.Errorf("exit status %d, %s", status, said)
	}
}
