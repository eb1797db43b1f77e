package softnd

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/softnd/softnd/endpoint"
	"github.com/softnd/softnd/internal/linux"
	"github.com/softnd/softnd/internal/statuspage"
	"github.com/softnd/softnd/nd"
	"github.com/softnd/softnd/shm"
)

// Barrier blocks until all ranks have called Barrier.
//
// Errors:
//
//   - [nd.ConnectionAborted]: a rank has died or left the job. The error names the rank.
//   - [nd.Canceled]: ctx has ended, or the job was closed during the call.
//   - [nd.InvalidHandle]: the job is closed.
//   - [nd.InvalidDeviceState]: another rank has called Exchange instead of Barrier, or an earlier
//     collective call of this rank has failed with ConnectionAborted, Canceled or InvalidDeviceState.
func (j *Job) Barrier(ctx context.Context) error {
	j.collective.Lock()
	defer j.collective.Unlock()
	if err := j.usable("barrier"); err != nil {
		return err
	}
	err := j.barrier(ctx, "barrier")
	if err == nil && j.hosts == nil {
		if err = j.exchanges(); err != nil {
			j.broken = err
		}
	}
	j.noteCollective(err)
	return err
}

// exchanges returns the error of a barrier that another rank of this host has taken for an Exchange, nil if none has.
func (j *Job) exchanges() error {
	if local, ok := j.group.Publisher(); ok {
		return j.anotherCall("barrier", local)
	}
	return nil
}

// anotherCall is the error of op if a rank of this host makes another collective call.
func (j *Job) anotherCall(op string, local int) error {
	return &nd.OpError{Op: op, Object: "job", Status: nd.InvalidDeviceState, Err: fmt.Errorf("rank %d makes another collective call", j.rankAt(local)), Next: sameCalls}
}

// inStep returns an error of op if an earlier collective call has failed. The caller holds j.collective.
func (j *Job) inStep(op string) error {
	if j.broken == nil {
		return nil
	}
	return &nd.OpError{Op: op, Object: "job", Status: nd.InvalidDeviceState, Err: j.broken,
		Detail: "an earlier collective call of this rank has failed, and the ranks are no longer in step", Next: "start the job again"}
}

// barrier is Barrier, called by op. The caller holds j.collective.
func (j *Job) barrier(ctx context.Context, op string) error {
	if err := j.inStep(op); err != nil {
		return err
	}
	if j.hosts != nil {
		_, err := j.acrossHosts(ctx, op, barrierCall, nil)
		return err
	}
	return j.localBarrier(ctx, op)
}

// localBarrier is barrier for the ranks of this host. This rank is in step.
func (j *Job) localBarrier(ctx context.Context, op string) error {
	ticket := j.group.Arrive()
	if j.spin(ticket) {
		return nil
	}
	return j.await(ctx, op, j.group.Round(), func() bool { return j.group.Passed(ticket) })
}

// form waits in op until all ranks of this host have joined the group, and none of them belongs to an earlier job.
func (j *Job) form(ctx context.Context, op string) error {
	err := j.await(ctx, op, j.group.Round()+1, j.group.Formed)
	j.started = err == nil
	j.checkedAt = time.Time{} // from now on, a rank that has left is missing
	return err
}

// How long a barrier stays awake before its wait, in checks. While a rank spins it does not make progress on its
// endpoints. So it spins for one or two microseconds, or as long as earlier spins make it. If it does not spin, it yields a few times
// to ranks on the same core.
const (
	maxSpins = 1000
	yields   = 4
)

// spin reports whether all ranks arrive while it spins or yields.
func (j *Job) spin(ticket uint64) bool {
	if j.group.Passed(ticket) {
		return true // this rank was the last
	}
	rounds := 0 // a number of checks that the program has set is that of the wait alone
	if j.adapts {
		rounds = j.spins.Rounds(maxSpins)
	}
	for range rounds {
		if j.group.Passed(ticket) {
			j.spins.Ended(true)
			return true
		}
	}
	if rounds > 0 {
		j.spins.Ended(false)
		return false
	}
	for range yields {
		linux.Yield()
		if j.group.Passed(ticket) {
			return true
		}
	}
	return false
}

// await waits until passed returns true, or a rank is missing, and makes progress meanwhile.
func (j *Job) await(ctx context.Context, op string, round uint64, passed func() bool) error {
	var gone error
	err := j.provider.WaitFor(ctx, statuspage.Call{Op: op, Round: round}, func() bool {
		if passed() {
			return true
		}
		gone = j.missing()
		return gone != nil
	})
	switch {
	case err != nil:
		j.broken = err
	case gone != nil && !passed():
		j.broken = gone
	}
	switch {
	case j.broken != nil && err == nil:
		return &nd.OpError{Op: op, Object: "job", Status: nd.ConnectionAborted, Err: gone}
	case err != nil:
		return notArrived(endpoint.Canceled(ctx, err, op, "job"))
	}
	return nil
}

// notArrived says in the error of a collective call whose context has ended what it waited for.
func notArrived(err error) error {
	if e := (*nd.OpError)(nil); errors.As(err, &e) {
		e.Detail = strings.TrimSuffix("not all ranks have arrived: "+e.Detail, ": ")
	}
	return err
}

// checkInterval is the longest time between two checks of all ranks in a barrier. Without it, a
// check would follow only a change of the arena's count of deaths. A peer can overwrite that count,
// and so hide a death.
const checkInterval = 100 * time.Millisecond

