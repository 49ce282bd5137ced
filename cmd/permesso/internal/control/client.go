package control

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/rs/zerolog"

	"github.com/permesso-dev/permesso/approval/decide"
	"github.com/permesso-dev/permesso/approval/store"
	"github.com/permesso-dev/permesso/cmd/permesso/config"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/console"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/home"
	"github.com/permesso-dev/permesso/ipc"
	"github.com/permesso-dev/permesso/ipc/httpapi"
)

// Client asks the daemon, or does what the daemon would do on the files that it has
// locked. Close it.
type Client struct {
	Hello
	Served bool // a daemon answers

	console *console.Console
	path    string // of the daemon's socket
	greeted bool   // the daemon has answered
	warned  bool   // of another version
	version string // of the daemon
	// reopen opens the home again, after its daemon has ended. nil: it is not tried.
	reopen func(context.Context) (*Client, error)

	service *Service // without a daemon
	caller  *httpapi.Caller
	release func() error
}

// Open connects to the daemon of this home. If none runs, it locks the home. If the home
// belongs to another user, it connects to the daemon at the approver socket.
func Open(ctx context.Context, a *console.Console) (*Client, error) {
	return openAgain(ctx, a, func() (*home.Home, *home.Keys, error) { return home.Open(a) })
}

// OpenBare is Open for operations that need neither the configuration nor keys.
func OpenBare(ctx context.Context, a *console.Console) (*Client, error) {
	return openAgain(ctx, a, func() (*home.Home, *home.Keys, error) {
		h, err := home.Locate(a)
		if err != nil {
			return nil, nil, err
		}
		if _, err := os.Stat(h.Layout.IPC()); err != nil {
			return nil, nil, home.NoDaemon(h.Layout.Home)
		}
		return h, nil, nil
	})
}

// giveUp is how long a command waits for the answer of a daemon that may be busy. After
// home.AnswerTimeout it says for which.
const giveUp = 5 * home.AnswerTimeout

// nameSilent names the daemon of a home if stop is not called within home.AnswerTimeout.
func nameSilent(a *console.Console, dir string) (stop func()) {
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		select {
		case <-done:
		case <-time.After(home.AnswerTimeout):
			if r := (&home.Home{Layout: ipc.Layout{Home: dir}}).HealthAt(time.Now()); r.PID != 0 {
				fmt.Fprintf(a.Err, "permesso: waiting for the daemon with PID %d; its last sign of life was at %s\n", r.PID, r.UpdatedAt.Local().Format(time.DateTime))
			}
		}
	}()
	return func() { close(done); <-ended }
}

// openAgain is open for a client that opens the home again when its daemon has ended.
func openAgain(ctx context.Context, a *console.Console, load func() (*home.Home, *home.Keys, error)) (*Client, error) {
	c, err := open(ctx, a, load)
	if err == nil {
		c.reopen = func(ctx context.Context) (*Client, error) { return open(ctx, a, load) }
	}
	return c, err
}

// open connects to the daemon that the command means: that of its HOME, else that at the
// approver socket. It reads the HOME only if no daemon answers there.
func open(ctx context.Context, a *console.Console, load func() (*home.Home, *home.Keys, error)) (*Client, error) {
	dir, findErr := home.Find(a)
	if findErr == nil {
		defer nameSilent(a, dir)()
	}
	c, tried, err := openDaemon(ctx, a, dir, findErr)
	if c != nil || err != nil {
		return c, err
	}
	h, k, err := load()
	if errors.Is(err, fs.ErrPermission) && isSocket(socketPath(a)) {
		return openSocket(ctx, a, socketPath(a))
	}
	if err != nil {
		return nil, err
	}
	if !home.Named(a) && dir != config.SystemHome && isSocket(config.DefaultSocket) {
		defer tellOther(a, dir)
	}
	return openFiles(ctx, a, h, k, isSilent(tried))
}

