package endpoint

import (
	"fmt"
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/softnd/softnd/endpoint/internal/cm"
	"github.com/softnd/softnd/endpoint/internal/ring"
	"github.com/softnd/softnd/endpoint/internal/wire"
	"github.com/softnd/softnd/internal/layout/layouttest"
	"github.com/softnd/softnd/nd"
)

// TestSharedMemoryPage fails for a word of the shared state, or a kind of entry, that the page does not name.
func TestSharedMemoryPage(t *testing.T) {
	page, err := os.ReadFile("../docs/shared-memory.md")
	if err != nil {
		t.Fatal(err)
	}
	names := []string{"SendInEntry", "SendPlaced", "SendFailed", "SendFragment", "WriteFragment", "ReadFragment", "WriteInEntry", "WritePlaced", "Atomic"}
	if len(names) != int(wire.Atomic) {
		t.Errorf("the test has %d kinds of entries", len(names))
	}
	for f := range reflect.TypeFor[wire.SharedQP]().Fields() {
		names = append(names, f.Name)
	}
	for _, name := range names {
		if name != "_" && !strings.Contains(string(page), "`"+name+"`") {
			t.Errorf("docs/shared-memory.md does not name %s", name)
		}
	}
}

func TestLayout(t *testing.T) {
	const token = nd.Token(1<<32 - 1)
	layouttest.Check(t, []string{"endpoint.", "word endpoint.", "ring.", "wire.", "word wire."},
		layouttest.Struct[ring.Slot]("ring.Slot"),
		layouttest.Struct[wire.SharedQP]("wire.SharedQP"),
		layouttest.Struct[wire.ConnectionRecord]("wire.ConnectionRecord"),
		"word wire.SharedQP.EndCause, 32 bits\n  1 local, 2 fault of the responder, 3 closed\n",
		"word wire.ConnectionRecord.Port, 32 bits\n"+
			layouttest.Bits(1<<16-1, "port")+
			layouttest.Bits(1<<24-1, "shm.number, with bit 31")+
			layouttest.Bits(wire.ByNumber, "the sides connect by number"),
		fmt.Sprintf("word wire.ConnectionRecord.State, 32 bits\n"+
			"  %d requested, %d accepted, %d established, %d refused, %d withdrawn, %d aborted\n",
			cm.ConnRequested, cm.ConnAccepted, cm.ConnEstablished, cm.ConnRefused, cm.ConnWithdrawn, cm.ConnAborted),
		fmt.Sprintf("word wire.ConnectionRecord.Detached, 32 bits\n"+
			"  %d no longer uses the other's SharedQP, %d nor the record\n", wire.DetachedQP, wire.DetachedRecord),
		"word wire.ConnectionRecord.Adapter, 64 bits, also window.accessEntry.owner\n"+
			layouttest.Bits(1<<ownerShift-1, "number of the adapter among its member's")+
			layouttest.Bits(^uint64(1<<ownerShift-1), "shm.MemberID"),
		fmt.Sprintf("endpoint.descriptor, 64-bit words, wire.SharedQP.ReceiveStride bytes from one to the next\n"+
			"  word 0    capacity in bytes\n"+
			"  word 1    number of entries, at most %d\n"+
			"  word %d+%di address of entry i, as the receiver counts\n"+
			"  word %d+%di its length (bits 0..31) and local token (32..63)\n",
			maxSGE, descriptorHeader/8, descriptorEntry/8, descriptorHeader/8+1, descriptorEntry/8),
		"word wire.Entry.0, 64 bits\n"+
			layouttest.Bits(wire.Header(0xff, 0, 0, 0), "kind")+
			layouttest.Bits(wire.Header(0, 0xff, 0, 0), fmt.Sprintf("flags: %d first, %d last, %d invalidate, %d ack request, %d solicited, %d hashed, %d immediate", wire.FlagFirst, wire.FlagLast, wire.FlagInvalidate, wire.FlagAckRequest, wire.FlagSolicited, wire.FlagHashed, wire.FlagImmediate))+
			layouttest.Bits(wire.Header(0, 0, 0xffff, 0), "length of the payload")+
			layouttest.Bits(wire.Header(0, 0, 0, token), "token"),
		fmt.Sprintf("word wire.Entry.%d, 64 bits, with flag %d\n"+
			"  of a Send or Write: XXH64 of the data of the whole request; kinds %d and %d hold %d bytes less\n"+
			"  of a Read: index in wire.SharedQP.ReadHashes of the receiver, which stores the XXH64 of the data there\n",
			wire.HashWord, wire.FlagHashed, wire.SendInEntry, wire.WriteInEntry, wire.MaxSendInEntry-wire.Room(wire.SendInEntry, wire.FlagHashed)),
		fmt.Sprintf("wire.Entry, immediate data, 32 bits, with flag %d\n"+
			"  kinds %d, %d, %d and %d: in the place of the token\n"+
			"  kind %d: word %d, with flag %d word %d; it holds %d bytes less\n"+
			"  kind %d: word %d of the last entry\n",
			wire.FlagImmediate, wire.SendInEntry, wire.SendPlaced, wire.SendFragment, wire.WritePlaced,
			wire.WriteInEntry, wire.HashWord, wire.FlagHashed, wire.HashWord-1, wire.MaxWriteInEntry-wire.Room(wire.WriteInEntry, wire.FlagImmediate),
			wire.WriteFragment, wire.HashWord-1),
		fmt.Sprintf("wire.Entry, words of ring.Slot.words by kind\n"+
			"  %d SendInEntry 1..%d payload, at most %d bytes\n"+
			"  %d SendPlaced  1 bytes that lie in the receive already\n"+
			"  %d SendFailed  1 status of the receive, 2 bytes of the message\n"+
			"  %d SendFragment 1 sender's address, 2 length and sender's local token, 4 length of the whole message\n"+
			"  %d WriteFragment 1 sender's address, 2 length and sender's local token, 3 receiver's address, 4 length of the whole request\n"+
			"  %d ReadFragment likewise\n"+
			"  %d WriteInEntry 1 receiver's address, 2..%d payload, at most %d bytes\n"+
			"  %d WritePlaced 1 bytes that lie in the memory already\n"+
			"  %d Atomic 1 receiver's address, 2 operand, 3 swap value, 4 operation (%d fetch and add, %d compare and swap, %d swap), 5 index in wire.SharedQP.Results, of which there are %d, of the receiver, which stores the old value there\n",
			wire.SendInEntry, len(ring.Words{})-1, wire.MaxSendInEntry, wire.SendPlaced, wire.SendFailed, wire.SendFragment, wire.WriteFragment, wire.ReadFragment, wire.WriteInEntry, len(ring.Words{})-1, wire.MaxWriteInEntry,
			wire.WritePlaced, wire.Atomic, wire.FetchAndAdd, wire.CompareAndSwap, wire.Swap, wire.Results))
}
