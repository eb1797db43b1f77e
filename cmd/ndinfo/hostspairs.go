package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/softnd/softnd/internal/meet/bootstrap"
)

// maxClockDifference is more than clocks differ that NTP sets.
const maxClockDifference = time.Second

// checkPairs makes the checks of this host with each other one. The checks that concern both alike are made by the host
// with the smaller number.
func (s *hostSession) checkPairs(ctx context.Context, all []hostFacts) []check {
	labels := labelsOf(all)
	results := make([][]check, len(all))
	var done sync.WaitGroup
	for host, facts := range all {
		if host == s.hosts.Number {
			continue
		}
		done.Go(func() {
			some := append(s.reach(ctx, host, facts, labels[host]), checkPeerName(ctx, facts))
			if s.hosts.Number < host {
				some = append(some, compare(all[s.hosts.Number], facts)...)
			}
			for i := range some {
				some[i].Peer = labels[host]
			}
			results[host] = some
		})
	}
	done.Wait()
	var flat []check
	for _, some := range results {
		flat = append(flat, some...)
	}
	return flat
}

// checkPeerName looks up the name of another host. Jobs do not need it, but launchers and EnvRoot may.
func checkPeerName(ctx context.Context, peer hostFacts) check {
	at, err := bootstrap.Lookup(ctx, peer.Name)
	switch {
	case err != nil:
		return bad(warn, nameCheck, err.Error(), "add the name to DNS or /etc/hosts of this host, or use addresses")
	case at.String() != peer.Address && peer.Address != "":
		return bad(warn, nameCheck, fmt.Sprintf("%s is %v here, and its relay is at %s", peer.Name, at, peer.Address), "if connections fail, set "+bootstrap.EnvHostAddress+" at that host")
	}
	return good(nameCheck, "%s is %v", peer.Name, at)
}

// reach checks the route to another host, its ports and its clock.
func (s *hostSession) reach(ctx context.Context, host int, peer hostFacts, label string) []check {
	to, err := netip.ParseAddrPort(peer.Probe)
	if err != nil {
		return []check{bad(fail, routeCheck, "not tried, because "+label+" has no usable address", "fix its failed checks first")}
	}
	if peer.Address == s.own.Address {
		return []check{bad(fail, routeCheck, "both hosts have the address "+peer.Address+", such as that of a bridge for containers", "set "+bootstrap.EnvHostAddress+" at both hosts to addresses that they reach")}
	}
	route := s.checkRoute(to, label)
	if route.Status == fail {
		return []check{route}
	}
	m, err := probe(ctx, to, s.hosts.Secret, host)
	if err != nil {
		return []check{route, unreachable(to, label, err)}
	}
	checks := []check{route, good(portCheck, "connected to %v; a round trip takes %s", to, inMilliseconds(m.roundTrip))}
	if s.hosts.Number < host {
		checks = append(checks, checkClock(m))
	}
	return checks
}

// checkRoute asks the kernel for the address that it would use towards another host. Nothing is sent.
func (s *hostSession) checkRoute(to netip.AddrPort, label string) check {
	conn, err := net.Dial("udp", to.String())
	if err != nil {
		return bad(fail, routeCheck, err.Error(), fmt.Sprintf("add a route to %v, or set %s at %s to an address that this host reaches", to.Addr(), bootstrap.EnvHostAddress, label))
	}
	defer conn.Close()
	from := conn.LocalAddr().(*net.UDPAddr).AddrPort().Addr().Unmap()
	if from.String() != s.own.Address {
		return bad(warn, routeCheck, fmt.Sprintf("to %v from %v, which is not the address of this host's relay, %s", to.Addr(), from, s.own.Address),
			fmt.Sprintf("set %s=%v at this host if all hosts reach it there", bootstrap.EnvHostAddress, from))
	}
	return good(routeCheck, "to %v from %v", to.Addr(), from)
}

// unreachable returns the check of a port that does not answer.
func unreachable(to netip.AddrPort, label string, err error) check {
	const firewall = "let TCP pass between the hosts, in both directions and to all ports"
	other := fmt.Sprintf("set %s at %s to an address that this host reaches", bootstrap.EnvHostAddress, label)
	switch {
	case errors.Is(err, unix.ECONNREFUSED), errors.Is(err, errOtherProcess):
		return bad(fail, portCheck, err.Error(), fmt.Sprintf("if another host has the address %v, too, %s; else %s", to.Addr(), other, firewall))
	case errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, context.DeadlineExceeded):
		return bad(fail, portCheck, err.Error(), fmt.Sprintf("a firewall drops the packets, or the route leads elsewhere: %s, or %s", firewall, other))
	}
	return bad(fail, portCheck, err.Error(), fmt.Sprintf("%s, or %s", firewall, other))
}

func checkClock(m measurement) check {
	found := fmt.Sprintf("its clock differs by %+.3f ms, ± %.3f ms", m.ahead.Seconds()*1e3, m.uncertainty().Seconds()*1e3)
	if m.ahead.Abs()-m.uncertainty() > maxClockDifference {
		return bad(warn, clockCheck, found, "set the clocks with NTP (chronyc tracking, timedatectl): jobs run, but times of different hosts cannot be compared")
	}
	return good(clockCheck, "%s", found)
}

func inMilliseconds(d time.Duration) string { return fmt.Sprintf("%.3f ms", d.Seconds()*1e3) }

// compare compares the versions of two hosts.
func compare(a, b hostFacts) []check {
	var must, should []string
	list := func(to *[]string, what string, differs bool, a, b any) {
		if differs {
			*to = append(*to, fmt.Sprintf("%s %v and %v", what, a, b))
		}
	}
	list(&must, "memory layout", a.Layout != b.Layout, a.Layout, b.Layout)
	list(&must, "protocol of relays", a.Protocol != b.Protocol && a.Protocol*b.Protocol != 0, a.Protocol, b.Protocol)
	list(&must, "provider", differ(a.Provider, b.Provider), a.Provider, b.Provider)
	list(&should, "softnd", differ(a.Softnd, b.Softnd), a.Softnd, b.Softnd)
	list(&should, "ndrelay", differ(a.Ndrelay, b.Ndrelay), a.Ndrelay, b.Ndrelay)
	list(&should, "libfabric", differ(a.Libfabric, b.Libfabric), a.Libfabric, b.Libfabric)
	list(&should, "architecture", a.Architecture != b.Architecture, a.Architecture, b.Architecture)
	switch {
	case len(must) > 0:
		return []check{bad(fail, versionsCheck, strings.Join(append(must, should...), "; "), "build the program and ndrelay from the same source for both hosts, and set the same SOFTND_RELAY_PROVIDER")}
	case len(should) > 0:
		return []check{bad(warn, versionsCheck, strings.Join(should, "; "), "prefer the same versions at both hosts: other combinations are not tested")}
	}
	return []check{good(versionsCheck, "the same at both hosts")}
}
