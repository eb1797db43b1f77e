package softnd

// TWIN c/src/job/hostcalls.c.

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/softnd/softnd/internal/meet/relayclient"
	"github.com/softnd/softnd/nd"
	"github.com/softnd/softnd/shm"
)

// Collective calls over several hosts. The ranks of a host meet at the barrier of their arena. Then the leaders exchange
// what their hosts have, and the others wait at the next barrier, at which the leader publishes what it has got.

// callKind distinguishes collective calls that leaders must make together.
type callKind = relayclient.CallKind

const (
	barrierCall  = relayclient.Barrier
	exchangeCall = relayclient.Exchange
)

// maxNotice is the size of the longest reason of a failure that a leader publishes, in bytes.
const maxNotice = 1024

// The first byte of what a leader publishes.
const (
	noticePacks  = 1 // followed by the packs of all hosts
	noticeFailed = 2 // followed by a status of 4 bytes, a byte that is 1 if the ranks are still in step, and a text
)

// outcome is what becomes of a collective call over several hosts.
type outcome struct {
	packs  [][]byte // of all hosts; see appendPack
	err    error
	inStep bool // despite err
}

// acrossHosts is a collective call of kind. Only an exchange has a blob, and returns those of all ranks. The caller holds
// j.collective, and this rank is in step.
func (j *Job) acrossHosts(ctx context.Context, op string, kind callKind, blob []byte) ([][]byte, error) {
	if kind == exchangeCall {
		off, err := j.publish(op, blob)
		if err != nil {
			return nil, err
		}
		defer func() {
			if j.broken == nil { // else a rank that is late may still copy from there; there is no further exchange
				j.member.Free(off)
			}
		}()
	}
	if err := j.hostBarrier(ctx, op); err != nil {
		return nil, err
	}
	var o outcome
	var packed shm.Offset
	if j.isLeader() {
		o = j.lead(ctx, op, kind)
		// After a cancel of its own it does not arrive at the next barrier, as a rank on one host. A status does not tell: another
		// host may have passed it, or an object that ended.
		isCanceled := errors.Is(o.err, nd.Canceled) && (ctx.Err() != nil || j.closed.Load())
		if !isCanceled {
			packed = j.publishOutcome(kind, &o)
		}
		if o.err != nil && !o.inStep {
			j.leaveStep(o.err)
		}
		if isCanceled {
			j.broken = o.err
			return nil, o.err
		}
	}
	if err := j.hostBarrier(ctx, op); err != nil {
		return nil, err
	}
	if !j.isLeader() {
		o = j.readOutcome(kind)
	}
	if o.err != nil && !o.inStep {
		_ = j.localBarrier(ctx, op) // all ranks have read the outcome, whose memory ends when the leader closes the job
		j.broken = o.err
		return nil, o.err
	}
	if kind == barrierCall {
		return nil, o.err
	}
	if err := j.hostBarrier(ctx, op); err != nil { // the leader's memory is free now
		return nil, err
	}
	if packed != 0 {
		j.member.Free(packed)
	}
	if o.err != nil {
		return nil, o.err
	}
	return j.unpack(o.packs)
}

// hostBarrier is localBarrier for a host that takes part in no further call if the barrier fails.
func (j *Job) hostBarrier(ctx context.Context, op string) error {
	err := j.localBarrier(ctx, op)
	if err != nil {
		j.leaveStep(err)
	}
	return err
}

// leaveStep tells the other leaders, if this rank is one, that its host takes part in no further call. They may have made
// this call with success, and then fail in the next one. Close tells them by the end of the connections.
func (j *Job) leaveStep(cause error) {
	if j.isLeader() && !j.closed.Load() {
		j.hosts.leaders.fail(cause)
	}
}

// localBlobs copies the blobs of the ranks of this host. Only the leader calls it: its own record changes when it publishes
// the outcome.
func (j *Job) localBlobs() (blobs [][]byte, o outcome) {
	left := j.exchangeLimit
	for local := range j.arena.Ranks() {
		b, err := j.group.Published(local, left)
		switch {
		case errors.Is(err, shm.ErrNotPublished):
			return nil, outcome{err: j.anotherCall("exchange", local)}
		case errors.Is(err, shm.ErrTooLong):
			return nil, outcome{err: j.tooLong(err), inStep: true}
		case err != nil:
			if gone := j.missing(); gone != nil { // the blob of a dead rank may be reclaimed already
				return nil, outcome{err: &nd.OpError{Op: "exchange", Object: "job", Status: nd.ConnectionAborted, Err: gone}}
			}
			return nil, outcome{err: fmt.Errorf("softnd: exchange: %w", err)}
		}
		left -= uint64(len(b))
		blobs = append(blobs, b)
	}
	return blobs, outcome{}
}

// lead exchanges the blobs of this host with the other leaders.
func (j *Job) lead(ctx context.Context, op string, kind callKind) outcome {
	var mine [][]byte
	var o outcome
	if kind == exchangeCall {
		mine, o = j.localBlobs()
	} else {
		o.err = j.exchanges()
	}
	if o.err != nil && !o.inStep {
		return o
	}
	var pack []byte
	if kind == exchangeCall {
		pack = appendPack(nil, mine, o.err != nil)
	}
	packs, err := j.hosts.leaders.exchange(ctx, op, kind, pack)
	if err != nil {
		return outcome{err: err}
	}
	total := uint64(0)
	for host, p := range packs {
		switch {
		case kind == exchangeCall && len(p) < 8:
			return outcome{err: damagedPack(host)}
		case kind == exchangeCall:
			n := binary.LittleEndian.Uint64(p)
			if n > j.exchangeLimit || total+n > j.exchangeLimit {
				return outcome{err: j.tooLong(nil), inStep: true}
			}
			total += n
		}
	}
	return outcome{packs: packs}
}

