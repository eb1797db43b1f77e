package wire

import (
	"testing"

	"github.com/softnd/softnd/endpoint/internal/ring"
	"github.com/softnd/softnd/nd"
)

// The words of each kind are those that internal/layout/LAYOUT.txt describes.
func TestEntryWords(t *testing.T) {
	const token = nd.Token(1<<32 - 1)
	s := Fragment(WriteFragment, FlagFirst, 5, SGE{11, 12, token}, 13, 14)
	if want := (ring.Words{Header(WriteFragment, FlagFirst, 0, 5), 11, 12 | uint64(token)<<32, 13, 14}); s != want {
		t.Errorf("a fragment is %x, want %x", s, want)
	}
	var e Entry
	if !e.Decode(&s) || e.SenderAddress != 11 || e.FragmentLength != 12 || e.SenderToken != token || e.ReceiverAddress != 13 || e.RequestLength != 14 || e.Token != 5 {
		t.Errorf("%x is decoded as %+v", s, e)
	}
	for first, k := range map[int]Kind{1: SendInEntry, 2: WriteInEntry} {
		s := ring.Words{Header(k, 0, 9, 0), 1, 2, 3, 4}
		if !e.Decode(&s) || e.Payload[0] != byte(first) || e.Payload[8] != byte(first+1) {
			t.Errorf("%x is decoded as %+v", s, e)
		}
	}
}

func TestDecodeRejectsMalformedEntries(t *testing.T) {
	for _, header := range []uint64{
		0, // no kind
		Header(Atomic+1, FlagFirst|FlagLast, 0, 0),
		Header(WritePlaced, FlagFirst|FlagLast, 0, 0),           // without immediate data
		Header(Atomic, FlagFirst|FlagLast|FlagAckRequest, 0, 0), // operation 0
		Header(SendFailed, FlagFirst|FlagLast|FlagImmediate, 0, 0),
		Header(SendInEntry, FlagFirst|FlagLast|FlagInvalidate|FlagImmediate, 0, 0),
		Header(WriteInEntry, FlagFirst|FlagLast|FlagImmediate, MaxWriteInEntry-7, 0),
		Header(SendInEntry, FlagFirst|FlagLast, MaxSendInEntry+1, 0),
		Header(WriteInEntry, FlagFirst|FlagLast, MaxWriteInEntry+1, 0),
		Header(SendPlaced, FlagFirst|FlagLast, 1, 0),
		Header(SendFailed, FlagFirst|FlagLast, 1, 0),
		Header(SendFragment, FlagFirst|FlagLast, 1, 0),
	} {
		var e Entry
		if e.Decode(&ring.Words{header}) {
			t.Errorf("header %#x is accepted as %+v", header, e)
		}
	}
}

func TestPayloadRoundTrip(t *testing.T) {
	data := make([]byte, MaxSendInEntry)
	for i := range data {
		data[i] = byte(i + 1)
	}
	for n := range MaxSendInEntry + 1 {
		var s ring.Words
		var e Entry
		s[0] = Header(SendInEntry, FlagFirst|FlagLast, n, 0)
		PutPayload(&s, 1, data[:n])
		if !e.Decode(&s) || e.PayloadLength != n || string(e.Payload[:n]) != string(data[:n]) {
			t.Errorf("%d bytes are decoded as %+v", n, e)
		}
	}
}
