package main

import (
	"context"

	"github.com/softnd/softnd"
	"github.com/softnd/softnd/nd"
)

// cellSize is the number of bytes of a temperature.
const cellSize = 8

// Depths of the queues. A neighbour is one generation ahead at most, so at most two rows, each with
// a message, are in flight.
const (
	receiveDepth   = 4
	initiatorDepth = 8
)

// block is one rank's part of the grid: its own rows, and a row beyond each edge, which a neighbour
// writes. The block stores each row in two generations, and computes one from the other. It also has
// the connections.
//
// The memory consists of these rows:
//
//	2      the row above the block, of an even and of an odd generation
//	rows   the block, even generations
//	rows   the block, odd generations
//	2      the row below the block, of an even and of an odd generation
//
// The rows beyond the edges need no lock. The neighbour overwrites generation g with g+2 only after
// it has received this block's row of generation g+1. This block sends that row after it has computed
// it, which is the last use of the neighbour's row g.
type block struct {
	job    *softnd.Job
	size   size // of the whole grid
	first  int  // row of the whole grid
	rows   int
	region nd.MemoryRegion
	mem    []byte          // of the region
	cells  []float64       // the same memory
	window nd.MemoryWindow // rank 0 reads the result through it
	above  border
	below  border
	sheet  sheet // rank 0 only

	cq      nd.CompletionQueue
	results [16]nd.Result
	peers   map[int]nd.Endpoint // by rank: rank 0 and the neighbours; at rank 0 all ranks
	done    int                 // completed requests other than receives
	moved   uint64              // bytes written and read through windows of other ranks
}

// border is one edge of a block. ep is nil if there is no neighbour.
type border struct {
	ep      nd.Endpoint
	window  nd.MemoryWindow     // the neighbour writes the two rows beyond the edge through it
	remote  nd.WindowDescriptor // the neighbour's two rows beyond its edge
	arrived int                 // the rows of generations 1 to arrived have arrived
	sending int                 // the Sends without a result so far
}

// sheet is the whole grid, at rank 0: the initial temperatures, later the result.
type sheet struct {
	region nd.MemoryRegion
	window nd.MemoryWindow
	cells  []float64
}

// newBlock allocates the memory. The caller must close the block even if there is an error.
func newBlock(ctx context.Context, job *softnd.Job, s size) (*block, error) {
	first, end := rowsOf(job.Rank(), job.Size(), s.Height)
	b := &block{job: job, size: s, first: first, rows: end - first, peers: map[int]nd.Endpoint{}}
	var err error
	if b.region, err = job.Adapter().Allocate(ctx, b.memorySize(), nd.AllowLocalWrite); err != nil {
		return b, err
	}
	if err := b.setMemory(b.region.Bytes()); err != nil {
		return b, err
	}
	if job.Rank() == 0 {
		if b.sheet.region, err = job.Adapter().Allocate(ctx, s.Height*b.rowSize(), nd.AllowLocalWrite); err != nil {
			return b, err
		}
		if b.sheet.cells, err = nd.View[float64](b.sheet.region.Bytes()); err != nil {
			return b, err
		}
	}
	return b, nil
}

// setMemory makes mem the memory of the block.
func (b *block) setMemory(mem []byte) (err error) {
	b.mem = mem
	b.cells, err = nd.View[float64](mem)
	return err
}

func (b *block) rowSize() int    { return b.size.Width * cellSize }
func (b *block) memorySize() int { return (2*b.rows + 4) * b.rowSize() }

// rowIndex returns the index of row y of a generation in the block's memory. Rows -1 and b.rows are
// those beyond the edges.
func (b *block) rowIndex(generation, y int) int {
	parity := generation & 1
	switch y {
	case -1:
		return parity
	case b.rows:
		return 2 + 2*b.rows + parity
	}
	return 2 + parity*b.rows + y
}

// bytes returns n rows of the block's memory, from an index on.
func (b *block) bytes(index, n int) []byte {
	return b.mem[index*b.rowSize() : (index+n)*b.rowSize()]
}

