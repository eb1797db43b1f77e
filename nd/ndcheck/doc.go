// Package ndcheck watches how a program uses a provider of package nd. It reports mistakes that a
// provider cannot name. Examples are a buffer that changes while a request uses it, and results that
// the program never takes.
//
// [Wrap] returns a provider that forwards every call and watches it. The provider below does not know
// about it, so a program without the checker pays nothing. With SOFTND_CHECK=1, package softnd wraps
// the provider of a rank, and `ndrun --check` sets that variable.
//
// A report is a [Finding]. It names the rule, the ranks, the objects, the bytes, the lines of the
// program, and the change that repairs it. [Rules] lists the rules; docs/check.md explains them.
//
// A request is in flight from its post until the program has taken its result. A request with
// [nd.SilentSuccess] is in flight until the program has taken the result of a later request of the same
// endpoint. A message may say that earlier requests are complete. So when the program learns something about other
// processes, the buffers of its earlier requests may change.
//
// A program that breaks a rule on purpose announces that with [nd.Expect].
package ndcheck
