package softnd

// Must returns v if err is nil. Otherwise it ends the job as [Check] does. It is meant for short
// programs in which any error is fatal:
//
//	job := softnd.Must(softnd.Init(ctx))
func Must[T any](v T, err error) T {
	Check(err)
	return v
}

// Check does nothing if err is nil. Otherwise it ends the job by [Abort] with exit code 1 and err
// as the reason, so deferred functions do not run.
func Check(err error) {
	if err != nil {
		Abort(1, err.Error())
	}
}
