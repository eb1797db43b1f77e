package softnd

// Must returns v if err is nil. Otherwise it ends the job as [Check] does. It is for short programs in
// which any error is fatal:
//
//	job := softnd.Must(softnd.Init(ctx))
func Must[T any](v T, err error) T {
	Check(err)
	return v
}

// Check does nothing if err is nil. Otherwise it calls [Abort] with exit code 1 and the text of err.
// Deferred functions do not run then.
func Check(err error) {
	if err != nil {
		Abort(1, err.Error())
	}
}
