package ndtest

import "os"

// kill kills this process without cleanup, like a crash.
func kill() {
	if p, err := os.FindProcess(os.Getpid()); err == nil {
		_ = p.Kill()
	}
	select {}
}
