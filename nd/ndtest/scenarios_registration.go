package ndtest

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/softnd/softnd/nd"
)

// goroutines is the number of goroutines that share an adapter.
const goroutines = 4

// closeAll closes the objects and joins their errors to err.
func closeAll(ctx context.Context, err error, objects ...any) error {
	for _, object := range objects {
		switch o := object.(type) {
		case interface{ Close() error }:
			err = errors.Join(err, o.Close())
		case interface{ Close(context.Context) error }:
			err = errors.Join(err, o.Close(ctx))
		}
	}
	return err
}

// cancelRace cancels the context of a Register concurrently, and checks that the region is registered if
// and only if Register returns nil.
func cancelRace(s *side, mr nd.MemoryRegion, buf []byte) error {
	ctx, cancel := context.WithCancel(s.ctx)
	go cancel()
	err := mr.Register(ctx, buf, nd.AllowLocalWrite)
	switch {
	case errors.Is(err, nd.Canceled): // not registered
		if err := mr.Deregister(s.ctx); !errors.Is(err, nd.InvalidDeviceState) {
			return fmt.Errorf("after a canceled Register, Deregister returned %v, want InvalidDeviceState", err)
		}
		if err := mr.Register(s.ctx, buf, nd.AllowLocalWrite); err != nil {
			return err
		}
	case err != nil:
		return err
	}
	if err := mr.Register(s.ctx, buf, nd.AllowLocalWrite); !errors.Is(err, nd.InvalidDeviceState) {
		return fmt.Errorf("with a registered region, Register returned %v, want InvalidDeviceState", err)
	}
	return mr.Deregister(s.ctx)
}

// createAndCloseEach creates an object of each kind, registers buf, and closes the objects.
func createAndCloseEach(s *side, buf []byte) error {
	q, err := s.ad.CreateCompletionQueue(s.ctx, 16)
	if err != nil {
		return err
	}
	mr, err := s.ad.CreateMemoryRegion(s.ctx)
	if err != nil {
		return err
	}
	if err := mr.Register(s.ctx, buf, allRights); err != nil {
		return err
	}
	w, err := s.ad.CreateMemoryWindow(s.ctx)
	if err != nil {
		return err
	}
	ep, err := s.ad.CreateEndpoint(s.ctx, nd.EndpointConfig{ReceiveCQ: q, InitiatorCQ: q, ReceiveDepth: 4, InitiatorDepth: 4})
	if err != nil {
		return err
	}
	if err := ep.Receive(1, nd.One(nd.SGE{Buffer: buf[:8], Token: mr.LocalToken()})); err != nil {
		return err
	}
	c, err := s.ad.CreateConnector(s.ctx)
	if err != nil {
		return err
	}
	l, err := s.ad.CreateListener(s.ctx)
	if err != nil {
		return err
	}
	if _, err := s.ad.Query(); err != nil {
		return err
	}
	return closeAll(s.ctx, nil, l, c, ep, w, mr, q)
}

var registrationScenarios = []scenario{
	{id: "C123", title: "Register and Deregister of one region 500 times (up to 1 MiB)", active: func(s *side) {
		mem := s.region(1<<20, 0).mem
		mr := s.emptyRegion()
		last := mr.LocalToken()
		for _, n := range []int{1, 64, 4096, 1 << 20} {
			for range 500 {
				s.must(mr.Register(s.ctx, mem[:n], nd.AllowLocalWrite))
				if t := mr.LocalToken(); t == 0 || t == last || len(mr.Bytes()) != n {
					s.fatalf("after Register: token %v, before it %v, want another; %d bytes, want %d", t, last, len(mr.Bytes()), n)
				}
				last = mr.LocalToken()
				s.must(mr.Deregister(s.ctx))
			}
		}
	}},
	{id: "C124", title: "Register reports the truth if its context ends at the same time", active: func(s *side) {
		mem := s.region(4096, 0).mem
		s.parallel(goroutines, func(int) error {
			mr, err := s.ad.CreateMemoryRegion(s.ctx)
			for range 100 {
				if err == nil {
					err = cancelRace(s, mr, mem)
				}
			}
			return closeAll(s.ctx, err, mr)
		})
	}},
	{id: "C125", title: "1,200 regions on one buffer, registered by 4 goroutines", active: func(s *side) {
		mem := s.region(64<<10, 0).mem
		var mu sync.Mutex
		tokens := make(map[nd.Token]bool)
		regions := make([][]nd.MemoryRegion, goroutines)
		s.parallel(goroutines, func(i int) error {
			for range 300 {
				mr, err := s.ad.Register(s.ctx, mem, nd.AllowLocalWrite)
				if err != nil {
					return err
				}
				regions[i] = append(regions[i], mr)
				mu.Lock()
				known := tokens[mr.LocalToken()]
				tokens[mr.LocalToken()] = true
				mu.Unlock()
				if known {
					return errors.New("register: the local token is also that of another region, want a unique one")
				}
			}
			return nil
		})
		s.parallel(goroutines, func(i int) (err error) {
			for _, mr := range regions[i] {
				err = errors.Join(err, mr.Deregister(s.ctx))
			}
			return err
		})
		s.parallel(goroutines, func(i int) (err error) {
			for _, mr := range regions[i] {
				err = closeAll(s.ctx, err, mr)
			}
			return err
		})
	}},
	{id: "C126", title: "goroutines may share an adapter handle", active: func(s *side) {
		mem := s.region(4096, 0).mem
		s.parallel(goroutines, func(int) (err error) {
			for range 25 {
				err = errors.Join(err, createAndCloseEach(s, mem))
			}
			return err
		})
	}},
}
