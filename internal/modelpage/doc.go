// Package modelpage writes docs/conformance.md. For each part of package nd the page gives its name in NetworkDirect, the
// scenarios that use it, and whether they pass. For each row of the conformance table it says whether the row passes.
//
// The whole page is generated. The names come from the comments of package nd. The uses come from the types of package
// ndtest and of the tests of packages nd and endpoint. The results come from runs of the suite. The page contains no
// results of other tests.
package modelpage
