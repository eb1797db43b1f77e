// Package pmi speaks version 1 of the Process Management Interface, the lines of
// text by which MPICH's programs and their launcher find each other, on both sides:
// [Server] for a launcher, [Client] for a program.
//
// A rank has a stream socket to its launcher, whose number is in PMI_FD. It asks, and
// the launcher answers; nothing else is ever said.
//
//	rank                                    launcher
//	cmd=init pmi_version=1 …           →    cmd=response_to_init …   first of all
//	cmd=get_maxes                      →    cmd=maxes …              longest name, key and value
//	cmd=get_appnum                     →    cmd=appnum …
//	cmd=get_universe_size              →    cmd=universe_size …
//	cmd=get_my_kvsname                 →    cmd=my_kvsname …         the job's own store
//	cmd=put kvsname= key= value=       →    cmd=put_result …
//	cmd=get kvsname= key=              →    cmd=get_result …
//	cmd=getbyidx kvsname= idx=         →    cmd=getbyidx_results …
//	cmd=create_kvs                     →    cmd=newkvs …
//	cmd=destroy_kvs kvsname=           →    cmd=kvs_destroyed …
//	cmd=barrier_in                     →    cmd=barrier_out          when all ranks have asked
//	cmd=abort exitcode=                     (no answer)
//	cmd=finalize                       →    cmd=finalize_ack         last of all
//
// Requests for more processes (mcmd=spawn) and for names that outlive the job
// (publish_name, unpublish_name, lookup_name) are refused.
package pmi

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strings"
)

// Environment of a rank. The launcher sets them.
const (
	EnvFD   = "PMI_FD"   // number of the rank's socket to the launcher
	EnvRank = "PMI_RANK" // 0 to size-1
	EnvSize = "PMI_SIZE" // number of ranks
	EnvPort = "PMI_PORT" // host and port of a launcher that wants to be called, which Client does not do
)

// Longest lines. Clients of MPICH read answers into 1024 bytes, so values have to
// leave room for what stands around them.
const (
	maxName  = 256
	maxKey   = 64
	maxValue = 960
	maxLine  = 4096
	maxSpawn = 4096 // lines of one mcmd=spawn, which is read to its end to be refused
)

var (
	errLine    = errors.New("a line is longer than the protocol has any")
	errNoPairs = errors.New("not a line of name=value pairs that begins with cmd=")
)

// message is a line taken apart.
type message struct {
	command string
	values  map[string]string
}

// parse takes a line apart: words that are separated by spaces, each name=value, of
// which a value may hold further equals signs. The first word is cmd or mcmd.
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

// format is the line of a message; values hold no spaces, see [printable].
func format(command string, pairs ...string) string {
	var b strings.Builder
	b.WriteString("cmd=" + command)
	for i := 0; i+1 < len(pairs); i += 2 {
		b.WriteString(" " + pairs[i] + "=" + pairs[i+1])
	}
	b.WriteByte('\n')
	return b.String()
}

// sentence makes one word of a text, which is all that a value can be.
func sentence(text string) string { return strings.ReplaceAll(text, " ", "_") }

// printable tells whether s can be a name, key or value: 33 to 126 of ASCII.
func printable(s string) bool {
	for i := range len(s) {
		if s[i] < '!' || s[i] > '~' {
			return false
		}
	}
	return true
}

// readLine reads one line, without its end.
//
// Errors: errLine for one longer than r's buffer; io.EOF, or io.ErrUnexpectedEOF in
// the middle of a line.
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
