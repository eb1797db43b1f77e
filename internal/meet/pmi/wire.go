// Package pmi implements version 1 of the Process Management Interface, by which programs of
// MPICH and their launcher communicate: [Server] for a launcher, [Client] for a program. It is a
// protocol of lines of text.
//
// A rank has a stream socket to its launcher, whose descriptor number is in PMI_FD. The rank
// sends requests, and the launcher answers them.
//
//	rank                                    launcher
//	cmd=init pmi_version=1 …           →    cmd=response_to_init …   first
//	cmd=get_maxes                      →    cmd=maxes …              longest name, key and value
//	cmd=get_appnum                     →    cmd=appnum …
//	cmd=get_universe_size              →    cmd=universe_size …
//	cmd=get_my_kvsname                 →    cmd=my_kvsname …         the job's own store
//	cmd=put kvsname= key= value=       →    cmd=put_result …
//	cmd=get kvsname= key=              →    cmd=get_result …
//	cmd=getbyidx kvsname= idx=         →    cmd=getbyidx_results …
//	cmd=create_kvs                     →    cmd=newkvs …
//	cmd=destroy_kvs kvsname=           →    cmd=kvs_destroyed …
//	cmd=barrier_in                     →    cmd=barrier_out          when all ranks have entered
//	cmd=abort exitcode=                     (no answer)
//	cmd=finalize                       →    cmd=finalize_ack         last
//
// Requests to spawn processes (mcmd=spawn) and for names that outlive the job (publish_name,
// unpublish_name, lookup_name) are refused.
package pmi

// TWIN c/src/meet/pmi.c.

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strings"
)

// Environment variables of a rank, set by the launcher.
const (
	EnvFD   = "PMI_FD"   // descriptor number of the rank's socket to the launcher
	EnvRank = "PMI_RANK" // 0 to size-1
	EnvSize = "PMI_SIZE" // number of ranks
	EnvPort = "PMI_PORT" // host and port of a launcher that expects a connection, which Client does not support
)

// Maximum lengths. Clients of MPICH read answers into 1024 bytes, so values must leave room for
// the rest of the line.
const (
	maxName  = 256
	maxKey   = 64
	maxValue = 960
	maxLine  = 4096
	maxSpawn = 4096 // lines of one mcmd=spawn request
)

var (
	errLine    = errors.New("line is too long")
	errNoPairs = errors.New("want name=value pairs that begin with cmd=")
)

// message is a parsed line.
type message struct {
	command string
	values  map[string]string
}

// parse parses a line: words name=value, separated by spaces. A value may contain equals signs.
// The first word is cmd or mcmd.
func parse(line string) (message, error) {
	m := message{values: make(map[string]string)}
	for i, word := range strings.Fields(line) {
		name, value, ok := strings.Cut(word, "=")
		switch {
		case !ok || name == "":
			return message{}, errNoPairs
		case i == 0 && name == "cmd":
			m.command = value
		case i == 0 && name == "mcmd":
			m.command = "mcmd=" + value
		case i == 0:
			return message{}, errNoPairs
		default:
			if _, twice := m.values[name]; twice {
				return message{}, fmt.Errorf("%s is given twice", name)
			}
			m.values[name] = value
		}
	}
	if m.command == "" || m.command == "mcmd=" {
		return message{}, errNoPairs
	}
	return m, nil
}

// format returns the line of a message. Values must be [printable].
func format(command string, pairs ...string) string {
	var b strings.Builder
	b.WriteString("cmd=" + command)
	for i := 0; i+1 < len(pairs); i += 2 {
		b.WriteString(" " + pairs[i] + "=" + pairs[i+1])
	}
	b.WriteByte('\n')
	return b.String()
}

// sentence replaces spaces in a text, because values contain none.
func sentence(text string) string { return strings.ReplaceAll(text, " ", "_") }

// printable reports whether s can be a name, key or value: ASCII 33 to 126.
func printable(s string) bool {
	for i := range len(s) {
		if s[i] < '!' || s[i] > '~' {
			return false
		}
	}
	return true
}

// readLine reads one line, without its end. It returns errLine if the line is longer than r's
// buffer, io.EOF at the end, and io.ErrUnexpectedEOF at the end of an incomplete line.
func readLine(r *bufio.Reader) (string, error) {
	line, err := r.ReadSlice('\n')
	switch {
	case errors.Is(err, bufio.ErrBufferFull):
		return "", errLine
	case errors.Is(err, io.EOF) && len(line) > 0:
		return "", io.ErrUnexpectedEOF
	case err != nil:
		return "", err
	}
	return string(line[:len(line)-1]), nil
}