// row returns the temperatures of row y.
func (b *block) row(generation, y int) []float64 {
	return b.cells[b.rowIndex(generation, y)*b.size.Width:][:b.size.Width]
}

// connect connects with rank 0 and the neighbours, in the order of ranks, and binds the windows. There
// is one for each neighbour, over the two rows that it writes. Rank 0 has one more, over the initial
// temperatures.
func (b *block) connect(ctx context.Context) error {
	rank, ranks, adapter := b.job.Rank(), b.job.Size(), b.job.Adapter()
	if ranks == 1 {
		return nil
	}
	var err error
	if b.cq, err = adapter.CreateCompletionQueue(ctx, ranks*(receiveDepth+initiatorDepth)); err != nil {
		return err
	}
	for peer := range ranks {
		isNeighbour := peer == rank-1 || peer == rank+1
		if peer == rank || !isNeighbour && peer != 0 && rank != 0 {
			continue
		}
		ep, err := b.job.Connect(ctx, peer, nd.EndpointConfig{
			ReceiveCQ: b.cq, InitiatorCQ: b.cq, Context: uint64(peer),
			ReceiveDepth: receiveDepth, InitiatorDepth: initiatorDepth,
		})
		if err != nil {
			return err // it names the ranks
		}
		b.peers[peer] = ep
		for range receiveDepth {
			if !isNeighbour {
				break
			}
			if err := ep.Receive(0, nd.SGL{}); err != nil {
				return err
			}
		}
	}
	if b.above.ep = b.peers[rank-1]; b.above.ep != nil {
		edge := b.bytes(b.rowIndex(0, -1), 2)
		if b.above.window, err = b.bind(ctx, b.above.ep, b.region, edge, nd.AllowWrite|nd.ThisEndpointOnly); err != nil {
			return err
		}
	}
	if b.below.ep = b.peers[rank+1]; b.below.ep != nil {
		edge := b.bytes(b.rowIndex(0, b.rows), 2)
		if b.below.window, err = b.bind(ctx, b.below.ep, b.region, edge, nd.AllowWrite|nd.ThisEndpointOnly); err != nil {
			return err
		}
	}
	if rank == 0 { // without ThisEndpointOnly, all connections of the adapter can use the window
		b.sheet.window, err = b.bind(ctx, b.peers[1], b.sheet.region, b.sheet.region.Bytes(), nd.AllowRead)
	}
	return err
}

// bind binds a new window to part of a region. Peers may use the window when bind has returned.
func (b *block) bind(ctx context.Context, ep nd.Endpoint, region nd.MemoryRegion, part []byte, rights nd.OpFlags) (nd.MemoryWindow, error) {
	window, err := b.job.Adapter().CreateMemoryWindow(ctx)
	if err != nil {
		return nil, err
	}
	if err := ep.Bind(0, region, window, part, rights); err != nil {
		return window, err
	}
	return window, b.waitForOne(ctx)
}

// descriptors describes the windows of a rank to the other ranks.
type descriptors struct{ Sheet, Above, Below nd.WindowDescriptor }

func (b *block) windows() descriptors {
	return descriptors{descriptorOf(b.sheet.window), descriptorOf(b.above.window), descriptorOf(b.below.window)}
}

// descriptorOf returns the zero descriptor for a window that does not exist.
func descriptorOf(w nd.MemoryWindow) nd.WindowDescriptor {
	if w == nil {
		return nd.WindowDescriptor{}
	}
	return w.Descriptor()
}

// setNeighbours stores the descriptors of the neighbours: the first row of this block goes below the block
// above, its last row above the block below.
func (b *block) setNeighbours(all []descriptors) {
	if b.above.ep != nil {
		b.above.remote = all[b.job.Rank()-1].Below
	}
	if b.below.ep != nil {
		b.below.remote = all[b.job.Rank()+1].Above
	}
}

