package ndc

import (
	"context"
	"errors"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/softnd/softnd/nd"
	"github.com/softnd/softnd/shm"
)

// Names that C publishes are found in Go, and the other way.
func TestNames(t *testing.T) {
	arena := newArena(t)
	inGo := must(arena.Join(shm.NoRank))
	inC := must(Open(int(arena.File().Fd()), Options{}))
	longest := strings.Repeat("0123456789abcdef", 4)
	of := func(port uint16) netip.AddrPort {
		return netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 77, 1, 2}), port)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	want := func(name string, port uint16) {
		t.Helper()
		if addr, err := inGo.LookupName(ctx, name); err != nil || addr != of(port) {
			t.Errorf("Go finds %v, %v, want port %d", addr, err, port)
		}
		if addr, err := inC.Lookup(name, time.Minute); err != nil || addr != of(port) {
			t.Errorf("C finds %v, %v, want port %d", addr, err, port)
		}
	}
	check(inC.Publish("server", of(1)))
	must(inGo.PublishName(longest, of(65535)))
	want("server", 1)
	want(longest, 65535)
	if _, err := inGo.PublishName("server", of(2)); !errors.Is(err, shm.ErrTaken) {
		t.Errorf("Go publishes a name of C: %v", err)
	}
	if err := inC.Publish(longest, of(2)); nd.StatusOf(err) != nd.SharingViolation {
		t.Errorf("C publishes a name of Go: %v", err)
	}
	check(inC.Close())
	must(inGo.PublishName("server", of(3)))
	if addr, err := inGo.LookupName(ctx, "server"); err != nil || addr != of(3) {
		t.Errorf("%v, %v", addr, err)
	}
	check(inGo.Leave())
}