// openDaemon connects to the daemon that the command means, if it is not a HOME that has to be
// read. Then tried is why the socket of that one does not answer.
func openDaemon(ctx context.Context, a *console.Console, dir string, findErr error) (c *Client, tried, err error) {
	if findErr == nil {
		if c, tried = connect(ctx, a, ipc.Layout{Home: dir}.Socket()); tried == nil {
			c.tellConfig()
			return c, nil, nil
		} else if !isAbsent(tried) {
			return nil, nil, tried
		}
	}
	if asksSocket(a, dir) {
		c, err = openSocket(ctx, a, socketPath(a))
		return c, nil, err
	}
	return nil, tried, nil
}

// Again connects to the next daemon at the same socket: never to that of another home.
func (c *Client) Again(ctx context.Context) (*Client, error) { return connect(ctx, c.console, c.path) }

// OpenServed connects to a running daemon, found as Open finds it. It never locks the home.
func OpenServed(ctx context.Context, a *console.Console) (*Client, error) {
	dir, findErr := home.Find(a)
	c, tried, err := openDaemon(ctx, a, dir, findErr)
	if c != nil || err != nil {
		return c, err
	}
	h := home.New(nil, dir)
	_, statErr := os.Stat(h.Layout.IPC())
	switch {
	case findErr != nil:
		return nil, findErr
	case errors.Is(statErr, fs.ErrPermission) && isSocket(socketPath(a)):
		return openSocket(ctx, a, socketPath(a))
	case statErr != nil:
		return nil, home.NoDaemon(dir)
	case isSilent(tried):
		return nil, silent(h, h.HealthAt(time.Now()))
	}
	return nil, console.Fail(console.ExitError, "start the daemon: permesso serve", "the daemon of %s is not running", dir)
}

// tellOther says that the machine has a daemon, and that it is not the one that is meant.
func tellOther(a *console.Console, dir string) {
	a.Tell("to ask it: PERMESSO_SOCKET="+config.DefaultSocket+"; as its operator: --home "+config.SystemHome,
		"the HOME in %s is meant; this machine's daemon has another one", dir)
}

// tellConfig says what is wrong with the configuration, which the daemon's answers do not
// depend on.
func (c *Client) tellConfig() {
	a := c.console
	if c.ConfigIssue != "" {
		a.Tell(c.ConfigHint, "%s", c.ConfigIssue)
	}
	named := cmp.Or(a.ConfigFlag, a.Env("PERMESSO_CONFIG"))
	if named == "" || !c.Operator || c.Config == "" {
		return
	}
	one, err := os.Stat(named)
	two, servedErr := os.Stat(c.Config)
	switch path, _ := filepath.Abs(named); {
	case path == c.Config:
	case err != nil:
		_, err = config.Locate(named, a.Env)
		a.Tell("the daemon serves "+c.Config, "%v", err)
	case servedErr != nil || !os.SameFile(one, two):
		a.Tell("leave out --config, or name that file", "%s is not read: the daemon serves %s", named, c.Config)
	}
}

// isForeign reports whether the user has no HOME in a folder: it is unreadable, or it does not
// exist and was not named.
func isForeign(a *console.Console, dir string) bool {
	_, err := os.ReadDir(ipc.Layout{Home: dir}.Keys())
	return dir == "" || errors.Is(err, fs.ErrPermission) || errors.Is(err, fs.ErrNotExist) && !home.Named(a)
}

func isSocket(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode()&fs.ModeSocket != 0
}

// openSocket connects to the daemon of another user.
func openSocket(ctx context.Context, a *console.Console, path string) (*Client, error) {
	if a.Env("PERMESSO_SOCKET") == "" {
		a.Tell("", "this machine's daemon is asked, at %s", path)
	}
	c, err := connect(ctx, a, path)
	switch {
	case errors.Is(err, syscall.ECONNREFUSED), errors.Is(err, fs.ErrNotExist):
		return nil, console.Fail(console.ExitError, "start the daemon: permesso serve, or systemctl start permesso", "no daemon listens on %s", path)
	case isSilent(err):
		return nil, console.Fail(console.ExitError, "ask the operator to check the daemon", "the daemon at %s does not answer", path)
	}
	return c, err
}

