package main

import (
	"encoding/json"
	"fmt"
	"io"
	"runtime"

	"github.com/softnd/softnd/internal/goruntime"
	"github.com/softnd/softnd/internal/layout"
	"github.com/softnd/softnd/internal/meet/relayclient"
	"github.com/softnd/softnd/relay/internal/handshake"
	"github.com/softnd/softnd/relay/internal/ofi"
	"github.com/softnd/softnd/relay/internal/relay"
)

// check writes a line about this program, and about a provider at an address. ndinfo --hosts reads it.
func check(out io.Writer, provider, address string) error {
	info := relayclient.Info{Version: goruntime.BuildName(), Layout: layout.Name(), Protocol: handshake.Version, Architecture: runtime.GOARCH, Libfabric: ofi.Version()}
	endpoint, err := relay.OpenOFI(provider, address)
	if err != nil {
		info.Error = err.Error()
	} else {
		info.Provider = endpoint.Provider()
		info.Label = relayclient.Label(info.Provider)
		endpoint.Close()
	}
	b, err := json.Marshal(info)
	if err == nil {
		_, err = fmt.Fprintf(out, "%s\n", b)
	}
	return err
}
