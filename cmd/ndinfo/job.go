package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"time"

	"github.com/softnd/softnd/endpoint"
	"github.com/softnd/softnd/nd"
	"github.com/softnd/softnd/shm"
)

// trialTimeout bounds the trial: a machine on which it takes this long is not usable.
const trialTimeout = 10 * time.Second

// tryJob does what a job of one rank does at its start and with its first transfer: it makes an
// arena, joins it, opens the adapter, connects it to itself, and writes through a window.
func tryJob() (check, []adapter) {
	ctx, cancel := context.WithTimeout(context.Background(), trialTimeout)
	defer cancel()
	arena, err := shm.Create(shm.Config{Ranks: 1})
	if err != nil {
		return failed(err), nil
	}
	defer arena.Close()
	member, err := arena.Join(0)
	if err != nil {
		return failed(err), nil
	}
	defer member.Leave()
	provider, err := endpoint.New(member, endpoint.Options{})
	if err != nil {
		return failed(err), nil
	}
	defer provider.Close()
	t := trial{ctx: ctx, provider: provider}
	if err := t.run(); err != nil {
		return failed(err), t.found
	}
	return good(jobCheck, "a rank started, connected to itself and wrote %d bytes through a window", trialBytes), t.found
}

const jobCheck = "job"

// failed makes the error's own advice, which its text holds too, the remedy.
func failed(err error) check {
	var next string
	if s, ok := errors.AsType[*shm.ShortageError](err); ok {
		next = s.Next
	} else if o, ok := errors.AsType[*nd.OpError](err); ok {
		next = o.Next
	}
	text := err.Error()
	if next != "" {
		text = strings.Replace(text, "; "+next, "", 1)
	}
	return bad(fail, jobCheck, text, next)
}

const trialBytes = 64 << 10

// trial is a job of one rank.
type trial struct {
	ctx      context.Context
	provider nd.Provider
	found    []adapter

	ad nd.Adapter
	cq nd.CompletionQueue
	mr nd.MemoryRegion
}

func (t *trial) run() error {
	addresses, err := t.provider.QueryAddressList()
	if err != nil {
		return err
	}
	if t.ad, err = nd.OpenAddress(t.ctx, t.provider, addresses[0]); err != nil {
		return err
	}
	defer t.ad.Close()
	info, err := t.ad.Query(nd.InfoVersion2)
	if err != nil {
		return err
	}
	t.found = []adapter{describe(info, addresses)}
	if t.mr, err = t.ad.Allocate(t.ctx, 2*trialBytes, nd.AllowLocalWrite); err != nil {
		return err
	}
	if t.cq, err = t.ad.CreateCompletionQueue(t.ctx, 16); err != nil {
		return err
	}
	from, to, err := t.connect(addresses[0])
	if err != nil {
		return err
	}
	return t.write(from, to)
}

// connect makes two connected endpoints.
func (t *trial) connect(addr netip.Addr) (from, to nd.Endpoint, err error) {
	l, err := t.ad.CreateListener(t.ctx)
	if err != nil {
		return nil, nil, err
	}
	if err := l.Bind(netip.AddrPortFrom(addr, 0)); err != nil {
		return nil, nil, err
	}
	if err := l.Listen(1); err != nil {
		return nil, nil, err
	}
	at, err := l.LocalAddress()
	if err != nil {
		return nil, nil, err
	}
	cfg := nd.EndpointConfig{Receive: t.cq, Initiator: t.cq}
	if from, err = t.ad.CreateEndpoint(t.ctx, cfg); err != nil {
		return nil, nil, err
	}
	if to, err = t.ad.CreateEndpoint(t.ctx, cfg); err != nil {
		return nil, nil, err
	}
	out, err := t.ad.CreateConnector(t.ctx)
	if err != nil {
		return nil, nil, err
	}
	in, err := t.ad.CreateConnector(t.ctx)
	if err != nil {
		return nil, nil, err
	}
	accepted := make(chan error, 1)
	go func() {
		err := l.GetConnectionRequest(t.ctx, in)
		if err == nil {
			err = in.Accept(t.ctx, to, nd.ConnectParams{})
		}
		accepted <- err
	}()
	err = out.Connect(t.ctx, from, at, nd.ConnectParams{})
	if err == nil {
		err = out.CompleteConnect(t.ctx)
	}
	if err != nil {
		l.Close() // ends the other side's wait
	}
	return from, to, errors.Join(err, <-accepted)
}

// write moves half of the region into the other half, through a window.
func (t *trial) write(from, to nd.Endpoint) error {
	w, err := t.ad.CreateMemoryWindow(t.ctx)
	if err != nil {
		return err
	}
	source, sink := t.mr.Bytes()[:trialBytes], t.mr.Bytes()[trialBytes:]
	for i := range source {
		source[i] = byte(i % 251)
	}
	if err := to.Bind(1, t.mr, w, sink, nd.AllowWrite); err != nil {
		return err
	}
	if err := t.await("bind"); err != nil {
		return err
	}
	d := w.Descriptor()
	if err := from.Write(2, []nd.SGE{{Buffer: source, Token: t.mr.LocalToken()}}, d.Address, d.Token, 0); err != nil {
		return err
	}
	if err := t.await("write"); err != nil {
		return err
	}
	if !bytes.Equal(source, sink) {
		return errors.New("the bytes that were written are not those that arrived")
	}
	return nil
}

func (t *trial) await(what string) error {
	var r [1]nd.Result
	if _, err := t.cq.Wait(t.ctx, r[:]); err != nil {
		return err
	}
	if r[0].Status != nd.Success {
		return fmt.Errorf("%s: %w", what, r[0].Status)
	}
	return nil
}
