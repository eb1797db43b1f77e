package bootstrap

// TWIN c/src/meet/agree.c, c/src/meet/hosts.h.

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/softnd/softnd/shm"
)

// meeting is the key-value space of a job, through which its ranks find each other. A value has up to 960 printable
// characters, and no spaces.
type meeting interface {
	JobName() string
	Put(ctx context.Context, key, value string) error
	Get(ctx context.Context, key string) (string, error)
	Barrier(ctx context.Context) error
}

// The keys of the key-value space.
const (
	hostKey   = "softnd-host-%d"   // of each rank: its hostInfo
	fabricKey = "softnd-fabric"    // of rank 0: the agreement
	tableKey  = "softnd-hosts-%d"  // of rank 0: a part of the text of the host table
	sharedKey = "softnd-shared-%s" // of each host's leader, followed by the host's number: see Share
)

// The value of fabricKey begins with one of these, and continues escaped. Ranks in C know the first two.
const (
	onOneHost = "name:"
	refused   = "error:" // why there is no fabric
	onHosts   = "hosts:"
)

const (
	tablePart = 900 // number of characters of a part of the host table
	maxHosts  = 17  // a relay has links to at most 16 others
)

// Hosts says on which of several hosts the ranks of a job run.
type Hosts struct {
	Number int    // of this host
	Count  int    // of hosts
	Of     []int  // number of the host of each rank
	Job    string // 32 hexadecimal digits, the same at all ranks
	Secret []byte // 32 bytes that only the ranks of the job know

	// Launcher returns a connection over which another process can have the launcher end the job, see [pmi.Abort]. It is nil
	// if no launcher listens, or if the launcher ends the job by itself when a rank dies.
	Launcher func() (*os.File, error)

	// RelayFinalizes is set if another process tells the launcher that this rank ends well, over the connection of Launcher.
	// Then [Place.Leave] only closes the connection of this rank: finalize ends all duplicates.
	RelayFinalizes bool

	meeting meeting
	known   netip.Addr // address of this host; invalid if none is known
	isFirst bool       // of the ranks of its host
}

// Ranks returns the ranks of a host in ascending order.
func (h *Hosts) Ranks(host int) (ranks []int) {
	for rank, of := range h.Of {
		if of == host {
			ranks = append(ranks, rank)
		}
	}
	return ranks
}

// Address returns an address at which the other hosts reach this one.
func (h *Hosts) Address() (string, error) {
	a, _, err := OwnAddress(h)
	return a.String(), err
}

// Barrier blocks until all ranks have called it.
func (h *Hosts) Barrier(ctx context.Context) error { return h.meeting.Barrier(ctx) }

// Share passes a value of each host to all ranks, indexed by host. All ranks call it with the same name, and the first
// rank of each host passes the host's value.
func (h *Hosts) Share(ctx context.Context, name, value string) ([]string, error) {
	if h.isFirst {
		if err := h.meeting.Put(ctx, fmt.Sprintf(sharedKey+"-%d", name, h.Number), url.QueryEscape(value)); err != nil {
			return nil, err
		}
	}
	if err := h.meeting.Barrier(ctx); err != nil {
		return nil, err
	}
	all := make([]string, h.Count)
	for host := range all {
		text, err := h.meeting.Get(ctx, fmt.Sprintf(sharedKey+"-%d", name, host))
		if err != nil {
			return nil, err
		}
		if all[host], err = url.QueryUnescape(text); err != nil {
			return nil, fmt.Errorf("value %s of host %d: %w", name, host, err)
		}
	}
	return all, nil
}

// meet agrees with the other ranks on the fabrics of their hosts, and opens that of this host. All ranks pass the user's
// secret, or nil. Then rank 0 makes one.
func meet(ctx context.Context, m meeting, launcher string, rank, size int, secret []byte) (*Place, error) {
	name, hosts, err := agree(ctx, m, rank, size, secret)
	if err != nil {
		return nil, err
	}
	if hosts == nil {
		return inFabric(ctx, launcher, name, rank, size)
	}
	hosts.meeting = m
	own := hosts.Ranks(hosts.Number)
	local := slices.Index(own, rank)
	hosts.isFirst = local == 0
	name = fmt.Sprintf("%s-%d", name, hosts.Number)
	arena, err := shm.OpenFabric(ctx, name, shm.Config{Ranks: len(own), Host: hosts.Number})
	if err != nil {
		return nil, err
	}
	launcher = fmt.Sprintf("%s, meeting as %s on host %d of %d", launcher, name, hosts.Number, hosts.Count)
	return &Place{launcher: launcher, Rank: rank, Size: size, Local: local, Hosts: hosts, RankTakenHint: takenNext, Arena: arena}, nil
}

// agreement is what rank 0 tells the others.
type agreement struct {
	name   string // of the fabric, without the host's number
	secret []byte
	table  string // see writeTable
	parts  int    // of table; 0 if all ranks run on one host
}

// agree returns the name of the job's fabric, and the hosts if there are several.
func agree(ctx context.Context, m meeting, rank, size int, secret []byte) (string, *Hosts, error) {
	return agreeAs(ctx, m, rank, size, secret, thisHost())
}

