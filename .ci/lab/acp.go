package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

const sdk = "@agentclientprotocol/sdk"

// editing is the column of the trials with permesso acp between an editor and an agent of the official SDK.
var editing = agent{name: sdk, column: sdk, pkg: sdk, env: func(string) []string { return nil }}

// exchange is one turn of an agent in an editor.
type exchange struct {
	name  string
	steps []object
	mode  bool                           // the editor chooses another mode
	allow bool                           // what the approver says to each request
	down  bool                           // no daemon runs
	do    func(*setting, *running) error // when the first request waits; nil: the approver decides
	ran   int                            // how many of the steps, and the mode
	said  string                         // by the agent of each step
}

// asks is a call with options of these kinds, "": of none.
func asks(kinds ...string) []object {
	all := []any{}
	for _, kind := range kinds {
		if kind == "" {
			all = append(all, nil)
		} else {
			all = append(all, kind)
		}
	}
	return []object{{"do": "permission", "kinds": all}}
}

var (
	every    = asks("allow_always", "allow_once", "reject_always", "reject_once")
	messages = []object{{"do": "read"}, {"do": "write"}, {"do": "terminal"}}
)

var exchanges = []exchange{
	{name: "all four kinds, approved", steps: every, allow: true, ran: 1, said: "o-allow_once"},
	{name: "all four kinds, denied", steps: every, said: "o-reject_once"},
	{name: "only allow_always, approved", steps: asks("allow_always"), allow: true, said: "cancelled"},
	{name: "only reject_always, denied", steps: asks("reject_always"), said: "o-reject_always"},
	{name: "no rejection is offered, denied", steps: asks("allow_always", "allow_once"), said: "cancelled"},
	{name: "odd kinds, approved", steps: asks("allow", "allow_twice", "ALLOW_ONCE"), allow: true, said: "cancelled"},
	{name: "kinds are missing, approved", steps: asks("", ""), allow: true, said: "cancelled"},
	{name: "options are missing, approved", steps: []object{{"do": "permission"}}, allow: true, said: "cancelled"},
	{name: "two calls with a missing and an odd kind among the options, approved", steps: append(asks("", "allow_once"), asks("odd", "allow_once")...), allow: true, ran: 2, said: "o-allow_once o-allow_once"},
	{name: "the editor cancels the turn", steps: every, said: "cancelled", do: func(w *setting, r *running) error {
		if err := w.write(filepath.Join(w.dir, "cancel"), "", 0o644); err != nil {
			return err
		}
		<-r.ended
		if w.approve() == nil {
			return errors.New("a request of a cancelled turn was still pending")
		}
		return nil
	}},
	{name: "the proxy is killed while it waits, then approved", steps: every, said: "the connection ended", do: func(w *setting, r *running) error {
		if err := w.signalTo("acp", syscall.SIGKILL); err != nil {
			return err
		}
		<-r.ended
		return w.operator("approve", w.id, "--seen", w.digest) // of no call any more
	}},
	// Its "cancelled" may reach the agent before its end does.
	{name: "the proxy is ended by SIGTERM while it waits", steps: every, do: func(w *setting, r *running) error {
		return w.signalTo("acp", syscall.SIGTERM)
	}},
	{name: "the daemon is killed while it waits, and started again, then approved", steps: every, ran: 1, said: "o-allow_once", do: func(w *setting, _ *running) error {
		return then((*setting).kill, (*setting).serve, (*setting).approve)(w)
	}},
	{name: "the daemon is down", steps: every, down: true, said: "o-reject_once"},
	{name: "a file, a terminal and a mode, approved", steps: messages, mode: true, allow: true, ran: 3, said: "old written started"},
	{name: "a file, a terminal and a mode, denied", steps: messages, mode: true, said: "old refused refused"},
}

// acp runs the exchanges.
func (l *lab) acp(part string, cells map[string]map[string]string) error {
	if _, err := l.version(editing.pkg); err != nil {
		return nil // run has said so
	}
	for _, name := range []string{"agent.mjs", "editor.mjs"} { // modules are looked for beside them
		b, err := os.ReadFile(filepath.Join(".ci/lab/acp", name))
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(l.folder, name), b, 0o644); err != nil {
			return err
		}
	}
	var wrong []error
	for _, x := range exchanges {
		name := acpRow(x)
		if !strings.Contains(name, part) {
			continue
		}
		c, err := l.exchange(x)
		if err == nil && (c.ran != x.ran || c.unallowed > 0) {
			err = errors.New(c.String())
		}
		if err != nil {
			wrong = append(wrong, fmt.Errorf("%s: %w", name, err))
		}
		cells[name] = map[string]string{editing.column: c.String()}
		fmt.Printf("lab: %-22s %-22s %s\n", c, editing.column, x.name)
	}
	return errors.Join(wrong...)
}

func acpRow(x exchange) string { return "acp: " + x.name }

