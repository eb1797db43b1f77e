package traffic

import (
	"testing"

	"github.com/softnd/softnd/window"
)

func TestChunk(t *testing.T) {
	if chunk != window.ChunkSize {
		t.Errorf("chunk is %d, window.ChunkSize is %d", chunk, window.ChunkSize)
	}
}
