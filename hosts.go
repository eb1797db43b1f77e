package softnd

// TWIN c/src/job/hosts.c, c/src/meet/hosts.c, c/src/meet/hosts.h.

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"sync"

	"github.com/softnd/softnd/endpoint"
	"github.com/softnd/softnd/internal/meet/bootstrap"
	"github.com/softnd/softnd/internal/meet/relayclient"
	"github.com/softnd/softnd/nd"
	"github.com/softnd/softnd/shm"
)

// hosts is what a job over several hosts has besides that of one host. The first rank of each host is its leader. It
// starts the host's relay, and takes part in collective calls for the host.
type hosts struct {
	*bootstrap.Hosts
	local     []int // ranks of this host
	position  []int // of each rank among those of its host
	addresses []netip.Addr
	controls  []string           // control address of each host's relay
	relay     *relayclient.Relay // of the leader
	leaders   leaders            // nil if this rank is not the leader
	notice    shm.Offset         // memory of the leader for the reason of a failure

	probes struct {
		sync.Mutex
		adapter nd.Adapter // see Job.probeAdapter
	}
}

// leaders lets a leader make a collective call with the other leaders.
type leaders interface {
	// exchange passes blob to the other leaders, and returns those of all, indexed by host. All of them pass the same kind, and
	// at most Job.maxPack bytes.
	exchange(ctx context.Context, op string, kind callKind, blob []byte) ([][]byte, error)
	// fail lets the other leaders' exchange fail.
	fail(cause error)
}

func newHosts(h *bootstrap.Hosts) *hosts {
	x := &hosts{Hosts: h, local: h.Ranks(h.Number), position: make([]int, len(h.Of))}
	seen := make([]int, h.Count)
	for rank, host := range h.Of {
		x.position[rank] = seen[host]
		seen[host]++
	}
	return x
}

// Host is a host of a job.
type Host struct {
	Address netip.Addr // at which other hosts reach it; invalid if all ranks run on one host
	Ranks   []int      // that run on it, in ascending order
}

// Hosts returns the hosts of the job, in the order of their first ranks. Ranks of one host share memory; requests to other
// hosts go through relays.
func (j *Job) Hosts() []Host {
	if j.hosts == nil {
		all := make([]int, j.size)
		for rank := range all {
			all[rank] = rank
		}
		return []Host{{Ranks: all}}
	}
	all := make([]Host, j.hosts.Count)
	for number := range all {
		control, _ := netip.ParseAddrPort(j.hosts.controls[number]) // a relay has connected to it
		all[number] = Host{control.Addr(), j.hosts.Ranks(number)}
	}
	return all
}

// isLeader reports whether this rank is its host's leader.
func (j *Job) isLeader() bool { return j.rank == j.rankAt(0) }

// rankAt returns the number in the job of a rank of this host.
func (j *Job) rankAt(local int) int {
	if j.hosts == nil {
		return local
	}
	return j.hosts.local[local]
}

// memberOf returns the member of the arena that is a rank; ok is false if it has left and another process is that rank, or if it
// is on another host.
func (j *Job) memberOf(rank int) (id shm.MemberID, ok bool) {
	if j.hosts != nil {
		if j.isRemote(rank) {
			return 0, false
		}
		rank = j.hosts.position[rank]
	}
	if !j.started {
		return j.arena.MemberOf(rank)
	}
	return j.group.Member(rank)
}

// isRemote reports whether a rank is on another host.
func (j *Job) isRemote(rank int) bool { return j.hosts != nil && j.hosts.Of[rank] != j.hosts.Number }

// addressOf returns the address of a rank; ok is false if the rank has not joined the job.
func (j *Job) addressOf(rank int) (a netip.Addr, ok bool) {
	if j.isRemote(rank) {
		a = j.hosts.addresses[rank]
		return a, a.IsValid()
	}
	id, ok := j.memberOf(rank)
	return endpoint.Address(j.arena.Host(), id), ok
}

// announcement is what a leader tells all ranks in Init.
type announcement struct {
	Relay string // control address of the host's relay
	Error string // why there is no relay
}

// maxAnnouncement limits an announcement as it is passed to [bootstrap.Hosts.Share], escaped, in bytes. A value of PMI has
// 960.
const maxAnnouncement = 900

