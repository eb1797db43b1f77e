package main

import "fmt"

// attach tells how to go on with a rank that is stopped before its first instruction, in
// commands to be pasted. gdb would otherwise report the stop once more, and pass it on.
func attach(rank, pid int, complain func(error)) {
	complain(fmt.Errorf(`rank %d (pid %d) is stopped before its first instruction; attach a debugger, or let it run:
    gdb -p %[2]d -ex 'handle SIGSTOP nostop noprint nopass'
    dlv attach %[2]d
    kill -CONT %[2]d`, rank, pid))
}
