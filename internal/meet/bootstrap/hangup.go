package bootstrap

import (
	"fmt"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/softnd/softnd/internal/meet/pmi"
)

// hangUp closes the connection with a launcher that speaks PMI. Hydra takes the rank for dead then, and kills this process before
// the program can print why Init has failed. So the cause is printed first.
func hangUp(client *pmi.Client, cause error) error {
	if cause != nil && strings.HasPrefix(client.JobName(), hydraName) {
		fmt.Fprintf(os.Stderr, "softnd: rank %d of %d cannot join the job: %v\n", client.Rank, client.Size, cause)
		WaitUntilRead(os.Stderr)
	}
	return client.HangUp()
}

// WaitUntilRead waits, for a second at most, until the reader of a pipe has read all of it. Hydra
// does not read the output of ranks that it ends.
func WaitUntilRead(pipe *os.File) {
	if info, err := pipe.Stat(); err != nil || info.Mode()&os.ModeNamedPipe == 0 {
		return
	}
	for end := time.Now().Add(time.Second); time.Now().Before(end); time.Sleep(time.Millisecond) {
		unread, err := unix.IoctlGetInt(int(pipe.Fd()), unix.TIOCINQ)
		if err != nil || unread == 0 {
			return
		}
	}
}
