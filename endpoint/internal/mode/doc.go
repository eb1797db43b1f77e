// Package mode is the hook through which modes of tests and checks act on the requests of an endpoint.
package mode
