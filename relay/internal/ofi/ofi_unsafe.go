// Package ofi sends and receives messages of limited size over a libfabric endpoint of type FI_EP_RDM. It is the only
// package that calls C. It knows nothing of frames and relays.
//
// An endpoint has two sets of buffers. Receive buffers are posted all the time, from PostReceives on: a caller gets one in
// an event, and gives it back. Send buffers belong to the caller until it sends them, and again when the event of the send has come. A
// message has at most the size of a buffer, and the receiver must have a posted buffer for it: the callers keep
// credits.
package ofi

/*
#cgo pkg-config: libfabric
#cgo CFLAGS: -Wall -Wextra
#include <stdlib.h>
#include "shim.h"
#include <rdma/fi_errno.h>
*/
import "C"

import (
	"errors"
	"fmt"
	"unsafe"
)

// Config selects a provider and the sizes of an endpoint.
type Config struct {
	Provider string // as libfabric names it: tcp, tcp;ofi_rxm, net, shm, verbs;ofi_rxm, efa
	Node     string // local address or host name; "" = the provider's choice
	Size     int    // of each buffer, in bytes
	Receives int    // number of receive buffers, at most
	Sends    int    // number of send buffers
	Peers    int    // number of the first peers whose small messages need no completion
}

// Endpoint is a libfabric endpoint. Only one goroutine uses it at a time.
type Endpoint struct {
	c       *C.struct_sndr_endpoint
	buffers []byte
	size    int
	sends   int
	base    int   // number of the first send buffer
	posted  int   // number of the first receive buffer that was never posted
	free    []int // send buffers that nothing uses
	idle    []int // receive buffers that the provider could not take
	peers   []Peer
	events  [32]C.struct_sndr_event
}

// Peer is an address that messages can be sent to.
type Peer struct {
	address C.fi_addr_t
	number  int // of those that were added before it; libfabric uses an address again, a number is that of one peer
}

// ErrBusy is the error of a message that the provider cannot take now. Poll, and try again.
var ErrBusy = errors.New("the provider is busy")

// Error is a failed call or operation of libfabric.
type Error struct {
	Call     string
	Code     int // of fi_errno.h, positive
	Provider int // the provider's own number; 0 = none
	Buffer   int // send buffer of a Send that has failed, which is free again; -1 = another operation, or a call
	HasPeer  bool
	Peer     Peer // with HasPeer: of a Send whose buffer was free at once
}

func (e *Error) Error() string {
	text := C.GoString(C.fi_strerror(C.int(e.Code)))
	if e.Provider != 0 {
		return fmt.Sprintf("%s: %s (%d), provider error %d", e.Call, text, e.Code, e.Provider)
	}
	return fmt.Sprintf("%s: %s (%d)", e.Call, text, e.Code)
}

// failed returns the error of a call that has returned a negative number.
func failed(call string, code C.int) error {
	return &Error{Call: call, Code: -int(code), Buffer: -1}
}

// Open opens an endpoint. It receives nothing before PostReceives.
func Open(config Config) (*Endpoint, error) {
	if config.Size < 1 || config.Receives < 1 || config.Sends < 1 {
		return nil, fmt.Errorf("open libfabric endpoint: %d+%d buffers of %d bytes: want at least 1 of each", config.Receives, config.Sends, config.Size)
	}
	c := (*C.struct_sndr_endpoint)(C.calloc(1, C.sizeof_struct_sndr_endpoint))
	e := &Endpoint{c: c, size: config.Size, sends: config.Sends, base: config.Receives}
	provider, node := C.CString(config.Provider), (*C.char)(nil)
	defer C.free(unsafe.Pointer(provider))
	if config.Node != "" {
		node = C.CString(config.Node)
		defer C.free(unsafe.Pointer(node))
	}
	var code C.int
	if call := C.sndr_open(c, provider, node, C.uint32_t(config.Size), C.uint32_t(config.Receives), C.uint32_t(config.Sends), C.uint32_t(config.Peers), &code); call != nil {
		err := failed(C.GoString(call), code)
		e.Close()
		return nil, fmt.Errorf("open libfabric endpoint of provider %q at %q: %w: fi_info lists the providers and their addresses", config.Provider, config.Node, err)
	}
	e.buffers = unsafe.Slice((*byte)(unsafe.Pointer(c.buffers)), (config.Receives+config.Sends)*config.Size)
	for i := range config.Sends {
		e.free = append(e.free, e.base+i)
	}
	return e, nil
}

