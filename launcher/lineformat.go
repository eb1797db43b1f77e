package launcher

import (
	"bytes"
	"encoding/json"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// timeLayout always has six digits of microseconds, so lines sort by it.
const timeLayout = "2006-01-02T15:04:05.000000Z"

// lineFormat says what is added to a line of output.
type lineFormat struct {
	json, label, times bool
}

// isRaw reports whether lines are written unchanged.
func (f lineFormat) isRaw() bool { return f == lineFormat{} }

// line is a JSON Lines object.
type line struct {
	Rank    int     `json:"rank"`
	Stream  string  `json:"stream"`
	Time    string  `json:"time"`
	Text    *string `json:"text,omitempty"`    // without line feed; set if it is UTF-8
	Base64  []byte  `json:"base64,omitempty"`  // set otherwise
	Partial bool    `json:"partial,omitempty"` // without line feed, or continued in the next object
}

// add appends lines of s to out. Only the last line may lack its end. A line longer than maxLine,
// not counting its end, is added in parts.
func (f lineFormat) add(out []byte, s *stream, b []byte, now time.Time) []byte {
	if f.isRaw() {
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
		// A line feed after the carriage return that ended the line belongs to that line.
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
	enc.SetEscapeHTML(false) // for readability
	_ = enc.Encode(l)        // cannot fail: l has only types that JSON can represent
	return buf.Bytes()
}
