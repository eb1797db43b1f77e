package softnd

import "github.com/softnd/softnd/shm"

// ErrVersion is the error of [Init] and [Join] if the job's memory was made by another release of
// softnd. [errors.Is] finds it. Build all programs of a job with one release.
var ErrVersion = shm.ErrVersion

// NoMemoryError is the error of [Init], [Join] and [Job.Exchange] if there is too little memory. Its
// fields are Requested and Available, both in bytes; Limit, the name of the limit; and Hint, what the
// user can do. [errors.AsType] finds *NoMemoryError. The calls of package nd return [nd.NoMemory]
// instead.
type NoMemoryError = shm.NoMemoryError
