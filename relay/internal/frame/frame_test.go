package frame

import (
	"bytes"
	"errors"
	"net/netip"
	"reflect"
	"testing"
)

// examples has a frame of each kind, with every field that the kind may have.
func examples() []Frame {
	connect := (&Connect{Tunnel: 7, From: netip.MustParseAddrPort("127.77.0.1:49152"), To: netip.MustParseAddrPort("127.78.0.1:1"), ReadsIn: 16, ReadsOut: 8, Private: []byte("private")}).Append(nil)
	return []Frame{
		{Kind: Hello, Session: 1<<63 + 5, Credits: 3, Payload: []byte{}},
		{Kind: Credit, Credits: 65535, Payload: []byte{}},
		{Kind: Ping, Request: 9, Order: 1<<32 - 1, Payload: []byte{}},
		{Kind: Pong, Request: 9, Payload: []byte{}},
		{Kind: Open, Payload: connect},
		{Kind: Accept, Tunnel: 7, Payload: connect},
		{Kind: Refuse, Tunnel: 7, Status: 0xC000023D, Payload: []byte("no")},
		{Kind: Established, Tunnel: 1<<32 - 1, Payload: []byte{}},
		{Kind: Send, Tunnel: 7, Flags: Invalidate | Solicited, Request: 1 << 40, Token: 5, Total: 3, Payload: []byte("abc")},
		{Kind: Send, Tunnel: 7, Payload: []byte{}},
		{Kind: Send, Tunnel: 7, Flags: Hashed, Hash: 1<<64 - 1, Total: 3, Payload: []byte("abc")},
		{Kind: Write, Tunnel: 7, Request: 2, Address: 1<<64 - 1, Token: 5, Total: 8, Offset: 5, Payload: []byte("abc")},
		{Kind: Read, Tunnel: 7, Request: 2, Address: 3, Token: 5, Total: MaxTotal, Payload: []byte{}},
		{Kind: Data, Tunnel: 7, Request: 2, Done: 6, Total: 8, Offset: 5, Payload: []byte("abc")},
		{Kind: Data, Tunnel: 7, Request: 2, Flags: Hashed, Hash: 5, Total: 8, Offset: 5, Payload: []byte("abc")},
		{Kind: Done, Tunnel: 7, Request: 2, Payload: []byte{}},
		{Kind: Fail, Tunnel: 7, Request: 2, Status: 0xC0000005, Payload: []byte("out of range")},
		{Kind: Disconnect, Tunnel: 7, Payload: []byte{}},
		{Kind: Abort, Tunnel: 7, Status: 0xC0000241, Payload: []byte("closed")},
		{Kind: Withdraw, Request: 7, Payload: []byte{}},
		{Kind: Room, Tunnel: 7, Request: 1 << 40, Payload: []byte{}},
		{Kind: Call, Request: 3, Address: 1 << 33, Token: 2, Payload: []byte("a part")},
		{Kind: Call, Request: 4, Address: 3, Token: 3, Status: 0xC0000241, Payload: []byte("why")},
		{Kind: Called, Request: 3, Payload: []byte{}},
		{Kind: Leave, Payload: []byte{}},
		{Kind: Send, Tunnel: 7, Flags: Immediate | Solicited, Immediate: 1<<32 - 1, Payload: []byte{}},
		{Kind: Send, Tunnel: 7, Flags: Immediate | Hashed, Immediate: 1, Hash: 2, Total: 3, Payload: []byte("abc")},
		{Kind: Write, Tunnel: 7, Request: 2, Flags: Immediate | Solicited, Address: 1, Token: 5, Payload: []byte{}},
		{Kind: Write, Tunnel: 7, Request: 2, Flags: Immediate | Hashed, Address: 1, Token: 5, Immediate: 9, Hash: 1 << 63, Total: 3, Payload: []byte("abc")},
		{Kind: Atomic, Tunnel: 7, Request: 2, Address: 1 << 40, Token: 5, Done: 1, Payload: (&Change{CompareAndSwap, 1<<64 - 1, 5}).Append(nil)},
	}
}

func TestRoundTrip(t *testing.T) {
	seen := make(map[Kind]bool)
	for _, want := range examples() {
		seen[want.Kind] = true
		b := make([]byte, 700)
		b = b[:want.Encode(b)]
		var have Frame
		if err := have.Decode(b); err != nil || !reflect.DeepEqual(have, want) {
			t.Errorf("%v: %+v, %v, want %+v", want.Kind, have, err, want)
		}
	}
	for k := Hello; k <= lastKind; k++ {
		if !seen[k] {
			t.Errorf("no example of %v", k)
		}
	}
}

