package main

import "fmt"

// reportStopped tells the user how to continue with a rank that is stopped before its first
// instruction. The commands can be pasted. Without the handle command, gdb would report the stop
// once more and pass it on.
func reportStopped(rank, pid int, printError func(error)) {
	printError(fmt.Errorf(`rank %d (pid %d) is stopped before its first instruction: attach a debugger or resume it:
    gdb -p %[2]d -ex 'handle SIGSTOP nostop noprint nopass'
    dlv attach %[2]d
    kill -CONT %[2]d`, rank, pid))
}
