package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"

	"github.com/softnd/softnd"
)

// commonError is an error that all ranks have; rank 0 prints it.
type commonError struct{ text string }

func (e commonError) Error() string { return e.text }

// gather returns the values of all ranks, in the order of ranks. If a rank passes a problem instead,
// all ranks return the first one as a [commonError].
//
// T has a fixed size. Each blob is the text of the problem, filled up with zeros, and the value in
// network byte order, so that ranks in other languages can take part.
func gather[T any](ctx context.Context, job *softnd.Job, problem error, mine T) ([]T, error) {
	type envelope struct {
		Problem [512]byte
		Value   T
	}
	out := envelope{Value: mine}
	if problem != nil {
		copy(out.Problem[:], problem.Error())
	}
	blob, err := binary.Append(nil, binary.BigEndian, &out)
	if err != nil {
		return nil, err
	}
	blobs, err := job.Exchange(ctx, blob)
	if err != nil {
		return nil, err
	}
	values := make([]T, len(blobs))
	for rank, blob := range blobs {
		var in envelope
		if n, err := binary.Decode(blob, binary.BigEndian, &in); err != nil || n != len(blob) {
			return nil, fmt.Errorf("value of rank %d: it has %d bytes: want %d", rank, len(blob), binary.Size(&in))
		}
		text, _, _ := bytes.Cut(in.Problem[:], []byte{0})
		switch {
		case len(text) > 0 && rank > 0:
			return nil, commonError{fmt.Sprintf("rank %d: %s", rank, text)}
		case len(text) > 0:
			return nil, commonError{string(text)}
		}
		values[rank] = in.Value
	}
	return values, nil
}