// through is a command that records each line on both sides of the proxy. It keeps no end of a pipe open itself, so that each
// side sees when the proxy has died.
const through = `exec 3<&0
tee "$LAB_DIR/editor.sent" <&3 3<&- | "$0" acp -- sh -c 'tee "$LAB_DIR/agent.got" | node "$0" | tee "$LAB_DIR/agent.sent"' "$1" 3<&- | tee "$LAB_DIR/editor.got" 3<&- &
exec <&- >&2 3<&-
wait`

func (l *lab) exchange(x exchange) (c count, err error) {
	w, err := l.setting(editing, false)
	if err != nil {
		return c, err
	}
	defer w.close()
	if err := w.configure(""); err != nil {
		return c, err
	}
	if !x.down {
		if err := w.serve(); err != nil {
			return c, err
		}
	}
	c.of = w.number(x)
	steps, err := json.Marshal(x.steps)
	if err != nil {
		return c, err
	}
	env := []string{"LAB_STEPS=" + string(steps)}
	if x.mode {
		env = append(env, "LAB_MODE="+w.makes("mode"))
	}
	node := func(name string) string { return filepath.Join(l.folder, name) }
	r, err := w.startWith(env, "node", node("editor.mjs"), "sh", "-c", through, w.program, node("agent.mjs"))
	if err != nil {
		return c, err
	}
	defer r.end()
	if err := w.answer(x, r); err != nil {
		return c, fmt.Errorf("%w: %s", err, r.out.String())
	}
	<-r.ended
	c, err = w.counted(c)
	if !strings.Contains(r.out.String(), x.said+`"]`) || strings.Contains(r.out.String(), "ASKED") {
		err = errors.Join(err, fmt.Errorf("it said %s", r.out.String()))
	}
	return c, errors.Join(err, w.unchanged("editor", "agent"), w.unchanged("agent", "editor"))
}

// number gives each step an effect of its own, and is how many there are.
func (w *setting) number(x exchange) int {
	n := 0
	for i, step := range x.steps {
		text := w.makes(fmt.Sprint(i))
		step["command"], step["path"] = text, text
		if step["do"] != "read" {
			n++
		}
	}
	if x.mode {
		n++
	}
	return n
}

func (w *setting) answer(x exchange, r *running) error {
	switch {
	case x.down:
		return nil
	case x.do == nil:
		return w.decideAll(r, func(string) bool { return x.allow })
	}
	if err := w.awaitPending(r); err != nil {
		return err
	}
	return x.do(w, r)
}

var judged = []string{"session/request_permission", "fs/write_text_file", "terminal/create", "session/set_mode"}

// unchanged reports what did not go from one side to the other as it was: all lines but those that are judged, in order, and
// of these all that were passed on. What the proxy says itself answers such a line.
func (w *setting) unchanged(from, to string) error {
	sent, got := w.lines(from+".sent"), w.lines(to+".got")
	back := w.lines(to + ".sent")
	var plain, passed []string
	for _, line := range sent {
		if !slices.Contains(judged, methodOf(line)) {
			plain = append(plain, line)
		}
	}
	for _, line := range got {
		switch {
		case slices.Contains(judged, methodOf(line)):
			if !slices.Contains(sent, line) {
				return fmt.Errorf("the %s did not send %s", from, line)
			}
		case slices.Contains(sent, line):
			passed = append(passed, line)
		case !answersJudged(line, back):
			return fmt.Errorf("the proxy said by itself %s", line)
		}
	}
	if len(plain) < 2 {
		return fmt.Errorf("the %s has sent only %d lines", from, len(plain))
	}
	if len(passed) < len(plain) && w.cut {
		plain = plain[:len(passed)] // what was sent when the proxy was dead
	}
	if !slices.Equal(plain, passed) {
		return fmt.Errorf("from the %s: sent\n%s\ngot\n%s", from, strings.Join(plain, ""), strings.Join(passed, ""))
	}
	return nil
}

// answersJudged reports whether a line answers one of those that are judged.
func answersJudged(line string, asked []string) bool {
	return methodOf(line) == "" && slices.ContainsFunc(asked, func(q string) bool {
		return slices.Contains(judged, methodOf(q)) && idOf(q) == idOf(line)
	})
}

func (w *setting) lines(name string) []string {
	b, err := os.ReadFile(filepath.Join(w.dir, name))
	if err != nil {
		return nil
	}
	return slices.DeleteFunc(strings.SplitAfter(string(b), "\n"), func(s string) bool { return s == "" })
}

func methodOf(line string) string {
	var m struct{ Method string }
	_ = json.Unmarshal([]byte(line), &m) // then it is none that is judged
	return m.Method
}

func idOf(line string) string {
	var m struct{ ID json.RawMessage }
	_ = json.Unmarshal([]byte(line), &m)
	return string(m.ID)
}