// maxPack returns the bytes of the longest pack: it has 8 for each rank and 8 more. No memory holds a limit of that size.
func (j *Job) maxPack() uint64 { return min(j.exchangeLimit, 1<<48) + 8*uint64(j.size+1) }

// appendPack appends the number of bytes of all blobs, and then each blob behind its length. If the blobs are too long, it
// appends a number that no limit allows, and no blobs.
func appendPack(b []byte, blobs [][]byte, tooLong bool) []byte {
	if tooLong {
		return binary.LittleEndian.AppendUint64(b, ^uint64(0))
	}
	total := 0
	for _, blob := range blobs {
		total += len(blob)
	}
	b = binary.LittleEndian.AppendUint64(b, uint64(total))
	for _, blob := range blobs {
		b = appendBlob(b, blob)
	}
	return b
}

func appendBlob(b, blob []byte) []byte {
	return append(binary.LittleEndian.AppendUint64(b, uint64(len(blob))), blob...)
}

// cutBlob is the inverse of appendBlob.
func cutBlob(b []byte) (blob, rest []byte, ok bool) {
	if len(b) < 8 {
		return nil, nil, false
	}
	n := binary.LittleEndian.Uint64(b)
	if n > uint64(len(b)-8) {
		return nil, nil, false
	}
	return b[8 : 8+n : 8+n], b[8+n:], true
}

// publishOutcome publishes, for the other ranks of this host, what they must know. It returns memory to free, 0 if none.
func (j *Job) publishOutcome(kind callKind, o *outcome) shm.Offset {
	if o.err == nil && kind == exchangeCall {
		b := []byte{noticePacks}
		for _, p := range o.packs {
			b = appendBlob(b, p)
		}
		off, err := j.publish("exchange", b)
		if err == nil {
			return off
		}
		*o = outcome{err: err}
	}
	if o.err == nil {
		return 0
	}
	b := binary.LittleEndian.AppendUint32([]byte{noticeFailed}, uint32(nd.StatusOf(o.err)))
	if o.inStep {
		b = append(b, 1)
	} else {
		b = append(b, 0)
	}
	b = append(b, o.err.Error()...)
	b = b[:min(len(b), maxNotice)]
	if mem, err := j.arena.Bytes(j.hosts.notice, uint64(len(b))); err == nil {
		copy(mem, b)
		j.group.Publish(j.hosts.notice, uint64(len(b)))
	}
	return 0
}

// readOutcome reads what the leader of this host has published.
func (j *Job) readOutcome(kind callKind) outcome {
	// The packs of all hosts are no longer than their blobs and 8 bytes for each rank, and 16 for each host.
	b, err := j.group.Published(0, j.exchangeLimit+8*uint64(j.size)+16*uint64(j.hosts.Count)+maxNotice)
	switch {
	case errors.Is(err, shm.ErrNotPublished) && kind == barrierCall:
		return outcome{}
	case errors.Is(err, shm.ErrNotPublished):
		return outcome{err: j.anotherCall("exchange", 0)}
	case err != nil:
		return outcome{err: fmt.Errorf("softnd: result of the leader: %w", err)}
	case len(b) >= 6 && b[0] == noticeFailed:
		cause := leaderError{text: string(b[6:]), status: nd.Status(binary.LittleEndian.Uint32(b[1:]))}
		return outcome{err: cause, inStep: b[5] == 1}
	case len(b) == 0 || b[0] != noticePacks:
		return outcome{err: damagedPack(j.hosts.Number)}
	}
	packs, err := cutPacks(b[1:], j.hosts.Count)
	return outcome{packs: packs, err: err}
}

// cutPacks returns the packs of all hosts.
func cutPacks(b []byte, count int) ([][]byte, error) {
	packs := make([][]byte, count)
	for host := range packs {
		var ok bool
		if packs[host], b, ok = cutBlob(b); !ok {
			return nil, damagedPack(host)
		}
	}
	return packs, nil
}

// unpack returns the blobs of all ranks.
func (j *Job) unpack(packs [][]byte) ([][]byte, error) {
	all := make([][]byte, j.size)
	for host, p := range packs {
		if len(p) < 8 {
			return nil, damagedPack(host)
		}
		rest, ok := p[8:], false
		for _, rank := range j.hosts.Ranks(host) {
			var blob []byte
			if blob, rest, ok = cutBlob(rest); !ok {
				return nil, damagedPack(host)
			}
			if len(blob) > 0 {
				all[rank] = append([]byte(nil), blob...)
			}
		}
	}
	return all, nil
}

// failedAt returns the error of a collective call that has failed at another host with a status. A cancel there is not one
// of this rank, whose context has not ended.
func failedAt(op string, host int, status nd.Status, text string) error {
	if status == nd.Canceled || status == nd.Success {
		status = nd.ConnectionAborted
	}
	return &nd.OpError{Op: op, Object: fmt.Sprintf("host %d", host), Status: status, Err: errors.New(text)}
}

func damagedPack(host int) error {
	return &nd.OpError{Op: "exchange", Object: fmt.Sprintf("host %d", host), Status: nd.InternalError, Detail: "the pack of its leader is damaged"}
}

// leaderError is an error that the leader of this host has published.
type leaderError struct {
	text   string
	status nd.Status
}

func (e leaderError) Error() string { return e.text }
func (e leaderError) Unwrap() error { return e.status }
