package ndtest

import "os"

// kill ends this process at once, as a crash would: nothing is closed, nobody is told.
func kill() {
	if p, err := os.FindProcess(os.Getpid()); err == nil {
		_ = p.Kill()
	}
	select {}
}