// missing returns an error that names a rank that has joined the job and is gone, nil if there is
// none.
func (j *Job) missing() error {
	deaths, now := j.arena.Deaths(), time.Now()
	if deaths == j.deaths && now.Sub(j.checkedAt) < checkInterval {
		return nil
	}
	for local := range j.arena.Ranks() {
		if id, missing := j.isMissing(local); missing {
			j.member.RecordLostPeer(id)
			return fmt.Errorf("rank %d has died or left", j.rankAt(local))
		}
	}
	j.deaths, j.checkedAt = deaths, now
	return nil
}

// isMissing reports whether the member of a rank of this host has died or left, also if another process has joined as that rank since
// then. Until all ranks have joined, a process that has left and still runs is not missing: it has closed an earlier job of this
// rank, and may join again. Nor is one that has left if its record has another owner, which hides whether it runs. A process
// that has refused to take part is missing. TWIN c/src/job/collective.c.
func (j *Job) isMissing(local int) (id shm.MemberID, missing bool) {
	var ok bool
	if j.started {
		if id, ok = j.group.Member(local); !ok {
			return id, true
		}
	} else if id, ok = j.arena.MemberOf(local); !ok {
		return id, false
	}
	p, err := j.arena.Peer(id)
	if j.started || err != nil {
		return id, err != nil || p.Gone()
	}
	return id, j.arena.TakesNoPart(local, p)
}

// Exchange passes blob to all ranks, and returns the blobs of all ranks, indexed by rank. It blocks
// until all ranks have called Exchange. The returned blobs are copies, and the program may change
// blob when Exchange has returned.
//
// Errors: those of Barrier, and
//
//   - [nd.InvalidDeviceState]: another rank has called Barrier instead of Exchange, which fails as well.
//   - [nd.InvalidBufferSize]: the blobs of all ranks together are longer than 256 MiB, or than the
//     limit of [WithExchangeLimit].
//   - [NoMemoryError]: the arena has no room for blob.
func (j *Job) Exchange(ctx context.Context, blob []byte) ([][]byte, error) {
	j.collective.Lock()
	defer j.collective.Unlock()
	if err := j.usable("exchange"); err != nil {
		return nil, err
	}
	all, tooLong, err := j.exchange(ctx, blob)
	j.noteCollective(err)
	if tooLong == nil {
		return all, err
	}
	return all, errors.Join(tooLong, err)
}

// exchange is Exchange. tooLong is an error of all ranks, which are in step all the same. The caller holds j.collective.
func (j *Job) exchange(ctx context.Context, blob []byte) (all [][]byte, tooLong, err error) {
	if err := j.inStep("exchange"); err != nil {
		return nil, nil, err
	}
	if j.hosts != nil {
		all, err := j.acrossHosts(ctx, "exchange", exchangeCall, blob)
		return all, nil, err
	}
	off, err := j.publish("exchange", blob)
	if err != nil {
		return nil, nil, err
	}
	defer func() {
		if j.broken == nil { // else a rank that is late may still copy from there; there is no further exchange
			j.member.Free(off)
		}
	}()
	if err := j.barrier(ctx, "exchange"); err != nil {
		return nil, nil, err
	}
	all = make([][]byte, j.Size())
	left := j.exchangeLimit
	for rank := range all {
		all[rank], err = j.group.Published(rank, left)
		if errors.Is(err, shm.ErrNotPublished) {
			j.broken = j.anotherCall("exchange", rank)
			return nil, nil, j.broken
		}
		if errors.Is(err, shm.ErrTooLong) { // in all ranks, so they stay in step
			all, tooLong = nil, j.tooLong(err)
			break
		}
		if err != nil { // and this rank does not reach the next barrier
			j.broken = err
			if gone := j.missing(); gone != nil { // the blob of a dead rank may be reclaimed already
				j.broken = gone
				return nil, nil, &nd.OpError{Op: "exchange", Object: "job", Status: nd.ConnectionAborted, Err: gone}
			}
			return nil, nil, fmt.Errorf("softnd: exchange: %w", err)
		}
		left -= uint64(len(all[rank]))
	}
	return all, tooLong, j.barrier(ctx, "exchange")
}

const sameCalls = "let all ranks make the same collective calls in the same order"

func (j *Job) tooLong(err error) error {
	return &nd.OpError{Op: "exchange", Object: "job", Status: nd.InvalidBufferSize, Err: err,
		Detail: fmt.Sprintf("the blobs of all ranks together have more than %d bytes", j.exchangeLimit), Next: "raise the limit with WithExchangeLimit in all ranks, or transfer the bytes with Write or Read"}
}

// publish copies a blob into the arena and publishes it for the next barrier. It returns the memory, which the caller
// frees when all have read it.
func (j *Job) publish(op string, blob []byte) (shm.Offset, error) {
	off, err := j.member.Alloc(uint64(max(len(blob), 1)))
	if err != nil {
		return 0, fmt.Errorf("softnd: %s: %w", op, err)
	}
	mem, err := j.arena.Bytes(off, uint64(len(blob)))
	if err != nil {
		j.member.Free(off)
		return 0, fmt.Errorf("softnd: %s: %w", op, err)
	}
	copy(mem, blob)
	j.group.Publish(off, uint64(len(blob)))
	return off, nil
}

// ExchangeWindows is [Job.Exchange] for descriptors. It passes w to all ranks, and returns the
// descriptors of all ranks, indexed by rank. w describes a window ([nd.MemoryWindow.Descriptor]) or a
// region ([nd.DescriptorOf]). A rank that grants no access passes the zero descriptor.
//
// Errors: those of Exchange.
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
