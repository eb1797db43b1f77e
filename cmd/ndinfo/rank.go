package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/netip"
	"os"

	"github.com/softnd/softnd"
	"github.com/softnd/softnd/nd"
)

const trialBytes = 64 << 10

// runRank runs one rank of the trial job. It returns the exit status.
func runRank() int {
	ctx, cancel := context.WithTimeout(context.Background(), trialTimeout)
	defer cancel()
	var f findings
	status := 0
	a, err := transfer(ctx)
	if err != nil {
		c := failed(err)
		f.Failed, status = &c, 1
	}
	f.Adapter = a
	if f != (findings{}) {
		if err := json.NewEncoder(os.Stdout).Encode(f); err != nil {
			return 1
		}
	}
	return status
}

// transfer connects with the other rank. Rank 1 writes into memory of rank 0 through a
// window, and rank 0 checks the bytes and describes its adapter.
func transfer(ctx context.Context) (_ *adapter, err error) {
	job, err := softnd.Init(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, job.Close()) }()
	ad := job.Adapter()
	info, err := ad.Query()
	if err != nil {
		return nil, err
	}
	mr, err := ad.Allocate(ctx, trialBytes, nd.AllowLocalWrite)
	if err != nil {
		return nil, err
	}
	cq, err := ad.CreateCompletionQueue(ctx, 16)
	if err != nil {
		return nil, err
	}
	ep, err := job.Connect(ctx, 1-job.Rank(), nd.EndpointConfig{ReceiveCQ: cq, InitiatorCQ: cq})
	if err != nil {
		return nil, err
	}
	pattern := make([]byte, trialBytes)
	for i := range pattern {
		pattern[i] = byte(i % 251)
	}
	mw, err := ad.CreateMemoryWindow(ctx)
	if err != nil {
		return nil, err
	}
	if job.Rank() == 0 {
		if err := ep.Bind(1, mr, mw, mr.Bytes(), nd.AllowWrite); err != nil {
			return nil, err
		}
		if err := waitForOne(ctx, cq, ep); err != nil {
			return nil, err
		}
	}
	windows, err := job.ExchangeWindows(ctx, mw.Descriptor())
	if err != nil {
		return nil, err
	}
	if job.Rank() == 1 {
		copy(mr.Bytes(), pattern)
		if err := ep.Write(2, nd.One(nd.SGE{Buffer: mr.Bytes(), Token: mr.LocalToken()}), windows[0].Address, windows[0].Token, 0); err != nil {
			return nil, err
		}
		if err := waitForOne(ctx, cq, ep); err != nil {
			return nil, err
		}
	}
	if err := job.Barrier(ctx); err != nil || job.Rank() == 1 {
		return nil, err
	}
	var addresses []netip.Addr
	if at, err := ep.Connector().LocalAddress(); err == nil {
		addresses = append(addresses, at.Addr())
	}
	a := describe(info, addresses)
	if !bytes.Equal(mr.Bytes(), pattern) {
		return &a, errors.New("the bytes that arrived differ from the bytes written")
	}
	return &a, nil
}

// waitForOne waits for one result, and returns its error.
func waitForOne(ctx context.Context, cq nd.CompletionQueue, ep nd.Endpoint) error {
	var r [1]nd.Result
	if _, err := cq.Wait(ctx, r[:]); err != nil {
		return err
	}
	return nd.Explain(ep, r[0])
}
