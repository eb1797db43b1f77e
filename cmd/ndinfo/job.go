package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"reflect"
	"time"

	"github.com/softnd/softnd/endpoint"
	"github.com/softnd/softnd/nd"
	"github.com/softnd/softnd/shm"
)

// adapter is what an adapter says of itself.
type adapter struct {
	ID        string         `json:"id"`
	Addresses []string       `json:"addresses"`
	Info      nd.AdapterInfo `json:"info"`
	Flags     string         `json:"flags"` // Info.AdapterFlags in words
}

type limit struct{ name, value string }

// limits lists the fields of the adapter's information in the model's order.
func (a *adapter) limits() (list []limit) {
	v := reflect.ValueOf(a.Info)
	for i := range v.NumField() {
		f := limit{v.Type().Field(i).Name, fmt.Sprint(v.Field(i).Interface())}
		if f.name == "InfoVersion" {
			f.value = fmt.Sprintf("%#x", a.Info.InfoVersion)
		}
		list = append(list, f)
	}
	return list
}

// trialTimeout bounds the trial: a machine on which it takes this long is not usable.
const trialTimeout = 10 * time.Second

// tryJob does what a job of one rank does at its start and with its first transfer: it makes an
// arena, joins it, opens the adapter, connects it to itself, and writes through a window.
func tryJob() (check, []adapter) {
	const name = "job"
	ctx, cancel := context.WithTimeout(context.Background(), trialTimeout)
	defer cancel()
	arena, err := shm.Create(shm.Config{Ranks: 1})
	if err != nil {
		return bad(fail, name, err.Error(), remedyFor(err)), nil
	}
	defer arena.Close()
	member, err := arena.Join(0)
	if err != nil {
		return bad(fail, name, err.Error(), remedyFor(err)), nil
	}
	defer member.Leave()
	provider, err := endpoint.New(member, endpoint.Options{})
	if err != nil {
		return bad(fail, name, err.Error(), remedyFor(err)), nil
	}
	defer provider.Close()
	t := trial{ctx: ctx, provider: provider}
	if err := t.run(); err != nil {
		return bad(fail, name, err.Error(), remedyFor(err)), t.found
	}
	return good(name, "a rank started, connected to itself and wrote %d bytes through a window", trialBytes), t.found
}

func remedyFor(err error) string {
	if s, ok := errors.AsType[*shm.ShortageError](err); ok {
		return s.Next
	}
	return "see the other lines"
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
	a := adapter{ID: info.AdapterID.String(), Info: info, Flags: info.AdapterFlags.String()}
	for _, addr := range addresses {
		a.Addresses = append(a.Addresses, addr.String())
	}
	t.found = []adapter{a}
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
