package main

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/softnd/softnd"
)

// verdict is an error that all ranks have learned of; rank 0 speaks for all of them.
type verdict struct{ text string }

func (v verdict) Error() string { return v.text }

// gather tells every rank's value to all ranks, in the order of ranks. If any rank comes with a
// problem instead, all of them return the first one as a [verdict].
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
			return nil, fmt.Errorf("what rank %d says cannot be read: %w", rank, err)
		}
		switch {
		case in.Problem != "" && rank > 0:
			return nil, verdict{fmt.Sprintf("rank %d: %s", rank, in.Problem)}
		case in.Problem != "":
			return nil, verdict{in.Problem}
		}
		values[rank] = in.Value
	}
	return values, nil
}
