package endpoint

import (
	"encoding/binary"
	"testing"

	"github.com/softnd/softnd/faults"
	"github.com/softnd/softnd/nd"
)

// Rules about Reads and rules about atomics are not about each other.
func TestFaultOfAtomics(t *testing.T) {
	rules := []faults.Rule{
		on("read", faults.Rule{Nth: 2, Action: "fail", Status: nd.DataOverrun}),
		on("atomic", faults.Rule{Nth: 2, MinSize: 8, MaxSize: 8, Action: "corrupt", Offset: 3}),
		on("atomic", faults.Rule{Nth: 3, Phase: "post", Action: "fail", Status: nd.InsufficientResources}),
	}
	onFaulty(t, rules, func(t *testing.T, p *pair) {
		region, far := p.atomicRegion(p.b, p.Private[1])
		sum := uint64(0)
		for i, o := range []order{{Do: doFetchAndAdd, Operand: 9}, {Do: doCompareAndSwap, Operand: 9, Swap: 1 << 40}, {Do: doSwap}, {Do: doSwap, Operand: 3}} {
			o.Parts, o.Far, o.Context = mine(0, 8), far, uint64(i)
			if i == 2 {
				p.a.refuse(nd.InsufficientResources, o)
				continue
			}
			p.a.must(o)
			p.a.expect(initiatorQueue, success(nd.RequestFetchAndAdd+nd.RequestType(min(i, 2)), uint64(i), 8))
			want := binary.NativeEndian.AppendUint64(nil, sum)
			if i == 1 {
				want[3] ^= 0xff
			}
			if got := p.a.number(0, 0); got != binary.NativeEndian.Uint64(want) {
				t.Errorf("atomic %d returns %#x, want %#x", i, got, want)
			}
			sum = p.b.number(region, 0)
		}
		if sum != 3 {
			t.Errorf("the number is %d, want 3", sum)
		}
		read := order{Do: doRead, Parts: mine(0, 8), Far: far}
		p.a.must(read)
		p.a.expect(initiatorQueue, success(nd.RequestRead, 0, 8))
		p.a.must(read)
		p.a.expect(initiatorQueue, failure(nd.RequestRead, 0, nd.DataOverrun))
		p.ended(nd.DataOverrun)
	})
}
