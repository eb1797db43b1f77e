package nd

import (
	"context"
	"errors"
	"strings"
)

// OpError is the error of a failed control call, a failed post, or a failed [Result]. Its text has
// this form, without the parts that are empty:
//
//	nd: OP on OBJECT: DETAIL: STATUS (FIELD) (ERR): NEXT
//
// For example:
//
//	nd: write on endpoint 3: 2 bytes past the window: access violation: check the length
//
// [errors.Is] finds Status, Err, and the errors that Err wraps.
type OpError struct {
	Op     string // the call in lower case: "write", "connect"; empty in the error of a Result
	Object string // the object of the call: "endpoint 3"; in the error of a Result the request: "RequestWrite 7"; may be empty
	Detail string // the fault, with the value asked for and the limit; may be empty
	Next   string // a step that the user can take; may be empty
	Field  string // the parameter or configuration field at fault, such as "InlineSize"; may be empty
	Status Status
	Err    error // the error that caused this error; may be nil
}

// Error returns the text of the error.
func (e *OpError) Error() string {
	var b strings.Builder
	b.WriteString("nd:")
	if e.Op != "" {
		b.WriteString(" " + e.Op)
	}
	if e.Object != "" {
		if e.Op != "" {
			b.WriteString(" on")
		}
		b.WriteString(" " + e.Object)
	}
	if e.Op != "" || e.Object != "" {
		b.WriteByte(':')
	}
	if e.Detail != "" {
		b.WriteString(" " + e.Detail + ":")
	}
	b.WriteString(" " + e.Status.words())
	if e.Field != "" {
		b.WriteString(" (" + e.Field + ")")
	}
	if e.Err != nil {
		b.WriteString(" (" + e.Err.Error() + ")")
	}
	if e.Next != "" {
		b.WriteString(": " + e.Next)
	}
	return b.String()
}

// Unwrap returns Status, unless it is [Success], and Err, unless it is nil.
func (e *OpError) Unwrap() []error {
	var errs []error
	if e.Status != Success {
		errs = append(errs, e.Status)
	}
	if e.Err != nil {
		errs = append(errs, e.Err)
	}
	return errs
}

// CanceledError returns the error of a control call whose context has ended: an [OpError] with status
// [Canceled]. [errors.Is] also finds ctx.Err() and the cause of ctx in it. CanceledError is for
// providers.
func CanceledError(ctx context.Context, op, object string) error {
	err := ctx.Err()
	if cause := context.Cause(ctx); cause != nil && !errors.Is(cause, err) {
		err = &canceledCause{err, cause}
	}
	return &OpError{Op: op, Object: object, Status: Canceled, Err: err}
}

// canceledCause is a context's error together with the cause that was given for it.
type canceledCause struct{ err, cause error }

func (c *canceledCause) Error() string   { return c.err.Error() + ": " + c.cause.Error() }
func (c *canceledCause) Unwrap() []error { return []error{c.err, c.cause} }

// StatusOf returns the first [Status] that err wraps. If err wraps no Status, StatusOf returns [Success]
// for nil, [Canceled] for the error of a context, and [Unsuccessful] for any other error.
func StatusOf(err error) Status {
	var s Status
	switch {
	case err == nil:
		return Success
	case errors.As(err, &s):
		return s
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return Canceled
	}
	return Unsuccessful
}
