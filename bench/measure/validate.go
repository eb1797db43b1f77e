package measure

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/cespare/xxhash/v2"

	"github.com/softnd/softnd/bench/report"
	"github.com/softnd/softnd/nd"
)

// Data are checked outside of the timed loops, to keep these short. The check makes the same requests, as many at once.
// Each request has its own data and destination.
const (
	validationRounds = 4
	validationMemory = 64 << 20
)

// openValidated returns a link, after validate has checked the transfers of another one of this kind.
func openValidated(ctx context.Context, w *World, o Options, kind nd.RequestType, c linkConfig, res *report.Result) (*link, error) {
	if err := validate(ctx, w, o, kind, c, res); err != nil {
		return nil, err
	}
	return openLink(ctx, w, o, c)
}

// validate checks the transfers of such a link if the options ask for it, and adds a note to the result.
func validate(ctx context.Context, w *World, o Options, kind nd.RequestType, c linkConfig, res *report.Result) (err error) {
	if !o.Validate {
		return nil
	}
	c.slots = max(1, min(c.depth, validationMemory/c.size/max(o.Pairs, 1), MaxDepth/max(o.Pairs, 1)))
	c.receives, c.spare, c.repost = 0, c.slots, false
	c.depth = c.slots * max(o.Pairs, 1)
	l, err := openLink(ctx, w, o, c)
	if err != nil {
		return err
	}
	for round := range validationRounds {
		if err := l.validateRound(kind, round); err != nil {
			return errors.Join(fmt.Errorf("%s: validation: %w", res.Test, err), l.release())
		}
	}
	ways := 1
	if o.Bidirectional {
		ways = 2
	}
	note(res, "data of %d transfers verified", validationRounds*c.depth*ways)
	return l.Close()
}

// validateRound fills, transfers and checks every place once.
func (l *link) validateRound(kind nd.RequestType, round int) error {
	sends := l.active() || l.o.Bidirectional
	takes := !l.active() || l.o.Bidirectional
	in := l.received
	for i := range l.pairs {
		for slot := range l.slots {
			l.prepare(kind, i, slot, round)
			if kind == nd.RequestSend && takes {
				in++
				if err := l.pairs[i].ep.Receive(0, nd.One(l.entry(i, slot))); err != nil {
					return err
				}
			}
		}
	}
	if err := l.w.Job.Barrier(l.ctx); err != nil {
		return err
	}
	if sends {
		if err := l.transferAll(kind); err != nil {
			return err
		}
	}
	for kind == nd.RequestSend && takes && l.received < in {
		if err := l.poll(); err != nil {
			return err
		}
	}
	if err := l.meet(sends, takes); err != nil {
		return err
	}
	if kind == nd.RequestRead && !sends || kind != nd.RequestRead && !takes {
		return l.w.Job.Barrier(l.ctx)
	}
	for i := range l.pairs {
		for slot := range l.slots {
			if err := l.check(kind, i, slot, round); err != nil {
				return err
			}
		}
	}
	return l.w.Job.Barrier(l.ctx)
}

// meet returns when the transfers of both ranks are complete.
func (l *link) meet(sends, takes bool) error {
	if sends {
		if err := l.signal(); err != nil {
			return err
		}
	}
	if takes {
		if err := l.serve(); err != nil {
			return err
		}
	}
	return l.w.Job.Barrier(l.ctx)
}

// entry returns the scatter/gather list of one place. half is that of pair i, or that of its source.
func (l *link) entry(half, slot int) nd.SGE {
	return nd.SGE{Buffer: l.mem[l.place(half, slot):][:l.size], Token: l.mr.LocalToken()}
}

// transferAll transfers each place once.
func (l *link) transferAll(kind nd.RequestType) error {
	want := l.done + l.o.Pairs*l.slots
	for slot := range l.slots {
		for i := range l.pairs {
			p := l.pairs[i]
			p.out = l.entry(i+l.o.Pairs, slot)
			p.to = l.far.Address + uint64(l.place(i, slot))
			if err := l.post(kind, &p); err != nil {
				return err
			}
		}
	}
	return l.complete(want)
}

// prepare fills the source of a place, and clears its destination. A Read transfers from the landing place to the
// other.
func (l *link) prepare(kind nd.RequestType, i, slot, round int) {
	from, to := i+l.o.Pairs, i
	if kind == nd.RequestRead {
		from, to = to, from
	}
	fill(l.entry(from, slot).Buffer, l.seed(l.w.Job.Rank(), i, slot, round))
	clear(l.entry(to, slot).Buffer)
}

// check compares the data from the other rank with the expected data.
func (l *link) check(kind nd.RequestType, i, slot, round int) error {
	half := i
	if kind == nd.RequestRead {
		half += l.o.Pairs
	}
	at := differs(l.entry(half, slot).Buffer, l.seed(l.peer(), i, slot, round))
	if at < 0 {
		return nil
	}
	return &nd.OpError{Op: "validate", Object: fmt.Sprintf("%v of %d bytes on queue pair %d", kind, l.size, i), Status: nd.DataError,
		Detail: fmt.Sprintf("the data differ from byte %d on (slot %d, round %d)", at, slot, round),
		Next:   "report this as a bug of the provider; its figures are wrong"}
}

func (l *link) seed(rank, pair, slot, round int) uint64 {
	b := make([]byte, 0, 32)
	for _, v := range []int{rank, pair, slot, round} {
		b = binary.LittleEndian.AppendUint64(b, uint64(v))
	}
	return xxhash.Sum64(b)
}

// fill writes the pattern of a seed, in which each byte depends on its position. No byte is 0, so missing data do not
// pass.
func fill(b []byte, seed uint64) {
	for i := range b {
		b[i] = patternAt(seed, i)
	}
}

// differs returns the first position that does not match the pattern, -1 if all match.
func differs(b []byte, seed uint64) int {
	for i := range b {
		if b[i] != patternAt(seed, i) {
			return i
		}
	}
	return -1
}

func patternAt(seed uint64, i int) byte {
	mixed := (seed + uint64(i)) * 0x9e3779b97f4a7c15
	return byte(mixed>>56) | 1
}
