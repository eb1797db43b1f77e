package endpoint

import (
	"fmt"
	"math/bits"
	"reflect"
	"strings"
	"testing"

	"github.com/softnd/softnd/nd"
	"github.com/softnd/softnd/shm"
)

// checkLayout compares sections of the layout description, which are found by
// their first lines, with what they should be, and looks for others whose
// names begin like these.
func checkLayout(t *testing.T, prefixes []string, sections ...string) {
	t.Helper()
	have := map[string]string{}
	for section := range strings.SplitSeq(strings.TrimSpace(shm.Layout), "\n\n") {
		title, _, _ := strings.Cut(section, "\n")
		have[title] = strings.TrimSpace(section) + "\n"
	}
	for _, want := range sections {
		title, _, _ := strings.Cut(want, "\n")
		if have[title] != want {
			t.Errorf("shm/LAYOUT.txt should have a section\n%s", want)
		}
		delete(have, title)
	}
	for title := range have {
		for _, prefix := range prefixes {
			if strings.HasPrefix(title, prefix) {
				t.Errorf("shm/LAYOUT.txt has a section %q, which nothing here bears out", title)
			}
		}
	}
}

// bitField is a line that describes some bits of a word.
func bitField(mask uint64, meaning string) string {
	first, last := bits.TrailingZeros64(mask), bits.Len64(mask)-1
	switch {
	case mask>>first != 1<<(last-first+1)-1:
		return fmt.Sprintf("  mask %#x has holes\n", mask)
	case first == last:
		return fmt.Sprintf("  bit      %d %s\n", first, meaning)
	}
	return fmt.Sprintf("  bits %2d..%2d %s\n", first, last, meaning)
}

func TestLayout(t *testing.T) {
	const token = nd.Token(1<<32 - 1)
	checkLayout(t, []string{"endpoint.", "word endpoint."},
		shm.DescribeStruct("endpoint.half", reflect.TypeFor[half]()),
		shm.DescribeStruct("endpoint.record", reflect.TypeFor[record]()),
		fmt.Sprintf("word endpoint.record.state, 32 bits\n"+
			"  %d requested, %d accepted, %d established, %d refused, %d withdrawn, %d aborted\n",
			connRequested, connAccepted, connEstablished, connRefused, connWithdrawn, connAborted),
		fmt.Sprintf("word endpoint.record.detached, 32 bits\n"+
			"  %d no longer uses the other's half, %d nor the record\n", leftHalf, leftRecord),
		"word endpoint.record.owner, 64 bits, also window.entry.owner\n"+
			bitField(1<<ownerShift-1, "number of the adapter among its member's")+
			bitField(^uint64(1<<ownerShift-1), "shm.MemberID"),
		fmt.Sprintf("endpoint.descriptor, 64-bit words, endpoint.half.receiveStride bytes from one to the next\n"+
			"  word 0    capacity in bytes\n"+
			"  word 1    number of entries, at most %d\n"+
			"  word %d+%di address of entry i, as the receiver counts\n"+
			"  word %d+%di its length (bits 0..31) and local token (32..63)\n",
			maxSGE, descriptorHeader/8, descriptorEntry/8, descriptorHeader/8+1, descriptorEntry/8),
		"word endpoint.message.0, 64 bits\n"+
			bitField(head(0xff, 0, 0, 0), "kind")+
			bitField(head(0, 0xff, 0, 0), fmt.Sprintf("flags: %d first, %d last, %d invalidate, %d awaited, %d solicited", flagFirst, flagLast, flagInvalidate, flagAwaited, flagSolicited))+
			bitField(head(0, 0, 0xffff, 0), "length of the payload")+
			bitField(head(0, 0, 0, token), "token"),
		fmt.Sprintf("endpoint.message, words of shm.slotWords.data by kind\n"+
			"  %d sendInline  1..%d payload, at most %d bytes\n"+
			"  %d sendPlaced  1 bytes that lie in the receive already\n"+
			"  %d sendFailed  1 status of the receive, 2 bytes of the message\n"+
			"  %d sendPiece   1 sender's address, 2 length and sender's local token, 4 length of the whole message\n"+
			"  %d writePiece  1 sender's address, 2 length and sender's local token, 3 receiver's address, 4 length of the whole request\n"+
			"  %d readPiece   likewise\n"+
			"  %d writeInline 1 receiver's address, 2..%d payload, at most %d bytes\n",
			sendInline, shm.SlotWords-1, inlinePayload, sendPlaced, sendFailed, sendPiece, writePiece, readPiece, writeInline, shm.SlotWords-1, inlineWritePayload))
}

// What the description says about messages, seen in messages.
func TestMessagesAreAsDescribed(t *testing.T) {
	const token = nd.Token(1<<32 - 1)
	s := piece(writePiece, flagFirst, 5, entry{11, 12, token}, 13, 14)
	if want := (shm.Slot{head(writePiece, flagFirst, 0, 5), 11, 12 | uint64(token)<<32, 13, 14}); s != want {
		t.Errorf("a piece is %x", s)
	}
	var m message
	if !m.decode(&s) || m.address != 11 || m.size != 12 || m.local != token || m.remote != 13 || m.total != 14 || m.token != 5 {
		t.Errorf("%x is read as %+v", s, m)
	}
	for first, k := range map[int]kind{1: sendInline, 2: writeInline} {
		s := shm.Slot{head(k, 0, 9, 0), 1, 2, 3, 4}
		if !m.decode(&s) || m.payload[0] != byte(first) || m.payload[8] != byte(first+1) {
			t.Errorf("%x is read as %+v", s, m)
		}
	}
}
