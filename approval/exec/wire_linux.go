package exec

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// The daemon and its supervisor use a SOCK_SEQPACKET socket pair. One message is
// one packet. Its fields are separated by NUL, which no argument, variable or path
// can contain.
//
//	daemon → supervisor
//	  run   MARK DIR TEMP PATH NARGS ARG… VAR…   with stdin, stdout, stderr
//	  kill  MARK
//	supervisor → daemon
//	  failed MARK TEXT         nothing was started
//	  exit   MARK STATUS LEFT  nothing is left running
//
// The end of the stream tells the supervisor that the daemon is gone and that it
// must kill everything.
const (
	msgRun    = "run"
	msgKill   = "kill"
	msgFailed = "failed"
	msgExit   = "exit"
)

// maxMessage keeps a packet within the default socket buffer. It is also Linux's
// limit for a single argument.
const maxMessage = 128 << 10

var (
	errTooLong = fmt.Errorf("argv and environment exceed %d bytes; let the program read its arguments from stdin", maxMessage)
	errMessage = errors.New("malformed message")
)

func pack(fields ...string) []byte { return []byte(strings.Join(fields, "\x00")) }

func unpack(b []byte) []string { return strings.Split(string(b), "\x00") }

func (s spec) pack() ([]byte, error) {
	fields := make([]string, 0, 6+len(s.argv)+len(s.env))
	fields = append(fields, msgRun, s.mark, s.dir, strconv.FormatBool(s.temp), s.path, strconv.Itoa(len(s.argv)))
	fields = append(append(fields, s.argv...), s.env...)
	b := pack(fields...)
	if len(b) > maxMessage {
		return nil, errTooLong
	}
	return b, nil
}

func unpackSpec(fields []string) (spec, error) {
	if len(fields) < 6 {
		return spec{}, errMessage
	}
	n, err := strconv.Atoi(fields[5])
	if rest := fields[6:]; err == nil && n > 0 && n <= len(rest) {
		return spec{
			mark: fields[1], dir: fields[2], temp: fields[3] == "true", path: fields[4],
			argv: rest[:n], env: rest[n:],
		}, nil
	}
	return spec{}, errMessage
}
