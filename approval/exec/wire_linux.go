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
//	  run   MARK DIR TEMP LASTS MEMORY TASKS PATH NARGS ARG… VAR…   with stdin, stdout, stderr
//	  kill  MARK
//	supervisor → daemon
//	  ready  GROUPS WHY             first and once
//	  failed MARK TEXT              nothing was started
//	  exit   MARK STATUS LEFT OVER  nothing is left running
//
// LASTS is true for a server. MEMORY (bytes) and TASKS (processes and threads) are the run's limits; 0: none. OVER is
// "memory" or "tasks" if the run was over that limit, else empty. GROUPS is the folder of
// the runs' cgroups, or empty. WHY says why the kernel does not keep the limits, so that
// they are counted; it is empty if the kernel does.
//
// The end of the stream tells the supervisor that the daemon is gone and that it
// must kill everything.
const (
	msgRun    = "run"
	msgKill   = "kill"
	msgReady  = "ready"
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

// runFields are the fields of run before the first ARG.
const runFields = 9

func (s spec) pack() ([]byte, error) {
	fields := make([]string, 0, runFields+len(s.argv)+len(s.env))
	fields = append(fields, msgRun, s.mark, s.dir, strconv.FormatBool(s.temp), strconv.FormatBool(s.piped),
		strconv.FormatInt(s.memory, 10), strconv.Itoa(s.tasks), s.path, strconv.Itoa(len(s.argv)))
	fields = append(append(fields, s.argv...), s.env...)
	b := pack(fields...)
	if len(b) > maxMessage {
		return nil, errTooLong
	}
	return b, nil
}

func unpackSpec(fields []string) (spec, error) {
	if len(fields) < runFields {
		return spec{}, errMessage
	}
	memory, err1 := strconv.ParseInt(fields[5], 10, 64)
	tasks, err2 := strconv.Atoi(fields[6])
	n, err3 := strconv.Atoi(fields[8])
	rest := fields[runFields:]
	if err := errors.Join(err1, err2, err3); err != nil || memory < 0 || tasks < 0 || n <= 0 || n > len(rest) {
		return spec{}, errMessage
	}
	return spec{
		mark: fields[1], dir: fields[2], temp: fields[3] == "true", piped: fields[4] == "true", memory: memory, tasks: tasks, path: fields[7],
		argv: rest[:n], env: rest[n:],
	}, nil
}
