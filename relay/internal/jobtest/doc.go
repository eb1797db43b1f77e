// Package jobtest has the tests of jobs over several hosts: programs of softnd, under a launcher and without one, with
// ndrelay. Two network namespaces are the hosts.
package jobtest