// Version returns the version of the interface of libfabric, such as 1.17.
func Version() string {
	v := uint32(C.fi_version())
	return fmt.Sprintf("%d.%d", v>>16, v&0xffff)
}

// Close ends the endpoint and frees its buffers. Operations in progress are canceled.
func (e *Endpoint) Close() {
	if e.c == nil {
		return
	}
	C.sndr_close(e.c)
	C.free(unsafe.Pointer(e.c))
	e.c, e.buffers, e.free = nil, nil, nil
}

// Provider returns the name of the provider that libfabric has chosen.
func (e *Endpoint) Provider() string { return C.GoString(e.c.info.fabric_attr.prov_name) }

// Address returns the address of the endpoint, in the provider's format.
func (e *Endpoint) Address() ([]byte, error) {
	b := make([]byte, maxAddress)
	n := C.size_t(len(b))
	if code := C.sndr_name(e.c, unsafe.Pointer(&b[0]), &n); code != 0 {
		return nil, failed("fi_getname", code)
	}
	return b[:n], nil
}

// maxAddress is the size of the longest address in bytes, with the 0 at the end of a text.
const maxAddress = 256

// AddPeer makes an endpoint's address usable for Send. The address has the format of Address. The caller has it from
// a peer that it trusts: the provider does not check it. AddPeer refuses an address that cannot be of this provider: formats
// have a fixed length, except text addresses such as those of shm.
func (e *Endpoint) AddPeer(address []byte) (Peer, error) {
	own, err := e.Address()
	if err != nil {
		return Peer{}, err
	}
	isText := e.c.info.addr_format == C.FI_ADDR_STR
	switch {
	case !isText && len(address) != len(own):
		return Peer{}, fmt.Errorf("address of %d bytes of another endpoint, want %d as for provider %s: use the same provider on all hosts", len(address), len(own), e.Provider())
	case len(address) == 0 || len(address) >= maxAddress:
		return Peer{}, fmt.Errorf("address of %d bytes of another endpoint, want 1 to %d", len(address), maxAddress-1)
	}
	var padded [maxAddress]byte // the provider reads a text up to a 0
	copy(padded[:], address)
	var peer C.fi_addr_t
	if code := C.sndr_insert(e.c, unsafe.Pointer(&padded[0]), &peer); code != 0 {
		return Peer{}, failed("fi_av_insert", code)
	}
	e.peers = append(e.peers, Peer{peer, len(e.peers)})
	return e.peers[len(e.peers)-1], nil
}

// RemovePeer ends the use of a peer's address. Messages to it that were sent before may arrive or fail, and keep their
// buffers until then.
func (e *Endpoint) RemovePeer(peer Peer) error {
	if code := C.sndr_remove(e.c, peer.address); code != 0 {
		return failed("fi_av_remove", code)
	}
	return nil
}

// TakeBuffer takes a free send buffer. It reports false if there is none: Poll frees them.
func (e *Endpoint) TakeBuffer() (buffer int, ok bool) {
	if len(e.free) == 0 {
		return 0, false
	}
	buffer = e.free[len(e.free)-1]
	e.free = e.free[:len(e.free)-1]
	return buffer, true
}

// FreeBuffer gives back a send buffer that was taken and not sent.
func (e *Endpoint) FreeBuffer(buffer int) { e.free = append(e.free, buffer) }

// FreeBuffers returns the number of free send buffers.
func (e *Endpoint) FreeBuffers() int { return len(e.free) }

// Bytes returns the memory of a buffer.
func (e *Endpoint) Bytes(buffer int) []byte {
	return e.buffers[buffer*e.size : (buffer+1)*e.size : (buffer+1)*e.size]
}