// agreeAs is agree for a rank on a host.
func agreeAs(ctx context.Context, m meeting, rank, size int, secret []byte, own hostInfo) (string, *Hosts, error) {
	if err := m.Put(ctx, fmt.Sprintf(hostKey, rank), own.String()); err != nil {
		return "", nil, err
	}
	if err := m.Barrier(ctx); err != nil {
		return "", nil, err
	}
	if rank == 0 {
		if err := decide(ctx, m, size, secret != nil); err != nil {
			return "", nil, err
		}
	}
	if err := m.Barrier(ctx); err != nil {
		return "", nil, err
	}
	a, err := readAgreement(ctx, m)
	if err != nil || a.parts == 0 {
		return a.name, nil, err
	}
	h := &Hosts{Job: fullDigest(a.name)[:32], Secret: a.secret}
	if secret != nil {
		h.Secret = relaySecret(secret, a.name)
	}
	if h.Of, h.Count, err = readTable(a.table, size); err != nil {
		return "", nil, err
	}
	h.Number = h.Of[rank]
	return a.name, h, nil
}

// decide groups the ranks into hosts, and publishes the agreement.
func decide(ctx context.Context, m meeting, size int, hasSecret bool) error {
	infos := make([]hostInfo, size)
	for rank := range infos {
		text, err := m.Get(ctx, fmt.Sprintf(hostKey, rank))
		if err != nil {
			return err
		}
		if infos[rank], err = parseHostInfo(text); err != nil {
			return fmt.Errorf("host of rank %d: %w", rank, err)
		}
	}
	of, count := group(infos)
	name := fabricName(m.JobName())
	switch {
	case count == 1:
		return m.Put(ctx, fabricKey, onOneHost+url.QueryEscape(name))
	case count > maxHosts:
		return m.Put(ctx, fabricKey, refused+url.QueryEscape(fmt.Sprintf("the job runs on %d hosts: want at most %d", count, maxHosts)))
	}
	table, parts := writeTable(of), 0
	for ; table != ""; parts++ {
		n := min(len(table), tablePart)
		if err := m.Put(ctx, fmt.Sprintf(tableKey, parts), table[:n]); err != nil {
			return err
		}
		table = table[n:]
	}
	v := url.Values{"name": {name}, "parts": {strconv.Itoa(parts)}}
	if !hasSecret {
		secret := make([]byte, 32)
		rand.Read(secret) // never fails
		v.Set("secret", hex.EncodeToString(secret))
	}
	return m.Put(ctx, fabricKey, onHosts+v.Encode())
}

// fabricName makes up a name for the fabrics of a job.
func fabricName(job string) string { return "job-" + digest(job) + "-" + rand.Text() }

// readAgreement reads what rank 0 has decided.
func readAgreement(ctx context.Context, m meeting) (a agreement, err error) {
	text, err := m.Get(ctx, fabricKey)
	if err != nil {
		return a, err
	}
	malformed := func(err error) (agreement, error) {
		return a, fmt.Errorf("malformed value of %s: %.80q: %w", fabricKey, text, err)
	}
	kind, rest, _ := strings.Cut(text, ":")
	if kind+":" != onHosts {
		word, err := url.QueryUnescape(rest)
		switch {
		case err != nil:
			return malformed(err)
		case kind+":" == onOneHost:
			return agreement{name: word}, nil
		}
		return a, errors.New(word)
	}
	v, err := url.ParseQuery(rest)
	if err != nil {
		return malformed(err)
	}
	a.name = v.Get("name")
	if a.parts, err = strconv.Atoi(v.Get("parts")); err != nil || a.parts < 1 {
		return malformed(errors.Join(err, errors.New("no table of hosts")))
	}
	if a.secret, err = hex.DecodeString(v.Get("secret")); err != nil {
		return malformed(err)
	}
	for part := range a.parts {
		text, err := m.Get(ctx, fmt.Sprintf(tableKey, part))
		if err != nil {
			return a, err
		}
		a.table += text
	}
	return a, nil
}

// group returns the number of each rank's host, in the order of each host's first rank. Ranks share a host if they can
// open the same fabric.
func group(infos []hostInfo) (of []int, count int) {
	type place struct {
		boot, network string
		user          int
	}
	numbers := make(map[place]int)
	for _, info := range infos {
		at := place{info.boot, info.network, info.user}
		number, ok := numbers[at]
		if !ok {
			number = len(numbers)
			numbers[at] = number
		}
		of = append(of, number)
	}
	return of, len(numbers)
}

// writeTable returns the hosts of all ranks as text: the host's number, and after an x how many consecutive ranks it has.
func writeTable(of []int) string {
	var runs []string
	for i := 0; i < len(of); {
		n := 1
		for i+n < len(of) && of[i+n] == of[i] {
			n++
		}
		runs = append(runs, fmt.Sprintf("%dx%d", of[i], n))
		i += n
	}
	return strings.Join(runs, ",")
}

// readTable reads the result of writeTable, and checks it.
func readTable(text string, size int) (of []int, count int, err error) {
	for run := range strings.SplitSeq(text, ",") {
		var host, n int
		if _, err := fmt.Sscanf(run, "%dx%d", &host, &n); err != nil || host < 0 || host > count || n < 1 || n > size-len(of) {
			return nil, 0, fmt.Errorf("table of hosts: %.80q is not one of %d ranks", text, size)
		}
		for range n {
			of = append(of, host)
		}
		count = max(count, host+1)
	}
	if len(of) != size {
		return nil, 0, fmt.Errorf("table of hosts: %.80q is not one of %d ranks", text, size)
	}
	return of, count, nil
}
