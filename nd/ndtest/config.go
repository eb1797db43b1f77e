package ndtest

import (
	"io"
	"time"

	"github.com/softnd/softnd/nd"
)

// Config describes the provider under test.
type Config struct {
	// Open opens the provider for one side. The suite calls it once for each side. It calls Open again
	// in scenarios that close their provider or leave it in a bad state. The suite closes each provider
	// that Open returns. The providers of a run must be able to connect to each other and to
	// themselves. They connect at the first address of each provider's address list.
	Open func() (nd.Provider, error)

	// OpenTimed opens the provider with short time-outs, for the scenarios that wait for a time-out: those
	// with [Scenario.Timed]. Open then opens it for the others, and may give it time-outs that are so
	// long that they do not expire on a busy machine. The suite never connects a provider of OpenTimed to
	// one of Open. If OpenTimed is nil, Open opens the provider for all scenarios. If Spawn is set, the
	// Config of the other process must have OpenTimed too, or neither.
	OpenTimed func() (nd.Provider, error)

	// Spawn starts another process, and returns a stream to it. That process calls [Serve] with the
	// other end of the stream and a Config of its own. It must exit when the stream is closed. If Spawn
	// is nil, both sides are goroutines of this process, and scenarios that kill a side are skipped.
	Spawn func() (io.ReadWriteCloser, error)

	// PrivateMemory makes the scenarios register ordinary Go memory instead of memory of
	// [nd.Adapter.Allocate].
	PrivateMemory bool

	// ReceiveTimeout is the time for which a Send of the provider waits for a Receive.
	// DisconnectTimeout is the time for which a Disconnect waits for the peer's Disconnect. The two
	// fields tell the suite how the provider of OpenTimed is configured, or that of Open if OpenTimed is
	// nil; they do not configure the provider. Scenarios with [Scenario.Timed] wait for these times. 0
	// means 2 s.
	ReceiveTimeout, DisconnectTimeout time.Duration

	// Delay is how long it takes at most until the other side sees what one side has done, for a provider
	// that connects hosts. Some scenarios exchange messages outside of the provider, and then expect that
	// the other side has seen the end of a request or of a connection. They wait for this time.
	Delay time.Duration

	// Watchdog limits the duration of a scenario. After that time, the contexts of its calls end. If a
	// call then does not return within a quarter of Watchdog, the scenario fails and the run ends. The
	// suite prints the stacks of the scenario's goroutines. 0 means 3 minutes.
	Watchdog time.Duration

	// Only lists the numbers of the scenarios to run, such as "C056". If it is empty, all scenarios
	// run.
	Only []string
}

// settings is the part of a Config that both sides of a scenario need.
type settings struct {
	PrivateMemory                                      bool
	ReceiveTimeout, DisconnectTimeout, Delay, Watchdog time.Duration
	TwoProcesses                                       bool // the sides run in two processes
	OpenTimed                                          bool // Config.OpenTimed is set
}

func (c *Config) settings() settings {
	t := settings{c.PrivateMemory, c.ReceiveTimeout, c.DisconnectTimeout, c.Delay, c.Watchdog, c.Spawn != nil, c.OpenTimed != nil}
	for _, d := range []*time.Duration{&t.ReceiveTimeout, &t.DisconnectTimeout} {
		if *d == 0 {
			*d = 2 * time.Second
		}
	}
	if t.Watchdog == 0 {
		t.Watchdog = 3 * time.Minute // a row that takes milliseconds on an idle machine has taken a minute on a busy one
	}
	return t
}