// Send sends the first n bytes of a send buffer. It takes the buffer from the caller, unless it fails. If it fails
// with ErrBusy, it may be repeated after a Poll.
func (e *Endpoint) Send(peer Peer, buffer, n int) error {
	switch code := C.sndr_send(e.c, peer.address, C.int64_t(peer.number), C.uint32_t(buffer), C.uint32_t(n)); {
	case code == -C.FI_EAGAIN:
		return ErrBusy
	case code < 0:
		return failed("fi_sendmsg", code)
	case code == 1: // the provider has copied the message
		e.FreeBuffer(buffer)
	}
	return nil
}

// Received is a message that has arrived. The buffer belongs to the caller until it calls Repost.
type Received struct {
	Buffer  int
	Message []byte
}

// Poll makes progress, and stores messages that have arrived in received. It returns their number, and the operations that have
// failed. One without a Buffer is a receive: a message may be lost that was to arrive here, from any peer, and its buffer
// is posted again. An error is that of the endpoint, which is of no use afterwards.
func (e *Endpoint) Poll(received []Received) (n int, failures []*Error, err error) {
	for before := len(e.idle) + 1; len(e.idle) > 0 && len(e.idle) < before; { // until the provider is busy again
		before = len(e.idle)
		buffer := e.idle[before-1]
		e.idle = e.idle[:before-1]
		if err := e.Repost(buffer); err != nil {
			return 0, nil, err
		}
	}
	have := C.sndr_poll(e.c, &e.events[0], C.int(min(len(received), len(e.events))))
	if have < 0 {
		return 0, nil, failed("fi_cq_read", have)
	}
	return e.take(received, int(have))
}

// take handles the first events, as Poll returns them.
func (e *Endpoint) take(received []Received, events int) (n int, failures []*Error, err error) {
	for i := range e.events[:events] {
		v := &e.events[i]
		buffer := int(v.buffer)
		switch {
		case buffer >= e.base:
			e.free = append(e.free, buffer)
			if v.error != 0 {
				failures = append(failures, &Error{Call: "fi_sendmsg", Code: int(v.error), Provider: int(v.provider), Buffer: buffer})
			}
		case v.peer >= 0 && v.error == 0: // the provider reports success, too
		case v.peer >= 0:
			failures = append(failures, &Error{Call: "fi_sendmsg", Code: int(v.error), Provider: int(v.provider), Buffer: -1, HasPeer: true, Peer: e.peers[v.peer]})
		case v.error != 0:
			if v.error != C.FI_ETRUNC { // no correct peer sends a message that is longer than a buffer
				failures = append(failures, &Error{Call: "fi_recv", Code: int(v.error), Provider: int(v.provider), Buffer: -1})
			}
			if buffer >= 0 {
				err = errors.Join(err, e.Repost(buffer))
			}
		case buffer >= 0 && v.length <= C.uint64_t(e.size):
			received[n] = Received{buffer, e.Bytes(buffer)[:v.length]}
			n++
		}
	}
	return n, failures, err
}

// PostReceives posts receive buffers for the first time, until n were posted.
func (e *Endpoint) PostReceives(n int) error {
	for ; e.posted < min(n, e.base); e.posted++ {
		if err := e.Repost(e.posted); err != nil {
			return err
		}
	}
	return nil
}

// Repost gives a receive buffer back. If the provider cannot take it now, Poll tries again.
func (e *Endpoint) Repost(buffer int) error {
	switch code := C.sndr_post_receive(e.c, C.uint32_t(buffer)); {
	case code == -C.FI_EAGAIN:
		e.idle = append(e.idle, buffer)
	case code != 0:
		return failed("fi_recv", code)
	}
	return nil
}

// WaitDescriptor returns a file descriptor that is readable when Poll may have something to do. The descriptor belongs
// to the endpoint. Some providers have none.
func (e *Endpoint) WaitDescriptor() (int, error) {
	var fd C.int
	if code := C.sndr_wait_fd(e.c, &fd); code != 0 {
		return 0, failed("fi_control", code)
	}
	return int(fd), nil
}

// MaySleep reports whether the caller may sleep until the wait descriptor is readable. If not, it has to call Poll.
func (e *Endpoint) MaySleep() bool { return C.sndr_try_wait(e.c) == 0 }