// socketPath is the approver socket by environment, configuration or default.
func socketPath(a *console.Console) string {
	if path := a.Env("PERMESSO_SOCKET"); path != "" {
		return path
	}
	if file, err := config.Locate(a.ConfigFlag, a.Env); err == nil {
		if b, err := os.ReadFile(file); err == nil {
			if found := socketKey.FindSubmatch(b); found != nil {
				return string(found[1])
			}
		}
	}
	return config.DefaultSocket
}

// socketKey finds the socket in a configuration that may be invalid.
var socketKey = regexp.MustCompile(`(?m)^[ \t]*socket[ \t]*=[ \t]*["']([^"'\\]+)["']`)

// isAbsent reports whether an error of connect means that the socket of HOME leads to no
// daemon, or to one that does not answer: its lock will tell.
func isAbsent(err error) bool {
	return isSilent(err) || errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) || errors.Is(err, syscall.ECONNREFUSED) ||
		errors.Is(err, syscall.ENOTDIR) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, io.ErrUnexpectedEOF)
}

func isSilent(err error) bool {
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, os.ErrDeadlineExceeded)
}

// connect greets the daemon at a socket.
func connect(ctx context.Context, a *console.Console, path string) (*Client, error) {
	ctx, cancel := context.WithTimeout(ctx, giveUp)
	defer cancel()
	c := &Client{console: a, path: path, Served: true}
	var err error
	if c.Hello, err = call(ctx, c, opHello, none{}); err != nil {
		return nil, err
	}
	c.greeted = true
	return c, nil
}

// DaemonVersion returns the version of the daemon that a command means, "" if none answers soon.
// It opens and locks nothing.
func DaemonVersion(ctx context.Context, a *console.Console) string {
	ctx, cancel := context.WithTimeout(ctx, home.AnswerTimeout)
	defer cancel()
	paths := []string{socketPath(a)}
	if dir, err := home.Find(a); err == nil {
		paths = slices.Insert(paths, 0, ipc.Layout{Home: dir}.Socket())
	}
	for _, path := range paths {
		c := &Client{console: a, path: path, warned: true}
		if _, err := call(ctx, c, opHello, none{}); err == nil {
			return c.version
		}
	}
	return ""
}

// openFiles locks a home. If a daemon has locked it, the daemon is asked instead. wasSilent
// says that the home's socket took a connection and did not answer.
func openFiles(ctx context.Context, a *console.Console, h *home.Home, k *home.Keys, wasSilent bool) (*Client, error) {
	var c *Client
	err := h.WaitForLock(ctx, func() error {
		release, err := h.Store.Lease(ctx)
		switch {
		case err == nil:
			c, err = filesClient(a, h, k, release)
			return err
		case errors.Is(err, fs.ErrPermission), errors.Is(err, syscall.EROFS):
			c, err = filesClient(a, h, k, func() error { return nil }) // to read
			return err
		case !errors.Is(err, store.ErrLocked):
			return err
		case wasSilent:
			return silent(h, h.HealthAt(time.Now()))
		}
		served, absent := connect(ctx, a, h.Layout.Socket())
		if absent == nil || !isAbsent(absent) {
			c = served
			return absent
		}
		wasSilent = isSilent(absent)
		return err
	})
	if errors.Is(err, store.ErrLocked) {
		err = silent(h, h.HealthAt(time.Now()))
	}
	return c, err
}

// silent is the error about a process that has locked the home and does not answer.
func silent(h *home.Home, r home.HealthReport) error {
	if r.PID == 0 {
		return console.Fail(console.ExitError, "try again: a daemon may be starting or stopping; otherwise end the process that uses "+h.Layout.Lock(),
			"a process has locked %s and does not answer", h.Layout.Home)
	}
	return console.Fail(console.ExitError, fmt.Sprintf("if it is not about to start or stop, check its log; if it was stopped, kill -CONT %d; otherwise kill -9 %d and start it again; nothing was changed", r.PID, r.PID),
		"the daemon with PID %d has locked %s and does not answer; its last sign of life was at %s", r.PID, h.Layout.Home, r.UpdatedAt.Local().Format(time.DateTime))
}

