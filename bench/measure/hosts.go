package measure

import (
	"fmt"

	"github.com/softnd/softnd/nd"
)

// checkHosts returns an error if the test, with these options, does not support ranks on two hosts.
func (t Test) checkHosts(o Options) error {
	switch {
	case !t.hosts:
		return &nd.OpError{Op: t.Name, Object: "ranks on two hosts", Status: nd.NotSupported, Detail: "the test measures one host",
			Next: fmt.Sprintf("run it on one host, or use %s", overHosts())}
	case o.Executor == "target":
		return &nd.OpError{Op: t.Name, Object: "executor target", Status: nd.NotSupported, Detail: "between hosts the relays execute the requests",
			Next: "omit --executor, and unset SOFTND_EXEC"}
	}
	return nil
}

// overHosts lists the tests that support ranks on two hosts.
func overHosts() (names string) {
	for _, t := range Tests() {
		if t.hosts {
			if names != "" {
				names += ", "
			}
			names += t.Name
		}
	}
	return names
}
