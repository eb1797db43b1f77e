package endpoint

import (
	"sync"
	"testing"
	"time"

	"github.com/softnd/softnd/endpoint/internal/cm"
	"github.com/softnd/softnd/internal/testkit/proctest"
	"github.com/softnd/softnd/nd"
)

// received is the result of a receive with immediate data.
func received(t nd.RequestType, context uint64, bytes int, data uint32) nd.Result {
	r := success(t, context, bytes)
	r.SetImmediate(t, data)
	return r
}

// Numbers arrive with messages and Writes of all sizes, in order, and each takes one receive.
func TestImmediateData(t *testing.T) {
	t.Parallel()
	onEvery(t, setup{Both: sideOptions{Size: bigRegion, InlineSize: 64}}, func(t *testing.T, p *pair) {
		context := uint64(0)
		for _, n := range append([]int{31, 32, 33}, transferSizes...) {
			context++
			data := uint32(context * 0x9e3779b9)
			src, dst := 1+n%7, 3+n%5
			p.a.fill(0, src, n, context)
			p.b.must(order{Do: doReceive, Context: context, Parts: mine(dst, n+8)})
			p.a.must(order{Do: doSendImmediate, Context: context, Parts: mine(src, n), Operand: uint64(data)})
			p.b.expect(receiveQueue, received(nd.RequestReceiveImmediate, context, n, data))
			p.a.expect(initiatorQueue, success(nd.RequestSend, context, n))
			if p.a.sum(0, src, n) != p.b.sum(0, dst, n) {
				t.Errorf("send of %d bytes: the data differ", n)
			}

			p.b.fill(0, dst, n+8, context+1<<32)
			before := p.b.sum(0, dst+n, 8)
			p.b.must(order{Do: doReceive, Context: context, Parts: mine(bigRegion-4, 4)}) // smaller than the Write
			p.a.must(order{Do: doWriteImmediate, Context: context, Parts: mine(src, n), Far: at(p.b.memory, dst), Operand: uint64(^data)})
			p.b.expect(receiveQueue, received(nd.RequestReceiveWriteImmediate, context, n, ^data))
			if n > 0 && p.a.sum(0, src, n) != p.b.sum(0, dst, n) { // the number says that the data is there
				t.Errorf("write of %d bytes: the data differ", n)
			}
			if p.b.sum(0, dst+n, 8) != before {
				t.Errorf("write of %d bytes: bytes behind it have changed", n)
			}
			p.a.expect(initiatorQueue, success(nd.RequestWrite, context, n))
		}
		// One after the other, with other messages between them.
		for i := range uint64(24) {
			p.b.must(order{Do: doReceive, Context: i, Parts: mine(64*int(i), 64)})
		}
		for i := range uint64(8) {
			p.a.must(order{Do: doWriteImmediate, Context: 3 * i, Parts: mine(0, 100*int(i)), Far: at(p.b.memory, 4096), Operand: i})
			p.a.must(order{Do: doSend, Context: 3*i + 1, Parts: mine(0, 8*int(i))})
			p.a.must(order{Do: doSendImmediate, Context: 3*i + 2, Parts: mine(0, 16), Operand: ^i, Flags: nd.Inline})
		}
		for i := range uint64(8) {
			p.b.expect(receiveQueue, received(nd.RequestReceiveWriteImmediate, 3*i, 100*int(i), uint32(i)), success(nd.RequestReceive, 3*i+1, 8*int(i)),
				received(nd.RequestReceiveImmediate, 3*i+2, 16, uint32(^i)))
			p.a.expect(initiatorQueue, success(nd.RequestWrite, 3*i, 100*int(i)), success(nd.RequestSend, 3*i+1, 8*int(i)), success(nd.RequestSend, 3*i+2, 16))
		}
	})
}

// A Write with immediate data waits for a receive, and fails without one.
func TestWriteImmediateWaitsForReceive(t *testing.T) {
	t.Parallel()
	onEvery(t, setup{Both: sideOptions{Options: Options{ReceiveTimeout: NoLimit}}}, func(t *testing.T, p *pair) {
		p.a.must(order{Do: doWriteImmediate, Context: 1, Parts: mine(0, 64), Far: p.b.memory, Operand: 7})
		p.a.must(order{Do: doWriteImmediate, Context: 2, Far: p.b.memory, Operand: 8})
		time.Sleep(10 * time.Millisecond)
		p.a.nothing(initiatorQueue)
		p.b.must(order{Do: doReceive, Context: 3})
		p.b.expect(receiveQueue, received(nd.RequestReceiveWriteImmediate, 3, 64, 7))
		p.a.expect(initiatorQueue, success(nd.RequestWrite, 1, 64))
		p.b.must(order{Do: doReceive, Context: 4})
		p.b.expect(receiveQueue, received(nd.RequestReceiveWriteImmediate, 4, 0, 8))
		p.a.expect(initiatorQueue, success(nd.RequestWrite, 2, 0))
	})
	onEvery(t, setup{Both: sideOptions{Options: Options{ReceiveTimeout: AtOnce}}}, func(t *testing.T, p *pair) {
		p.a.must(order{Do: doWriteImmediate, Context: 1, Parts: mine(0, 8), Far: p.b.memory})
		p.a.expect(initiatorQueue, failure(nd.RequestWrite, 1, nd.IOTimeout))
	})
}

