package bootstrap

// TWIN c/src/meet/address.c.

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// OwnAddress returns the address at which the other hosts reach this one, and its origin as text. h may be nil.
func OwnAddress(h *Hosts) (a netip.Addr, origin string, err error) {
	if h == nil {
		return hostAddress(netip.Addr{})
	}
	return hostAddress(h.known)
}

// hostAddress returns that of EnvHostAddress, else known, unless it is invalid, else that of an interface.
func hostAddress(known netip.Addr) (a netip.Addr, origin string, err error) {
	if text := os.Getenv(EnvHostAddress); text != "" {
		if a, err = netip.ParseAddr(text); err != nil || a.IsUnspecified() {
			return a, "", fmt.Errorf("%s=%q: want an IP address of this host", EnvHostAddress, text)
		}
		if err := usable(a); err != nil {
			return a, "", fmt.Errorf("%s=%q: %w", EnvHostAddress, text, err)
		}
		return a, "set by " + EnvHostAddress, nil
	}
	if known.IsValid() {
		return known, "by which this host reaches " + EnvRoot, nil
	}
	if a, err = interfaceAddress(); err != nil {
		return a, "", fmt.Errorf("no address at which other hosts reach this one: %w: set %s", err, EnvHostAddress)
	}
	return a, "the first one of an interface", nil
}

// interfaceAddress returns the first global address of an interface that is up, of IPv4 if there is one. Package net,
// which could do this, would link the C library.
func interfaceAddress() (best netip.Addr, err error) {
	isUp := make(map[uint32]bool)
	err = netlink(syscall.RTM_GETLINK, func(m syscall.NetlinkMessage) {
		if m.Header.Type == syscall.RTM_NEWLINK && len(m.Data) >= syscall.SizeofIfInfomsg {
			flags := binary.NativeEndian.Uint32(m.Data[8:])
			isUp[binary.NativeEndian.Uint32(m.Data[4:])] = flags&unix.IFF_UP != 0 && flags&unix.IFF_LOOPBACK == 0
		}
	})
	if err != nil {
		return best, err
	}
	err = netlink(syscall.RTM_GETADDR, func(m syscall.NetlinkMessage) {
		if m.Header.Type != syscall.RTM_NEWADDR || len(m.Data) < syscall.SizeofIfAddrmsg || !isUp[binary.NativeEndian.Uint32(m.Data[4:])] {
			return
		}
		attributes, err := syscall.ParseNetlinkRouteAttr(&m)
		if err != nil {
			return
		}
		for _, a := range attributes {
			address, ok := netip.AddrFromSlice(bytes.Clone(a.Value))
			if (a.Attr.Type == unix.IFA_LOCAL || a.Attr.Type == unix.IFA_ADDRESS) && ok && address.IsGlobalUnicast() &&
				(!best.IsValid() || address.Is4() && !best.Is4()) {
				best = address
			}
		}
	})
	if err == nil && !best.IsValid() {
		err = errors.New("no network interface is up with a global address")
	}
	return best, err
}

// netlink calls f for each message of the kernel's answer.
func netlink(request int, f func(syscall.NetlinkMessage)) error {
	b, err := syscall.NetlinkRIB(request, unix.AF_UNSPEC)
	if err != nil {
		return os.NewSyscallError("netlink", err)
	}
	messages, err := syscall.ParseNetlinkMessage(b)
	if err != nil {
		return os.NewSyscallError("netlink", err)
	}
	for _, m := range messages {
		f(m)
	}
	return nil
}

// Resolve returns the address of host:port. Debian gives a host's own name the address 127.0.1.1 in /etc/hosts, at which no other
// host can connect. If the name has only such addresses, Resolve returns another one of this host, and choice says so.
func Resolve(ctx context.Context, text string) (at netip.AddrPort, choice string, err error) {
	host, port, err := splitAddress(text)
	if err != nil {
		return at, "", err
	}
	address, err := netip.ParseAddr(host)
	if err != nil {
		if address, err = Lookup(ctx, host); err != nil {
			return at, "", err
		}
		address, choice = instead(host, address)
	}
	if err := usable(address); err != nil {
		return at, "", err
	}
	return netip.AddrPortFrom(address.Unmap(), port), choice, nil
}

// instead returns the address to use for a name whose address is a, and why it is not a; "" = it is.
func instead(name string, a netip.Addr) (better netip.Addr, why string) {
	if !a.IsLoopback() || name == "localhost" || strings.HasSuffix(name, ".localhost") {
		return a, ""
	}
	better, origin, err := hostAddress(netip.Addr{})
	if err != nil {
		return a, "" // no interface but that of loopback: the ranks run on this host
	}
	return better, fmt.Sprintf("%s is %v here, at which other hosts cannot connect; using %v, %s: name an IP address to use another", name, a, better, origin)
}

// usable returns an error if other hosts cannot connect to an address.
func usable(a netip.Addr) error {
	switch {
	case a.IsUnspecified():
		return fmt.Errorf("%v is not an address to which other hosts can connect", a)
	case a.Is6() && a.IsLinkLocalUnicast():
		return fmt.Errorf("%v is a link-local address, which each host needs a zone of its own for: use a global address", a)
	case a.Zone() != "":
		return fmt.Errorf("%v has a zone, which is valid at this host only: use an address without one", a)
	}
	return nil
}

// Lookup returns the address of a name, one of loopback only if it has no other. The program getent looks it up, which asks what the
// host is configured to ask.
func Lookup(ctx context.Context, name string) (address netip.Addr, err error) {
	out, err := exec.CommandContext(ctx, "getent", "ahosts", name).Output()
	if ctx.Err() != nil {
		return address, ctx.Err()
	}
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	if err != nil || lines[0] == "" {
		return address, fmt.Errorf("no address of %q is known (getent ahosts: %w): use an IP address", name, err)
	}
	for i, line := range lines {
		text, _, _ := strings.Cut(line, " ")
		a, err := netip.ParseAddr(text)
		if err != nil {
			return address, fmt.Errorf("getent ahosts %s: %w: use an IP address", name, err)
		}
		if i == 0 || address.IsLoopback() && !a.IsLoopback() {
			address = a
		}
	}
	return address, nil
}

func splitAddress(text string) (host string, port uint16, err error) {
	i := strings.LastIndexByte(text, ':')
	if i < 1 {
		return "", 0, errors.New("want host:port")
	}
	n, err := strconv.ParseUint(text[i+1:], 10, 16)
	if err != nil || n == 0 {
		return "", 0, fmt.Errorf("port %q: want host:port with a port from 1 to 65535", text[i+1:])
	}
	host = text[:i]
	if inner, ok := strings.CutPrefix(host, "["); ok {
		host, ok = strings.CutSuffix(inner, "]")
		if !ok {
			return "", 0, errors.New("want [address]:port")
		}
	}
	return host, uint16(n), nil
}
