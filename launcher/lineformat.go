package launcher

import (
	"bytes"
	"encoding/json"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// timeLayout shows microseconds, always all of them, so that lines sort by it.
const timeLayout = "2006-01-02T15:04:05.000000Z"

// lineForm is what a line is made into on its way out.
type lineForm struct {
	json, label, times bool
}

// raw tells whether lines stay as they are, so that they need not be looked at.
func (f lineForm) raw() bool { return f == lineForm{} }

// line is one line of JSON Lines output.
type line struct {
	Rank    int     `json:"rank"`
	Stream  string  `json:"stream"`
	Time    string  `json:"time"`
	Text    *string `json:"text,omitempty"`    // without its end; if that is UTF-8
	Base64  []byte  `json:"base64,omitempty"`  // otherwise
	Partial bool    `json:"partial,omitempty"` // it had no end, or goes on in the next one
}

// add appends lines of s, of which only the last may lack its end, to out. A line of more
// than maxLine bytes, not counting its end, is added in pieces.
func (f lineForm) add(out []byte, s *stream, b []byte, now time.Time) []byte {
	if f.raw() {
		return append(out, b...)
	}
	var at string
	if f.times || f.json {
		at = now.UTC().Format(timeLayout)
	}
	for len(b) > 0 {
		end := bytes.IndexAny(b, s.to.ends) + 1
		if end == 0 {
			end = len(b)
		}
		if end > maxLine+1 || end == maxLine+1 && !strings.Contains(s.to.ends, string(b[maxLine])) {
			end = maxLine
		}
		one := b[:end]
		b = b[end:]
		if f.json {
			out = appendJSON(out, s, one, at)
			continue
		}
		// A line feed right after the carriage return that ended the line belongs to it.
		if !(s.returned && one[0] == '\n') {
			if f.label {
				out = append(append(append(out, '['), s.number...), "] "...)
			}
			if f.times {
				out = append(append(out, at...), ' ')
			}
		}
		s.returned = one[end-1] == '\r' && strings.Contains(s.to.ends, "\r")
		out = append(out, one...)
		if !strings.Contains(s.to.ends, string(one[end-1:])) {
			out = append(out, '\n')
		}
	}
	return out
}

func appendJSON(out []byte, s *stream, b []byte, at string) []byte {
	l := line{Stream: s.name, Time: at}
	l.Rank, _ = strconv.Atoi(s.number)
	text, ended := bytes.CutSuffix(b, []byte("\n"))
	l.Partial = !ended
	if utf8.Valid(text) {
		t := string(text)
		l.Text = &t
	} else {
		l.Base64 = text
	}
	buf := bytes.NewBuffer(out)
	enc := json.NewEncoder(buf)
	enc.SetEscapeHTML(false) // it would be right too, but nobody could read it
	_ = enc.Encode(l)        // a buffer takes everything, and there is nothing in l that JSON lacks
	return buf.Bytes()
}