// The token of a Write with immediate data is checked before the Write waits for a receive, if this side checks it.
func TestWriteImmediateWithoutReceiveAndToken(t *testing.T) {
	onEvery(t, setup{Both: sideOptions{Options: Options{ReceiveTimeout: NoLimit}}}, func(t *testing.T, p *pair) {
		if p.a.endpointAt(0).(*queuePair).mustPeerCopy() {
			p.b.must(order{Do: doReceive, Context: 2})
		}
		p.a.must(order{Do: doWriteImmediate, Context: 1, Parts: mine(0, 64), Far: at(p.b.memory, 256<<10)})
		p.a.expect(initiatorQueue, failure(nd.RequestWrite, 1, nd.AccessViolation))
	})
}

// It is checked at once also behind a message that the peer has not placed yet.
func TestWriteImmediateWithoutTokenBehindMessage(t *testing.T) {
	p := newPair(t, setup{Both: sideOptions{Options: Options{ReceiveTimeout: NoLimit}}})
	p.b.must(order{Do: doReceive, Context: 1, Parts: mine(0, 8)})
	far := p.b.endpointAt(0).(*queuePair)
	far.mu.Lock() // nothing is placed
	unlock := sync.OnceFunc(far.mu.Unlock)
	defer unlock() // before the cleanups, if the test fails
	p.a.must(order{Do: doSend, Context: 2, Parts: mine(0, 8), Flags: nd.SilentSuccess})
	p.a.must(order{Do: doWriteImmediate, Context: 3, Parts: mine(0, 64), Far: at(p.b.memory, 256<<10)})
	p.a.expect(initiatorQueue, failure(nd.RequestWrite, 3, nd.AccessViolation))
	unlock()
	p.b.expect(receiveQueue, success(nd.RequestReceive, 1, 8))
}

// With a shared receive queue, the entry waits in the ring.
func TestImmediateDataOfSharedReceives(t *testing.T) {
	t.Parallel()
	onEvery(t, setup{Both: sideOptions{Size: bigRegion}, Shared: &nd.SharedReceiveQueueConfig{}}, func(t *testing.T, p *pair) {
		for i, n := range transferSizes {
			p.b.fill(0, 0, n, uint64(i))
			p.b.must(order{Do: doWriteImmediate, Context: 1, Parts: mine(0, n), Far: p.a.memory, Operand: uint64(i)})
			p.b.must(order{Do: doSendImmediate, Context: 2, Parts: mine(0, 8), Operand: uint64(i) + 1})
			p.a.must(order{Do: doReceive, Context: 3, Parts: mine(bigRegion-64, 8)})
			p.a.expect(receiveQueue, received(nd.RequestReceiveWriteImmediate, 3, n, uint32(i)))
			if n > 0 && p.a.sum(0, 0, n) != p.b.sum(0, 0, n) {
				t.Errorf("write of %d bytes: the data differ", n)
			}
			p.a.must(order{Do: doReceive, Context: 4, Parts: mine(bigRegion-64, 8)})
			p.a.expect(receiveQueue, received(nd.RequestReceiveImmediate, 4, 8, uint32(i)+1))
			p.b.expect(initiatorQueue, success(nd.RequestWrite, 1, n), success(nd.RequestSend, 2, 8))
		}
	})
}

// A Write with immediate data that has succeeded here is received there, although the connection ends first.
func TestWriteImmediateBeforeEnd(t *testing.T) {
	p := newPair(t, setup{})
	p.a.fill(0, 0, 100, 1)
	p.b.must(order{Do: doReceive, Context: 1})
	far := p.b.endpointAt(0).(*queuePair)
	far.mu.Lock() // nothing is received
	p.a.must(order{Do: doWriteImmediate, Context: 2, Parts: mine(0, 100), Far: p.b.memory, Operand: 9})
	p.a.expect(initiatorQueue, success(nd.RequestWrite, 2, 100))
	closed := p.a.start(order{Do: doCloseEndpoint})
	proctest.Eventually(t, "the end of the connection", func() bool { return far.conn.state() == cm.ConnAborted })
	far.mu.Unlock()
	<-closed
	p.b.expect(receiveQueue, received(nd.RequestReceiveWriteImmediate, 1, 100, 9))
	if p.a.sum(0, 0, 100) != p.b.sum(0, 0, 100) {
		t.Error("the data differ")
	}
}