func filesClient(a *console.Console, h *home.Home, k *home.Keys, release func() error) (*Client, error) {
	debug.SetGCPercent(400) // short process: garbage collection would take a third of its time
	c := &Client{console: a, release: release, caller: &httpapi.Caller{Person: home.Operator(), Via: "cli", Operator: true}}
	var memory *home.Memory
	c.service = filesService(h, k, func() (*home.Memory, error) {
		if memory != nil {
			return memory, nil
		}
		m, err := h.NewMemory(k, zerolog.Nop())
		memory = m
		return m, err
	})
	if k == nil {
		return c, nil // with neither configuration nor keys
	}
	c.caller.Language = h.Config.Language
	var err error
	if c.Hello, err = call(context.Background(), c, opHello, none{}); err != nil {
		return nil, errors.Join(err, release())
	}
	return c, nil
}

// Close releases the home.
func (c *Client) Close() error {
	if c.release == nil {
		return nil
	}
	return c.release()
}

// call runs an operation in the daemon, or here without one.
func call[I, O any](ctx context.Context, c *Client, o operation[I, O], in I) (out O, err error) {
	for tries := 0; ; tries++ {
		if c.service != nil {
			return o.run(ctx, c.service, c.caller, &in)
		}
		out, err = remote(ctx, c, o, in)
		if lost, ok := errors.AsType[*lostError](err); !ok {
			return out, err
		} else if err := c.afterLoss(ctx, lost, changeOf(o.method, o.id, in), tries); err != nil {
			return out, err
		}
	}
}

// remote runs an operation in the daemon.
func remote[I, O any](ctx context.Context, c *Client, o operation[I, O], in I) (out O, err error) {
	path, body, err := encodeInput(o.path, in)
	if err != nil {
		return out, err
	}
	var b []byte
	err = c.ask(ctx, o.method, path, body, func(r io.Reader) (err error) {
		b, err = io.ReadAll(r)
		return err
	})
	if silent := errors.Is(err, errUnanswered); silent && changeOf(o.method, o.id, in) != (change{}) {
		err = console.Fail(console.ExitError, console.HintFor(err)+"; when it runs again: permesso show ID, or permesso status",
			"%w: whether it did that is unknown", err)
	}
	if err != nil {
		return out, err
	}
	if err := json.Unmarshal(b, &out); err != nil {
		return out, console.Wrap(console.ExitError, fmt.Errorf("parse the daemon's answer: %w", err), updateHint)
	}
	return out, nil
}

// encodeInput writes an operation's input as the API reads it: by its tags.
func encodeInput(path string, in any) (at string, body []byte, err error) {
	query := url.Values{}
	var fields func(v reflect.Value)
	fields = func(v reflect.Value) {
		for i := range v.NumField() {
			f, x := v.Type().Field(i), v.Field(i)
			switch {
			case f.Anonymous:
				fields(x)
			case f.Name == "Body":
				body, err = json.Marshal(x.Interface())
			case f.Tag.Get("path") != "":
				path = strings.Replace(path, "{"+f.Tag.Get("path")+"}", url.PathEscape(x.String()), 1)
			case !x.IsZero():
				text := fmt.Sprint(x.Interface())
				if t, ok := x.Interface().(time.Time); ok {
					text = t.UTC().Format(time.RFC3339Nano)
				}
				query.Set(f.Tag.Get("query"), text)
			}
		}
	}
	fields(reflect.ValueOf(in))
	if len(query) > 0 {
		path += "?" + query.Encode()
	}
	return path, body, err
}

// errUnanswered says that the daemon was stopped while an operation was in progress.
var errUnanswered = errors.New("does not answer any more")

