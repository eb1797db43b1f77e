package main

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"strings"

	"github.com/softnd/softnd/internal/goruntime"
	"github.com/softnd/softnd/internal/layout"
	"github.com/softnd/softnd/internal/meet/bootstrap"
	"github.com/softnd/softnd/internal/meet/relayclient"
)

// checkOwn makes the checks that concern this host alone.
func (s *hostSession) checkOwn(ctx context.Context) {
	s.own.Softnd, s.own.Layout, s.own.Architecture = goruntime.BuildName(), layout.Name(), runtime.GOARCH
	name, err := os.Hostname()
	if err != nil {
		name = "?"
	}
	s.own.Name = name
	s.checks = append(s.checks, checkName(ctx, name))
	if os.Getenv(bootstrap.EnvSecret) != "" || os.Getenv(bootstrap.EnvSecretFile) != "" {
		s.checks = append(s.checks, checkSecret())
	}
	s.checkAddress()
	s.checkRelay(ctx)
}

// checkRoot looks up the address of EnvRoot. Find would only fail.
func checkRoot(ctx context.Context, root string) check {
	at, choice, err := bootstrap.Resolve(ctx, root)
	switch {
	case err != nil:
		return bad(fail, nameCheck, fmt.Sprintf("%s=%q: %v", bootstrap.EnvRoot, root, err), "use the IP address of rank 0's host, or add the name to DNS or /etc/hosts of this host")
	case choice != "":
		return bad(warn, nameCheck, bootstrap.EnvRoot+": "+choice, "use the address by which other hosts reach rank 0")
	case at.Addr().IsLoopback():
		return bad(warn, nameCheck, fmt.Sprintf("%s=%s is %v here", bootstrap.EnvRoot, root, at), "only ranks of this host meet there: use the address by which other hosts reach rank 0")
	}
	return good(nameCheck, "%s=%s is %v", bootstrap.EnvRoot, root, at)
}

// checkName looks up the name of this host. Only launchers and EnvRoot use names, so a failure is a warning.
func checkName(ctx context.Context, name string) check {
	at, err := bootstrap.Lookup(ctx, name)
	switch {
	case err != nil:
		return bad(warn, nameCheck, "this host's own name does not resolve: "+err.Error(), "add it to DNS or /etc/hosts, or use addresses in "+bootstrap.EnvRoot+" and in the launcher's list of hosts")
	case at.IsLoopback():
		return bad(warn, nameCheck, fmt.Sprintf("%s is %v here", name, at), "do not use this name in "+bootstrap.EnvRoot+" at this host, or change /etc/hosts")
	}
	return good(nameCheck, "%s is %v", name, at)
}

// checkSecret reads the user's secret as Init does, which refuses a file that others can access.
func checkSecret() check {
	if _, err := bootstrap.UserSecret(); err != nil {
		return bad(fail, secretCheck, err.Error(), "give all ranks the same secret, in a file that only their user can read: chmod 600")
	}
	file := os.Getenv(bootstrap.EnvSecretFile)
	if file == "" {
		return bad(warn, secretCheck, "in the environment variable "+bootstrap.EnvSecret, "prefer a file, which "+bootstrap.EnvSecretFile+" names: other users may see the environment")
	}
	return good(secretCheck, "%s, which other users cannot access", file)
}

// checkAddress finds the address of this host, and opens a port there.
func (s *hostSession) checkAddress() {
	a, origin, err := bootstrap.OwnAddress(s.hosts)
	if err != nil {
		s.checks = append(s.checks, bad(fail, addressCheck, err.Error(), "set "+bootstrap.EnvHostAddress+" to an address of this host"))
		return
	}
	s.own.Address = a.String()
	found := fmt.Sprintf("%v, %s", a, origin)
	if a.IsLoopback() {
		s.checks = append(s.checks, bad(fail, addressCheck, found, "set "+bootstrap.EnvHostAddress+" to an address that other hosts reach"))
		return
	}
	s.checks = append(s.checks, good(addressCheck, "%s", found))
	if s.probe, err = newProbeServer(a, s.hosts); err != nil {
		s.checks = append(s.checks, bad(fail, portCheck, err.Error(), "set "+bootstrap.EnvHostAddress+" to an address of an interface of this host"))
		return
	}
	s.own.Probe = s.probe.address()
	s.checks = append(s.checks, good(portCheck, "TCP ports can be opened at %v; the kernel chooses them from %s", a, portRange()))
}

// portRange returns the ports that the kernel chooses from.
func portRange() string {
	b, err := os.ReadFile("/proc/sys/net/ipv4/ip_local_port_range")
	if f := strings.Fields(string(b)); err == nil && len(f) == 2 {
		return f[0] + " to " + f[1]
	}
	return "a range of its own"
}

const rebuildRelay = "rebuild it from the source of this ndinfo: go -C relay install ./cmd/ndrelay; then put it into PATH or set " + relayclient.EnvProgram

// checkRelay finds ndrelay, asks it for its versions, and lets it open the provider.
func (s *hostSession) checkRelay(ctx context.Context) {
	path, err := relayclient.Find()
	if err != nil {
		s.checks = append(s.checks, bad(fail, relayCheck, err.Error(), "install ndrelay at this host"))
		return
	}
	address := s.own.Address
	if address == "" {
		address = "127.0.0.1" // its versions are of interest
	}
	info, err := relayclient.Check(ctx, path, address, bootstrap.EnvSecret)
	if err != nil {
		s.checks = append(s.checks, bad(fail, relayCheck, err.Error(), rebuildRelay))
		return
	}
	s.own.Ndrelay, s.own.Protocol, s.own.Libfabric, s.own.Provider = info.Version, info.Protocol, info.Libfabric, info.Provider
	found := fmt.Sprintf("%s, softnd %s, %s, libfabric %s", path, info.Version, info.Architecture, info.Libfabric)
	switch {
	case info.Layout != s.own.Layout:
		s.checks = append(s.checks, bad(fail, relayCheck, fmt.Sprintf("%s: its memory layout %s is not that of this ndinfo, %s", found, info.Layout, s.own.Layout), rebuildRelay))
	case differ(info.Version, s.own.Softnd):
		s.checks = append(s.checks, bad(warn, relayCheck, fmt.Sprintf("%s; this ndinfo is of softnd %s", found, s.own.Softnd), rebuildRelay))
	default:
		s.checks = append(s.checks, good(relayCheck, "%s", found))
	}
	if info.Error != "" {
		s.checks = append(s.checks, bad(fail, providerCheck, info.Error, fmt.Sprintf("choose another one with %s, or an address of this host with %s", relayclient.EnvProvider, bootstrap.EnvHostAddress)))
		return
	}
	found = fmt.Sprintf("%s opens at %s", info.Provider, address)
	if info.Label != "" {
		found += " (" + info.Label + ")"
	}
	s.checks = append(s.checks, good(providerCheck, "%s", found))
}

// differ reports whether two names of builds are known and differ.
func differ(a, b string) bool { return a != b && isKnown(a) && isKnown(b) }

func isKnown(name string) bool { return name != "" && name != goruntime.UnknownBuild }
