package shm

// TWIN c/src/endpoint/name.c.

import (
	"context"
	"encoding/binary"
	"fmt"
	"net/netip"
	"strings"
	"time"

	"github.com/softnd/softnd/internal/testkit/failpoint"
)

const (
	namesPerMember = 16
	nameLength     = 64
	// The pause between two looks for a name.
	nameMinPause = time.Millisecond
	nameMaxPause = 20 * time.Millisecond
)

// publishedWord is what nameEntry.address contains: an IPv4 address, a number that changes whenever the entry is used, and a port.
func publishedWord(addr netip.AddrPort, number uint16) uint64 {
	ip := addr.Addr().As4()
	return uint64(binary.BigEndian.Uint32(ip[:]))<<32 | uint64(number)<<16 | uint64(addr.Port())
}

func publishedAddress(word uint64) netip.AddrPort {
	ip := binary.BigEndian.AppendUint32(nil, uint32(word>>32))
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte(ip)), uint16(word))
}

// checkName refuses a name of a fabric, or in one, that has other characters, or too many.
func checkName(what, name string) error {
	if name == "" || len(name) > nameLength || strings.Trim(name, fabricLetters) != "" {
		return fmt.Errorf("shm: %s %q: %w: want 1 to %d of A-Z a-z 0-9 . _ -", what, name, errBadName, nameLength)
	}
	return nil
}

// PublishName gives addr, such as the address of a listener, a name by which [Member.LookupName] finds it in all processes of the
// arena. The name has 1 to 64 characters out of A-Z a-z 0-9 . _ and -. It ends with a call of withdraw, and with the member. PublishName
// and withdraw are safe for concurrent use; after the first call withdraw does nothing.
//
// Errors: [ErrTaken] if a live member has the name, this one included; of two members that publish it at the same time, both can get
// this error. [ErrFull] if this member has published 16 names. [NoMemoryError]. PublishName also fails for another name, if addr is no
// IPv4 address with a port, and if the member has left.
func (m *Member) PublishName(name string, addr netip.AddrPort) (withdraw func(), err error) {
	if err := checkName("publish name", name); err != nil {
		return nil, err
	}
	if !addr.Addr().Is4() || addr.Addr().IsUnspecified() || addr.Port() == 0 {
		return nil, fmt.Errorf("shm: publish name %q: address %v: want an IPv4 address and a port, as listeners have", name, addr)
	}
	m.names.Lock()
	defer m.names.Unlock()
	if m.left.Load() { // the entries may be another member's memory
		return nil, fmt.Errorf("shm: publish name %q: %w", name, errClosed)
	}
	if word := m.find(name, nil); word != 0 {
		return nil, fmt.Errorf("shm: publish name %q: %w: choose another, or withdraw it first", name, ErrTaken)
	}
	if m.published == nil {
		off, err := m.Alloc(namesPerMember * nameEntrySize)
		if err != nil {
			return nil, fmt.Errorf("shm: publish name %q: %w", name, err)
		}
		if m.published, err = Slice[nameEntry](m.arena, off, namesPerMember); err != nil {
			return nil, err
		}
		for i := range m.published {
			m.published[i].address.Store(0)
		}
		m.rec.names.Store(uint64(off)) // ORDER name-entry: after the words of the entries; pairs with the load in entries
	}
	for i := range m.published {
		e := &m.published[i]
		if e.address.Load() != 0 {
			continue
		}
		e.setName(name)
		m.nameNumber++
		word := publishedWord(addr, m.nameNumber)
		e.address.Store(word) // ORDER name-entry: after the name, before the look at other members; pairs with the loads in find
		failpoint.Reach(failpoint.NamePublished)
		if word := m.find(name, e); word != 0 {
			e.address.Store(0)
			return nil, fmt.Errorf("shm: publish name %q: %w: choose another", name, ErrTaken)
		}
		return func() { m.withdraw(e, word) }, nil
	}
	return nil, fmt.Errorf("shm: publish name %q: %w: %d names are published: withdraw one", name, ErrFull, namesPerMember)
}

// withdraw frees an entry, unless it has been used again, or the member has left.
func (m *Member) withdraw(e *nameEntry, word uint64) {
	m.names.Lock()
	defer m.names.Unlock()
	if !m.left.Load() {
		e.address.CompareAndSwap(word, 0)
	}
}

// LookupName returns the address that a live member has published under a name. It waits until there is one, ctx ends, or this member
// leaves. Safe for concurrent use.
//
// Errors: ctx's error. LookupName also fails for a name that no member can publish, and if the member has left.
func (m *Member) LookupName(ctx context.Context, name string) (netip.AddrPort, error) {
	if err := checkName("look up name", name); err != nil {
		return netip.AddrPort{}, err
	}
	for pause := nameMinPause; ; pause = min(2*pause, nameMaxPause) {
		m.names.Lock()
		left, word := m.left.Load(), uint64(0)
		if !left {
			word = m.find(name, nil)
		}
		m.names.Unlock()
		switch {
		case left:
			return netip.AddrPort{}, fmt.Errorf("shm: look up name %q: %w", name, errClosed)
		case word != 0:
			return publishedAddress(word), nil
		}
		select {
		case <-ctx.Done():
			return netip.AddrPort{}, fmt.Errorf("shm: look up name %q: no member has published it: %w", name, ctx.Err())
		case <-time.After(pause):
		}
	}
}

// find returns the word of an entry with a name of a live member; 0 if there is none. The entry is not except. The
// caller holds m.names.
func (m *Member) find(name string, except *nameEntry) (word uint64) {
	for slot := range m.arena.usedSlots() {
		p := m.arena.livePeer(slot)
		if p == nil {
			continue
		}
		entries := p.entries()
		for i := range entries {
			e := &entries[i]
			// A word that is the same after the comparison belongs to the name that was compared.
			word := e.address.Load() // ORDER name-entry: before the name; pairs with the stores in PublishName
			if word != 0 && e != except && e.hasName(name) && e.address.Load() == word && m.checkAlive(p) {
				return word
			}
		}
	}
	return 0
}

// entries returns the names of a peer. A peer that stores another offset has none.
func (p *Peer) entries() []nameEntry {
	off := Offset(p.rec.names.Load()) // ORDER name-entry: before the entries; pairs with the store in PublishName
	if off == 0 || !p.Owns(off, namesPerMember*nameEntrySize) {
		return nil
	}
	entries, err := Slice[nameEntry](p.arena, off, namesPerMember)
	if err != nil {
		return nil
	}
	return entries
}

// setName stores a name, with zeros behind it. The entry is free.
func (e *nameEntry) setName(name string) {
	var b [nameLength]byte
	copy(b[:], name)
	for i := range e.name {
		e.name[i].Store(binary.NativeEndian.Uint64(b[8*i:]))
	}
}

func (e *nameEntry) hasName(name string) bool {
	var b [nameLength]byte
	copy(b[:], name)
	for i := range e.name {
		if e.name[i].Load() != binary.NativeEndian.Uint64(b[8*i:]) {
			return false
		}
	}
	return true
}