// load reads the block's rows of generation 0, and those beyond its edges.
func (b *block) load(ctx context.Context, from nd.WindowDescriptor) error {
	end := b.first + b.rows
	if end < b.size.Height {
		if err := b.loadRows(ctx, from, b.bytes(b.rowIndex(0, b.rows), 1), end); err != nil {
			return err
		}
	}
	if b.first > 0 {
		if err := b.loadRows(ctx, from, b.bytes(b.rowIndex(0, -1), 1), b.first-1); err != nil {
			return err
		}
	}
	return b.loadRows(ctx, from, b.bytes(b.rowIndex(0, 0), b.rows), b.first)
}

// loadRows fills part of the block's memory with rows of the whole grid from y on.
func (b *block) loadRows(ctx context.Context, from nd.WindowDescriptor, into []byte, y int) error {
	at := y * b.rowSize()
	if b.job.Rank() == 0 {
		copy(into, b.sheet.region.Bytes()[at:])
		return nil
	}
	rows, err := from.Slice(at, len(into))
	if err != nil {
		return err
	}
	return b.read(ctx, 0, nd.SGE{Buffer: into, Token: b.region.LocalToken()}, rows)
}

// invalidateSheet ends all access to the initial temperatures.
func (b *block) invalidateSheet(ctx context.Context) error {
	if b.sheet.window == nil {
		return nil
	}
	if err := b.peers[1].Invalidate(0, b.sheet.window, 0); err != nil {
		return err
	}
	return b.waitForOne(ctx)
}

// bindResult lets rank 0 read the block's rows of a generation.
func (b *block) bindResult(ctx context.Context, generation int) (err error) {
	if b.job.Rank() > 0 {
		rows := b.bytes(b.rowIndex(generation, 0), b.rows)
		b.window, err = b.bind(ctx, b.peers[0], b.region, rows, nd.AllowRead|nd.ThisEndpointOnly)
	}
	return err
}

// result describes the result of a rank to rank 0.
type result struct {
	Window nd.WindowDescriptor
	Moved  uint64
}

func (b *block) result() result { return result{descriptorOf(b.window), b.moved} }

// readResults reads the blocks of all ranks into the sheet, at rank 0.
func (b *block) readResults(ctx context.Context, from []result, generation int) error {
	whole := b.sheet.region.Bytes()
	copy(whole, b.bytes(b.rowIndex(generation, 0), b.rows))
	for peer := 1; peer < len(from); peer++ {
		first, end := rowsOf(peer, len(from), b.size.Height)
		into := nd.SGEOf(b.sheet.region, first*b.rowSize(), (end-first)*b.rowSize())
		if err := b.read(ctx, peer, into, from[peer].Window); err != nil {
			return err
		}
	}
	return nil
}

// read fills a buffer from the beginning of a peer's window. One request can transfer
// MaxTransferLength bytes, so it may take several.
func (b *block) read(ctx context.Context, peer int, into nd.SGE, from nd.WindowDescriptor) error {
	info, err := b.job.Adapter().Query()
	if err != nil {
		return err
	}
	for at := 0; at < len(into.Buffer); {
		n := min(len(into.Buffer)-at, int(info.MaxTransferLength))
		fragment, err := from.Slice(at, n)
		if err != nil {
			return err
		}
		buffer := nd.SGE{Buffer: into.Buffer[at:][:n], Token: into.Token}
		if err := nd.ReadFrom(b.peers[peer], 0, nd.One(buffer), fragment, 0); err != nil {
			return err
		}
		if err := b.waitForOne(ctx); err != nil {
			return err
		}
		b.moved += uint64(n)
		at += n
	}
	return nil
}

// close closes all objects. The waiting requests of a neighbour then fail.
func (b *block) close() {
	for _, ep := range b.peers {
		ep.Close()
	}
	for _, w := range []nd.MemoryWindow{b.above.window, b.below.window, b.window, b.sheet.window} {
		if w != nil {
			w.Close(context.Background())
		}
	}
	for _, r := range []nd.MemoryRegion{b.region, b.sheet.region} {
		if r != nil {
			r.Close(context.Background())
		}
	}
	if b.cq != nil {
		b.cq.Close()
	}
}