// The fields of the header follow each other in this order, without gaps.
func TestHeaderBytes(t *testing.T) {
	f := Frame{Session: 0x0807060504030201, Kind: 9, Flags: 0xf0, Credits: 0x0c0b, Tunnel: 0x100f0e0d, Request: 0x1817161514131211,
		Address: 0x201f1e1d1c1b1a19, Token: 0x24232221, Status: 0x28272625, Total: 0x2c2b2a29, Offset: 0x302f2e2d, Order: 0x38373635}
	b := make([]byte, HeaderSize)
	f.Put(b, 0x34333231)
	for i := range HeaderSize {
		want := byte(i + 1)
		if i == atFlags {
			want = f.Flags // none that puts anything after the payload
		}
		if b[i] != want {
			t.Errorf("byte %d is %#x, want %#x", i, b[i], want)
		}
	}
}

func TestDecodeRefuses(t *testing.T) {
	for name, c := range map[string]struct {
		frame Frame
		spoil func([]byte) []byte
		want  error
	}{
		"empty":                 {Frame{Kind: Hello}, func(b []byte) []byte { return b[:0] }, ErrShort},
		"cut in its header":     {Frame{Kind: Hello}, func(b []byte) []byte { return b[:HeaderSize-1] }, ErrShort},
		"cut in its payload":    {Frame{Kind: Abort, Tunnel: 1, Payload: []byte("abc")}, func(b []byte) []byte { return b[:len(b)-1] }, ErrShort},
		"longer than it says":   {Frame{Kind: Hello}, func(b []byte) []byte { return append(b, 0) }, ErrShort},
		"kind 0":                {Frame{}, nil, ErrKind},
		"kind after the last":   {Frame{Kind: lastKind + 1}, nil, ErrKind},
		"flags of a Read":       {Frame{Kind: Read, Tunnel: 1, Flags: Invalidate, Total: 1}, nil, ErrFlags},
		"unknown flag":          {Frame{Kind: Send, Tunnel: 1, Flags: 16}, nil, ErrFlags},
		"hash of a Done":        {Frame{Kind: Done, Tunnel: 1, Flags: Hashed}, nil, ErrFlags},
		"cut in its hash":       {Frame{Kind: Write, Tunnel: 1, Flags: Hashed, Total: 1, Payload: []byte{1}}, func(b []byte) []byte { return b[:len(b)-1] }, ErrShort},
		"without its hash":      {Frame{Kind: Write, Tunnel: 1, Flags: Hashed}, func(b []byte) []byte { return b[:HeaderSize+hashSize-1] }, ErrShort},
		"number and token":      {Frame{Kind: Send, Tunnel: 1, Flags: Immediate | Invalidate, Token: 5}, nil, ErrFlags},
		"number of a Read":      {Frame{Kind: Read, Tunnel: 1, Flags: Immediate, Total: 1}, nil, ErrFlags},
		"number of an Atomic":   {Frame{Kind: Atomic, Tunnel: 1, Flags: Immediate}, nil, ErrFlags},
		"number without a flag": {Frame{Kind: Send, Tunnel: 1}, func(b []byte) []byte { return append(b, 1, 0, 0, 0) }, ErrShort},
		"cut in its number":     {Frame{Kind: Send, Tunnel: 1, Flags: Immediate, Immediate: 5}, func(b []byte) []byte { return b[:len(b)-1] }, ErrShort},
		"event of a Write":      {Frame{Kind: Write, Tunnel: 1, Flags: Solicited}, nil, ErrFlags},
		"Atomic too long":       {Frame{Kind: Atomic, Tunnel: 1, Payload: make([]byte, ChangeSize+1)}, nil, ErrLength},
		"total of an Atomic":    {Frame{Kind: Atomic, Tunnel: 1, Total: OldSize}, nil, ErrField},
		"token of a plain Send": {Frame{Kind: Send, Tunnel: 1, Token: 5}, nil, ErrFlags},
		"no tunnel":             {Frame{Kind: Done}, nil, ErrField},
		"tunnel of a Ping":      {Frame{Kind: Ping, Tunnel: 1}, nil, ErrField},
		"request of a Hello":    {Frame{Kind: Hello, Request: 1}, nil, ErrField},
		"address of a Send":     {Frame{Kind: Send, Tunnel: 1, Address: 1}, nil, ErrField},
		"token of a Data":       {Frame{Kind: Data, Tunnel: 1, Token: 1}, nil, ErrField},
		"status of a Done":      {Frame{Kind: Done, Tunnel: 1, Status: 1}, nil, ErrField},
		"total of a Done":       {Frame{Kind: Done, Tunnel: 1, Total: 1}, nil, ErrField},
		"payload of a Hello":    {Frame{Kind: Hello, Payload: []byte{1}}, nil, ErrLength},
		"text too long":         {Frame{Kind: Abort, Tunnel: 1, Payload: make([]byte, MaxText+1)}, nil, ErrLength},
		"total too large":       {Frame{Kind: Write, Tunnel: 1, Total: MaxTotal + 1, Payload: []byte{1}}, nil, ErrLength},
		"part beyond the end":   {Frame{Kind: Write, Tunnel: 1, Total: 3, Offset: 1, Payload: []byte("abc")}, nil, ErrLength},
		"offset beyond the end": {Frame{Kind: Write, Tunnel: 1, Total: 3, Offset: 1<<32 - 1, Payload: []byte("abc")}, nil, ErrLength},
		"empty part":            {Frame{Kind: Data, Tunnel: 1, Total: 3}, nil, ErrLength},
		"empty Read":            {Frame{Kind: Read, Tunnel: 1}, nil, ErrLength},
		"Read with a payload":   {Frame{Kind: Read, Tunnel: 1, Total: 3, Payload: []byte("abc")}, nil, ErrLength},
	} {
		b := make([]byte, 700)
		b = b[:c.frame.Encode(b)]
		if c.spoil != nil {
			b = c.spoil(b)
		}
		var f Frame
		if err := f.Decode(b); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
}

func TestConnectRefuses(t *testing.T) {
	from, to := netip.MustParseAddrPort("127.77.0.1:49152"), netip.MustParseAddrPort("127.255.255.254:65535")
	good := (&Connect{Tunnel: 1, From: from, To: to, Private: []byte("abc")}).Append(nil)
	padded := bytes.Clone(good)
	padded[22] = 1
	var c Connect
	for name, b := range map[string][]byte{
		"empty": nil, "padding": padded, "cut": good[:len(good)-1], "longer": append(bytes.Clone(good), 0),
		"tunnel 0": (&Connect{}).Append(nil), "private data": (&Connect{Tunnel: 1, Private: make([]byte, MaxPrivateData+1)}).Append(nil),
	} {
		if c.Decode(b) == nil {
			t.Errorf("%s: accepted as %+v", name, c)
		}
	}
	if err := c.Decode(good); err != nil || c.Tunnel != 1 || c.From != from || c.To != to || string(c.Private) != "abc" {
		t.Errorf("%+v, %v", c, err)
	}
}

func TestChangeRefuses(t *testing.T) {
	var c Change
	for name, b := range map[string][]byte{
		"empty": nil, "cut": (&Change{Operation: Swap}).Append(nil)[1:], "longer": append((&Change{Operation: Swap}).Append(nil), 0), "no operation": (&Change{}).Append(nil),
		"unknown operation": (&Change{Operation: Swap + 1}).Append(nil), "value of an addition": (&Change{Operation: FetchAndAdd, Swap: 1}).Append(nil),
	} {
		if c.Decode(b) == nil {
			t.Errorf("%s: accepted as %+v", name, c)
		}
	}
	for _, want := range []Change{{FetchAndAdd, 1 << 63, 0}, {CompareAndSwap, 0x0807060504030201, 1}, {Swap, 1<<64 - 1, 0}} {
		if err := c.Decode(want.Append(nil)); err != nil || c != want {
			t.Errorf("%+v, %v, want %+v", c, err, want)
		}
	}
	if b := (&Change{CompareAndSwap, 0x0908070605040302, 0x11100f0e0d0c0b0a}).Append(nil); !bytes.Equal(b, []byte{2, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17}) {
		t.Errorf("encoded as %v", b)
	}
	if old := Old(AppendOld(nil, 1<<63+5)); old != 1<<63+5 {
		t.Errorf("an old value of %#x", old)
	}
}

func TestNoAllocation(t *testing.T) {
	b := make([]byte, 700)
	payload := []byte("abc")
	if n := testing.AllocsPerRun(100, func() {
		f := Frame{Kind: Send, Tunnel: 1, Total: 3, Payload: payload}
		n := f.Encode(b)
		if f.Decode(b[:n]) != nil {
			t.Error("the frame is not accepted")
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// FuzzDecode: each accepted frame is one that Encode makes, and within the limits that receivers rely on.
func FuzzDecode(f *testing.F) {
	for _, e := range examples() {
		b := make([]byte, 700)
		f.Add(b[:e.Encode(b)])
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var have Frame
		if have.Decode(b) != nil {
			return
		}
		again := make([]byte, len(b))
		if n := have.Encode(again); n != len(b) || !bytes.Equal(again, b) {
			t.Fatalf("%x is accepted as %+v, which is %x", b, have, again)
		}
		if n := uint64(have.Offset) + uint64(len(have.Payload)); have.Total != 0 && (n > uint64(have.Total) || have.Total > MaxTotal) {
			t.Fatalf("a part of bytes %d to %d of %d", have.Offset, n, have.Total)
		}
		switch have.Kind {
		case Open, Accept:
			var c Connect
			if c.Decode(have.Payload) == nil && !bytes.Equal(c.Append(nil), have.Payload) {
				t.Fatalf("%x is accepted as %+v", have.Payload, c)
			}
		case Atomic:
			var c Change
			if c.Decode(have.Payload) == nil && !bytes.Equal(c.Append(nil), have.Payload) {
				t.Fatalf("%x is accepted as %+v", have.Payload, c)
			}
		}
	})
}