// lostError says that the daemon ended before it answered.
type lostError struct {
	sent bool // the request, at least a part of it
	err  error
}

// Error implements error.
func (e *lostError) Error() string { return e.err.Error() }

func (e *lostError) Unwrap() error { return e.err }

// change is what an operation may have recorded, and the command that shows it.
type change struct{ what, command string }

// changeOf is the change of an operation, none if it does no harm to run it twice.
func changeOf(method, id string, in any) change {
	if method == http.MethodGet {
		return change{}
	}
	show := "permesso show "
	switch in := in.(type) {
	case decideBody:
		show += in.ID
	case cancelQuery:
		show += in.ID
	default:
		show += "ID"
	}
	switch id {
	case opFreeze.id, opLink.id, opReveal.id:
		return change{}
	case opDecide.id:
		return change{"decision", show}
	case opCancel.id:
		return change{"cancellation", show}
	case opRedeem.id:
		return change{"redemption", show}
	case opGrantAdd.id, opRevoke.id:
		return change{"grant", "permesso grants"}
	case opKeyCreate.id, opKeyRevoke.id:
		return change{"key", "permesso key list"}
	case opClearTaints.id:
		return change{"clearing", "permesso session list"}
	case opAcknowledge.id:
		return change{"acknowledgment", "permesso audit verify"}
	}
	return change{"change", "permesso status"}
}

// maxLosses is how often an operation is begun anew.
const maxLosses = 3

// afterLoss opens the home again: without a daemon, or with the next one. The error says why
// the operation must not be begun anew.
func (c *Client) afterLoss(ctx context.Context, lost *lostError, x change, tries int) error {
	if lost.sent && x != (change{}) {
		return console.Fail(console.ExitError, "check with "+x.command+" before retrying", "%s; the %s may have been recorded", c.ending(ctx), x.what)
	}
	if ctx.Err() != nil {
		return lost.err
	}
	if c.reopen == nil || tries == maxLosses {
		return console.Fail(console.ExitError, "try again", "%s before it answered", c.ending(ctx))
	}
	next, err := c.reopen(ctx)
	if err != nil {
		return err
	}
	next.reopen, next.warned = c.reopen, c.warned
	*c = *next
	return nil
}

// ending says what became of the daemon that closed a connection.
func (c *Client) ending(ctx context.Context) string {
	if ctx.Err() != nil {
		return "interrupted before the daemon answered"
	}
	if now, err := connect(ctx, c.console, c.path); err == nil && now.PID == c.PID {
		return "the daemon closed the connection"
	}
	return "the daemon ended"
}

// patience is how long an operation may take before the daemon is greeted again.
const patience = 200 * time.Millisecond

// reader reads the body of a response.
type reader func(io.Reader) error

// ask is exchange with a daemon that has answered before. While the answer takes its time,
// the daemon is greeted again: one that is silent then ends the wait. The error is a
// lostError if the daemon ended.
func (c *Client) ask(ctx context.Context, method, path string, body []byte, read reader) error {
	if !c.greeted {
		return c.exchange(ctx, method, path, body, read)
	}
	watched, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	go func() {
		for pause := patience; home.Sleep(watched, pause) == nil; pause = home.AnswerTimeout {
			if _, err := connect(watched, c.console, c.path); isSilent(err) && watched.Err() == nil {
				stop(errUnanswered)
			}
		}
	}()
	err := c.exchange(watched, method, path, body, read)
	switch {
	case err == nil:
		return nil
	case errors.Is(context.Cause(watched), errUnanswered):
		return c.silent()
	case isLost(err) || ctx.Err() != nil:
		_, notSent := errors.AsType[*notSentError](err)
		return &lostError{!notSent, err}
	}
	return err
}

