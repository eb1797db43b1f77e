// Package modelpage writes the page of docs/ that says how far the model is covered: for each
// part of package nd its name in NetworkDirect, the scenarios that use it, and whether they pass;
// and for each row of the conformance table whether it passes.
//
// Nothing on the page is written by hand. The names come from the comments of package nd, the uses
// from the types of package ndtest and of the tests of the packages nd and endpoint, and the results
// from runs of the suite. The page cannot know how other tests end, and does not say that they pass.
package modelpage