// failedStart returns the announcement of a host that has no relay. A text that would be too long is cut.
func failedStart(cause error) announcement {
	text := strings.ToValidUTF8(cause.Error(), "")
	for {
		a := announcement{Error: text}
		b, err := json.Marshal(a)
		over := len(url.QueryEscape(string(b))) - maxAnnouncement
		if err != nil || over <= 0 || text == "" {
			return a
		}
		text = strings.ToValidUTF8(text[:max(0, len(text)-(over+maxEscaped-1)/maxEscaped)], "")
	}
}

// maxEscaped is the largest number of bytes to which escapes extend one byte of a text: JSON and then those of a URL.
const maxEscaped = 8

// startHosts is the part of Init that connects the hosts. All ranks of this host have joined its group.
func (j *Job) startHosts(ctx context.Context) (err error) {
	h := j.hosts
	var own announcement
	if j.isLeader() {
		if own.Relay, err = j.startRelay(ctx); err != nil {
			own = failedStart(err)
		}
	}
	text, err := json.Marshal(own)
	if err != nil {
		return err
	}
	shared, err := h.Share(ctx, "relay", string(text))
	if err != nil {
		return err
	}
	relays := make([]string, h.Count)
	var failed error
	for host, text := range shared {
		var a announcement
		if err := json.Unmarshal([]byte(text), &a); err != nil {
			return fmt.Errorf("announcement of host %d: %w", host, err)
		}
		if a.Error != "" {
			failed = errors.Join(failed, fmt.Errorf("host %d (of rank %d): %s", host, h.Ranks(host)[0], a.Error))
		}
		relays[host] = a.Relay
	}
	if failed != nil {
		return failed
	}
	h.controls = relays
	if j.isLeader() {
		h.leaders = relayedLeaders{j}
		if err := h.relay.Connect(ctx, relays); err != nil { // of which the other ranks of this host learn in exchangeAddresses
			h.leaders = failedLeaders{err}
		}
	}
	return j.exchangeAddresses(ctx)
}

// startRelay starts the relay of this host. It returns the control address.
func (j *Job) startRelay(ctx context.Context) (control string, err error) {
	h := j.hosts
	if h.notice, err = j.member.Alloc(maxNotice); err != nil {
		return "", err
	}
	address, err := h.Address()
	if err != nil {
		return "", err
	}
	config := relayclient.Config{Job: h.Job, Secret: h.Secret, Host: h.Number, Hosts: h.Count, Address: address, Hidden: bootstrap.EnvSecret, Pack: j.maxPack()}
	if h.Launcher != nil {
		if config.Launcher, err = h.Launcher(); err != nil {
			return "", err
		}
		defer config.Launcher.Close()
	}
	if h.relay, err = relayclient.Start(ctx, j.arena.File(), config); err != nil {
		return "", err
	}
	return h.relay.Control, nil
}

// exchangeAddresses lets all ranks know the addresses of all.
func (j *Job) exchangeAddresses(ctx context.Context) error {
	own := endpoint.Address(j.hosts.Number, j.member.ID()).As4()
	blobs, err := j.acrossHosts(ctx, "init", exchangeCall, own[:])
	if err != nil {
		return err
	}
	addresses := make([]netip.Addr, len(blobs))
	for rank, b := range blobs {
		a, ok := netip.AddrFromSlice(b)
		host, known := endpoint.HostOf(a)
		if !ok || !known || host != j.hosts.Of[rank] {
			return fmt.Errorf("rank %d has the address %v, which is not one of host %d", rank, a, j.hosts.Of[rank])
		}
		addresses[rank] = a
	}
	if slices.Contains(addresses, netip.Addr{}) {
		return errors.New("a rank has no address")
	}
	j.hosts.addresses = addresses
	rankOf := make(map[netip.Addr]int)
	for rank, a := range addresses {
		rankOf[a] = rank
	}
	j.provider.NameRemotes(func(a netip.Addr) (rank int, ok bool) {
		rank, ok = rankOf[a]
		return rank, ok
	})
	return nil
}

// failedLeaders are leaders whose relay could not be connected.
type failedLeaders struct{ cause error }

func (n failedLeaders) exchange(context.Context, string, callKind, []byte) ([][]byte, error) {
	return nil, n.cause
}
func (failedLeaders) fail(error) {} // the other relays have no link to this one

// leave ends what hosts has started. The relay ends when no rank is left on this host. isInOrder says that this rank has joined
// the job, and ends well.
func (h *hosts) leave(isInOrder bool) {
	if h == nil {
		return
	}
	if h.relay != nil {
		h.RelayFinalizes = isInOrder && h.relay.Finalize()
		h.relay.Close()
	}
}