// isLost reports whether an error of exchange means that the daemon ended.
func isLost(err error) bool {
	for _, e := range []error{io.ErrUnexpectedEOF, io.EOF, syscall.ECONNRESET, syscall.EPIPE, syscall.ECONNREFUSED, fs.ErrNotExist} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// silent is the error about a daemon that was stopped.
func (c *Client) silent() error {
	if errors.Is(syscall.Kill(c.PID, 0), syscall.ESRCH) {
		return console.Wrap(console.ExitError, fmt.Errorf("the daemon %w", errUnanswered), "check it: permesso status")
	}
	return console.Wrap(console.ExitError, fmt.Errorf("the daemon with PID %d %w", c.PID, errUnanswered), fmt.Sprintf("if it was stopped: kill -CONT %d", c.PID))
}

// notSentError says that no connection was made.
type notSentError struct{ error }

func (e notSentError) Unwrap() error { return e.error }

// exchange sends one request on a connection of its own.
func (c *Client) exchange(ctx context.Context, method, path string, body []byte, read reader) error {
	conn, err := httpapi.DialUnix(ctx, c.path)
	if err != nil {
		return &notSentError{fmt.Errorf("ask the daemon: %w", err)}
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })()
	r, err := http.NewRequestWithContext(ctx, method, "http://permesso/v1/local"+path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	r.Close = true
	if real := os.Getuid(); real != os.Geteuid() {
		r.Header.Set(httpapi.RealUIDHeader, strconv.Itoa(real))
	}
	if method == http.MethodPost {
		r.Header.Set("Content-Type", "application/json")
	}
	sent := r.Write(conn) // fails if the daemon refuses this user, which it does without reading
	resp, err := http.ReadResponse(bufio.NewReader(conn), r)
	if err != nil {
		if ctx.Err() != nil {
			err = ctx.Err()
		}
		return fmt.Errorf("ask the daemon: %w", errors.Join(sent, err))
	}
	defer resp.Body.Close()
	c.compareVersions(resp.Header.Get(httpapi.VersionHeader))
	if resp.StatusCode != http.StatusOK {
		b, _ := io.ReadAll(resp.Body)
		err := problemOf(resp.StatusCode, b)
		_, refused := errors.AsType[*decide.Refusal](err)
		if unknown := resp.StatusCode == http.StatusNotFound || resp.StatusCode == http.StatusMethodNotAllowed; unknown && !refused {
			return console.Fail(console.ExitError, updateHint, "the running daemon has version %s, which cannot do this", console.OneLine(resp.Header.Get(httpapi.VersionHeader)))
		}
		return err
	}
	if err := read(resp.Body); err != nil {
		return fmt.Errorf("read the daemon's answer: %w", err)
	}
	return nil
}

// updateHint is for a daemon of an earlier version.
const updateHint = "restart the daemon to update it: systemctl restart permesso, or end it and run permesso serve"

// compareVersions tells once that the daemon has another version.
func (c *Client) compareVersions(daemon string) {
	c.version = console.OneLine(daemon)
	if daemon != c.console.Version && !c.warned {
		c.console.Tell("", "this command has version %s, the running daemon %s; restart the daemon to update it", c.console.Version, c.version)
		c.warned = true
	}
}

// problemOf is the error that the daemon's operation returned.
func problemOf(status int, body []byte) error {
	var p httpapi.Problem
	if err := json.Unmarshal(body, &p); err != nil || p.Detail == "" {
		return console.Fail(console.ExitError, updateHint, "the daemon's answer is not understood: HTTP status %d", status)
	}
	p.Status = status
	return problemFrom(&p)
}

func problemFrom(p *httpapi.Problem) error {
	switch {
	case p.Refusal != nil:
		return refusalOf(p.Refusal)
	case p.Detail == decide.ErrNotAuthorized.Error():
		return &decide.Refusal{Reason: decide.ErrNotAuthorized, Hint: fmt.Sprintf("UID %d is no approver there: the operator can add it under [approvers], and the name to approvers in [workspaces.NAME]", os.Geteuid())}
	}
	code, ok := exitCodes()[p.Status]
	if !ok {
		code = console.ExitError
	}
	return console.Fail(code, p.Hint, "%s", p.Detail)
}
