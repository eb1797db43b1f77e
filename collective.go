package softnd

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"time"

	"github.com/softnd/softnd/internal/statuspage"
	"github.com/softnd/softnd/nd"
	"github.com/softnd/softnd/shm"
)

// Barrier returns when all ranks have called it.
//
// Errors: [nd.ConnectionAborted] when a rank has died or left, which is named;
// [nd.Canceled] when ctx ended. The barrier cannot be used again after either.
// [nd.InvalidHandle] after Close.
func (j *Job) Barrier(ctx context.Context) error {
	j.collective.Lock()
	defer j.collective.Unlock()
	if err := j.usable("barrier"); err != nil {
		return err
	}
	return j.barrier(ctx, "barrier")
}

// barrier is Barrier as a part of op.
func (j *Job) barrier(ctx context.Context, op string) error {
	if j.broken != nil {
		return &nd.OpError{Op: "barrier", Object: "job", Status: nd.InvalidDeviceState, Err: j.broken,
			Detail: "an earlier barrier of this rank has failed, and the ranks are no longer in step", Next: "start the job again"}
	}
	ticket := j.group.Arrive()
	if j.glance(ticket) {
		return nil
	}
	return j.await(ctx, op, ticket)
}

// How often a rank looks whether the others have come before it makes a wait of
// it. It serves nobody so long: that is a microsecond or two if each rank can
// have a core, else a few turns of the ranks that share this one's.
const (
	glances = 1000
	turns   = 4
)

// glance tells whether all ranks have arrived, and gives them a moment.
func (j *Job) glance(ticket uint64) bool {
	if j.group.Passed(ticket) {
		return true // ours was the last
	}
	if j.Size() > runtime.NumCPU() {
		for range turns {
			shm.Yield()
			if j.group.Passed(ticket) {
				return true
			}
		}
		return false
	}
	for range glances {
		if j.group.Passed(ticket) {
			return true
		}
	}
	return false
}

// await is the rest of a barrier for a rank that has arrived.
func (j *Job) await(ctx context.Context, op string, ticket uint64) error {
	var gone error
	err := j.provider.WaitFor(ctx, statuspage.Call{Op: op, Round: j.group.Round()}, func() bool {
		if j.group.Passed(ticket) {
			return true
		}
		gone = j.missing()
		return gone != nil
	})
	switch {
	case err != nil:
		j.broken = err
	case gone != nil && !j.group.Passed(ticket):
		j.broken = gone
	}
	switch {
	case gone != nil && !j.group.Passed(ticket):
		return &nd.OpError{Op: "barrier", Object: "job", Status: nd.ConnectionAborted, Err: gone}
	case err != nil:
		return canceled(ctx, err, "barrier", "job")
	}
	return nil
}

// canceled is the error of a wait that ended with err: because ctx did, or
// because the job was closed meanwhile.
func canceled(ctx context.Context, err error, op, object string) error {
	if ctx.Err() != nil {
		return nd.CanceledError(ctx, op, object)
	}
	return &nd.OpError{Op: op, Object: object, Status: nd.Canceled, Err: err, Next: "close the job when no call waits any more"}
}

// lookAgain is how long the ranks count as alive if no death has been counted since. A peer
// can write the words that report a death, so no rank relies on them for longer.
const lookAgain = 100 * time.Millisecond

// missing names a rank that was here and is gone.
func (j *Job) missing() error {
	deaths, now := j.arena.Deaths(), time.Now()
	if deaths == j.deaths && now.Sub(j.looked) < lookAgain {
		return nil
	}
	for rank := range j.Size() {
		id, ok := j.group.Member(rank)
		if !ok {
			continue
		}
		if p, err := j.arena.Peer(id); err != nil || p.Gone() {
			j.member.RecordLostPeer(id)
			return fmt.Errorf("rank %d has died or left", rank)
		}
	}
	j.deaths, j.looked = deaths, now
	return nil
}

// Exchange gives every rank the blobs of all ranks, indexed by rank.
//
// All ranks make the same collective calls in the same order. Where one calls Barrier
// instead, this is noticed here, and not there.
//
// Errors: as Barrier, [nd.InvalidHandle] after Close included;
// [nd.InvalidDeviceState] when a rank has come to another collective call;
// [nd.InvalidBufferSize] when the blobs of all ranks together are longer than 256 MiB, or
// the limit that [WithExchangeLimit] sets: this process copies no more than that;
// [shm.ErrNoMemory] when there is no room for the blob.
func (j *Job) Exchange(ctx context.Context, blob []byte) ([][]byte, error) {
	j.collective.Lock()
	defer j.collective.Unlock()
	if err := j.usable("exchange"); err != nil {
		return nil, err
	}
	heap := j.member.Heap()
	off, err := heap.Alloc(uint64(max(len(blob), 1)))
	if err != nil {
		return nil, fmt.Errorf("softnd: exchange: %w", err)
	}
	defer heap.Free(off)
	mem, err := j.arena.Bytes(off, uint64(len(blob)))
	if err != nil {
		return nil, fmt.Errorf("softnd: exchange: %w", err)
	}
	copy(mem, blob)
	j.group.Publish(off, uint64(len(blob)))
	if err := j.barrier(ctx, "exchange"); err != nil {
		return nil, err
	}
	all := make([][]byte, j.Size())
	left := j.exchangeLimit
	var tooLong error
	for rank := range all {
		all[rank], err = j.group.Published(rank, left)
		if errors.Is(err, shm.ErrNotPublished) {
			j.broken = fmt.Errorf("rank %d takes part in another collective call", rank)
			return nil, &nd.OpError{Op: "exchange", Object: "job", Status: nd.InvalidDeviceState, Err: j.broken,
				Next: "let all ranks make the same collective calls in the same order"}
		}
		if errors.Is(err, shm.ErrTooLong) { // all ranks find that, and stay in step
			all, tooLong = nil, &nd.OpError{Op: "exchange", Object: "job", Status: nd.InvalidBufferSize, Err: err,
				Detail: fmt.Sprintf("the blobs of all ranks have more than %d bytes", j.exchangeLimit), Next: "move them by Write or Read, or raise the limit with WithExchangeLimit in all ranks"}
			break
		}
		if err != nil {
			return nil, fmt.Errorf("softnd: exchange: %w", err)
		}
		left -= uint64(len(all[rank]))
	}
	return all, errors.Join(tooLong, j.barrier(ctx, "exchange"))
}

// ExchangeWindows gives every rank the window descriptors of all ranks,
// indexed by rank. A rank without a window passes the zero descriptor.
//
// Errors: as Exchange.
func (j *Job) ExchangeWindows(ctx context.Context, w nd.WindowDescriptor) ([]nd.WindowDescriptor, error) {
	blob, err := w.MarshalBinary()
	if err != nil {
		return nil, err
	}
	blobs, err := j.Exchange(ctx, blob)
	if err != nil {
		return nil, err
	}
	all := make([]nd.WindowDescriptor, len(blobs))
	for rank, b := range blobs {
		if err := all[rank].UnmarshalBinary(b); err != nil {
			return nil, fmt.Errorf("softnd: window of rank %d: %w", rank, err)
		}
	}
	return all, nil
}
