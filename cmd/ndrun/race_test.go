//go:build race

package main

// memoryFactor is how much more memory a process needs under the race detector.
const memoryFactor = 4
