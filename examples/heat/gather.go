package main

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/softnd/softnd"
)

// commonError is an error that all ranks have; rank 0 prints it.
type commonError struct{ text string }

func (e commonError) Error() string { return e.text }

// gather returns the values of all ranks, in the order of ranks. If a rank passes a problem instead,
// all ranks return the first one as a [commonError].
func gather[T any](ctx context.Context, job *softnd.Job, problem error, mine T) ([]T, error) {
	type envelope struct {
		Problem string
		Value   T
	}
	out := envelope{Value: mine}
	if problem != nil {
		out.Problem = problem.Error()
	}
	blob, err := json.Marshal(out)
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
		if err := json.Unmarshal(blob, &in); err != nil {
			return nil, fmt.Errorf("value of rank %d: %w", rank, err)
		}
		switch {
		case in.Problem != "" && rank > 0:
			return nil, commonError{fmt.Sprintf("rank %d: %s", rank, in.Problem)}
		case in.Problem != "":
			return nil, commonError{in.Problem}
		}
		values[rank] = in.Value
	}
	return values, nil
}
