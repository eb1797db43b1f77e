package endpoint

// TWIN c/src/endpoint/cm_ports.c.

import (
	"encoding/binary"
	"fmt"
	"net/netip"

	"github.com/cespare/xxhash/v2"

	"github.com/softnd/softnd/nd"
	"github.com/softnd/softnd/shm"
)

// Addresses are 127.h.x.y, of the loopback network: h is the number of the host in the job plus firstHost, and x.y is the
// slot of the member plus 1. The operating system does not use them.
const (
	network   = 127
	firstHost = 77
)

// Address returns the address of the adapters of a member of a host's arena; see [shm.Arena.Host].
func Address(host int, id shm.MemberID) netip.Addr {
	b := [4]byte{network, byte(firstHost + host)}
	binary.BigEndian.PutUint16(b[2:], uint16(id.Slot()+1))
	return netip.AddrFrom4(b)
}

// HostOf returns the number of the host that an address belongs to.
func HostOf(a netip.Addr) (host int, ok bool) {
	host, _, ok = hostAndSlot(a)
	return host, ok
}

// hostAndSlot is the inverse of Address.
func hostAndSlot(a netip.Addr) (host, slot int, ok bool) {
	if !a.Is4() {
		return 0, 0, false
	}
	b := a.As4()
	return int(b[1]) - firstHost, int(binary.BigEndian.Uint16(b[2:])) - 1, b[0] == network && b[1] >= firstHost
}

// address returns the address of this member.
func (p *Provider) address() netip.Addr { return Address(p.arena.Host(), p.member.ID()) }

// peerAt returns the process that receives requests for an address. The relay receives those for addresses of other
// hosts. isKnown is false if no process of a job can have the address.
func (p *Provider) peerAt(a netip.Addr) (peer *shm.Peer, isKnown bool, err error) {
	host, slot, ok := hostAndSlot(a)
	if !ok {
		return nil, false, nil
	}
	if host != p.arena.Host() {
		if peer, err = p.arena.Relay(); err != nil {
			err = fmt.Errorf("%v is an address of host %d: %w", a, host, err)
		}
		return peer, true, err
	}
	if peer, err = p.arena.PeerInSlot(slot); err != nil {
		err = fmt.Errorf("no process has the address %v: %w", a, err)
	}
	return peer, true, err
}

// isOfOtherHost reports whether a process of another host of the job can have the address.
func (p *Provider) isOfOtherHost(a netip.Addr) bool {
	host, ok := HostOf(a)
	return ok && host != p.arena.Host()
}

// NameRemotes lets messages name the processes of other hosts: rankOf returns the rank with an address. Until then, messages have the
// number of the host.
func (p *Provider) NameRemotes(rankOf func(a netip.Addr) (rank int, ok bool)) {
	p.rankOfRemote.Store(&rankOf)
}

// nameOfRemote returns the name of a process of another host, for messages.
func (p *Provider) nameOfRemote(a netip.Addr) string {
	if rankOf := p.rankOfRemote.Load(); rankOf != nil {
		if rank, ok := (*rankOf)(a); ok {
			return fmt.Sprintf("rank %d on another host", rank)
		}
	}
	host, _ := HostOf(a)
	return fmt.Sprintf("a process of host %d", host)
}

// Addresses in a ConnectionRecord are numbers, whose highest byte is the first of the address.

func addressWord(a netip.Addr) uint32 {
	b := a.As4()
	return binary.BigEndian.Uint32(b[:])
}

func addressOf(word uint32, port uint32) netip.AddrPort {
	var b [4]byte
	binary.BigEndian.PutUint32(b[:], word)
	return netip.AddrPortFrom(netip.AddrFrom4(b), uint16(port))
}

// QueryAddressList returns the one address of this member.
func (p *Provider) QueryAddressList() ([]netip.Addr, error) {
	return []netip.Addr{p.address()}, nil
}

func (p *Provider) adapterID() nd.AdapterID {
	id := p.arena.Info().ID
	var b [24]byte
	binary.LittleEndian.PutUint64(b[0:], id[0])
	binary.LittleEndian.PutUint64(b[8:], id[1])
	binary.LittleEndian.PutUint64(b[16:], uint64(p.member.ID()))
	return nd.AdapterID(xxhash.Sum64(b[:]))
}
