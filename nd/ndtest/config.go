package ndtest

import (
	"io"
	"time"

	"github.com/softnd/softnd/nd"
)

// Config describes the provider under test.
type Config struct {
	// Open opens the provider for one side. It is called once for each side, and again for rows
	// that close their provider or leave it in a bad state; the suite closes what it returns. The
	// providers of one run must be able to connect to each other and to themselves, by the first
	// address that they list.
	Open func() (nd.Provider, error)

	// Spawn starts another process, which opens the provider in its own way and calls [Serve]
	// with the other end of the stream. Closing the stream must end the process. nil: both
	// sides are goroutines of this process, and scenarios that kill a side are left out.
	Spawn func() (io.ReadWriteCloser, error)

	// Private makes the scenarios register ordinary Go memory where they would otherwise ask
	// the adapter to allocate.
	PrivateMemory bool

	// ReceiveTimeout is how long the provider lets a Send wait for a Receive, DisconnectTimeout
	// how long a Disconnect waits for the peer's. A provider that can be told should use short
	// ones here, since some scenarios wait for them. 0 means 2 s.
	ReceiveTimeout, DisconnectTimeout time.Duration

	// Watchdog is how long a scenario may take; then the contexts of its calls end. A half that
	// has not ended a quarter of that time later, since some call does not look at its context,
	// is given up: the row fails and shows where, and the run ends. 0 means 60 s.
	Watchdog time.Duration

	// Only, if not empty, names the scenarios to run.
	Only []string
}

// settings is the part of a Config that the other half of a scenario needs.
type settings struct {
	PrivateMemory                               bool
	ReceiveTimeout, DisconnectTimeout, Watchdog time.Duration
	TwoProcesses                                bool // the halves are in two processes
}

func (c *Config) settings() settings {
	t := settings{c.PrivateMemory, c.ReceiveTimeout, c.DisconnectTimeout, c.Watchdog, c.Spawn != nil}
	for _, d := range []*time.Duration{&t.ReceiveTimeout, &t.DisconnectTimeout} {
		if *d == 0 {
			*d = 2 * time.Second
		}
	}
	if t.Watchdog == 0 {
		t.Watchdog = time.Minute
	}
	return t
}
