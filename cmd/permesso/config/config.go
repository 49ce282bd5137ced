// Package config reads permesso.toml, in which the operator configures which
// agents may send requests, who may decide, and what may run.
//
// # Strictness
//
// A misread setting could weaken the gate. So every key and value must be known.
// All issues of a file are reported at once, each with line, column and the most
// similar known word. An issue never quotes other lines: they may hold secrets.
//
// # Who may decide
//
// gate.Authorizer alone decides this. Zero values deny: with no workspace, no id or no
// list, no person may decide.
package config

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/facts"
	"github.com/permesso-dev/permesso/security/policy"
)

// Config is a configuration with its defaults filled in.
type Config struct {
	File           string // the file's path; "": built in
	SHA256         string // of the file, in hex; "": built in
	GateName       string // name in receipts and checkpoints; a valid host name
	RunBefore      time.Duration
	LogLevel       string              // debug, info, warn, error
	LogFormat      string              // auto, json, console
	Language       string              // en, it
	LocalDecisions bool                // default for workspaces
	Socket         string              // for approvers with other UIDs; "": none
	Listen         []Listen            // addresses of the HTTP API; none: off
	ListenSet      bool                // set in the file
	ListenHosts    []string            // host names of the HTTP API besides its addresses
	Elicitation    string              // off, notify: what MCP clients of the HTTP API may show their user
	UI             string              // loopback address of the web UI; "": off
	UISet          bool                // set in the file
	AgentUIDs      map[string][]string // by workspace: UIDs of its agents; they may not decide
	Workspaces     map[string]approval.Workspace
	Approvers      map[string]approval.Approver
	Tools          map[string]approval.Tool
	Provers        facts.Provers
	Rules          []policy.Rule
	Limits         map[string]policy.Limits // by workspace
	Retention      Retention
	Telegram       *Telegram                         // nil: not configured
	TelegramChats  map[string]TelegramChat           // by workspace; missing: the private chats of its approvers
	Email          *Email                            // nil: not configured
	Ntfy           *Ntfy                             // nil: not configured
	Webhooks       map[string]Webhook                // by name
	EmailCeiling   map[string]approval.Reversibility // by workspace: the limit for approvals by email; missing: no limit
	Warnings       []Issue                           // valid, but probably not intended
	Settings       []Setting                         // every key with its value in effect
}

// ElicitNotify is the value of Elicitation with which clients may show that a request waits.
const ElicitNotify = "notify"

// DefaultWorkspace exists while no workspace is configured.
const DefaultWorkspace = "default"

// maxFile limits the size of a configuration file.
const maxFile = 1 << 20

// Default returns the configuration without a file: one supervised workspace, the
// local operator as its approver, and no tools.
func Default() *Config {
	r := &reader{cfg: emptyConfig()}
	r.file(newTable(pos{1, 1}))
	return r.cfg
}

func emptyConfig() *Config {
	return &Config{
		Workspaces:    map[string]approval.Workspace{},
		Approvers:     map[string]approval.Approver{},
		Tools:         map[string]approval.Tool{},
		Provers:       facts.Provers{},
		Limits:        map[string]policy.Limits{},
		AgentUIDs:     map[string][]string{},
		TelegramChats: map[string]TelegramChat{},
		EmailCeiling:  map[string]approval.Reversibility{},
	}
}

// Reader reads configurations. The zero Reader is ready to use. It does not check
// the templates of handlers.
type Reader struct {
	// CheckHandler refuses handlers that no executor would run. It gets only
	// valid handlers that run something. If its error has a method ConfigKey, the
	// issue is reported at that key.
	CheckHandler func(approval.Handler) error
	// Ready says what a handler lacks on this machine, and Resolve where a path leads there.
	// They are for warnings; nil: none.
	Ready   func(approval.Handler) error
	Resolve func(string) (string, error)
	// DaemonUID is the daemon's UID, if the daemon reads its own configuration.
	// 0, also for root, skips the checks that need it.
	DaemonUID int
	// Advice is the hint of issues that Load reports and that have none.
	Advice string
}

// Parse reads data with a zero Reader.
func Parse(name string, data []byte) (*Config, error) { return Reader{}.Parse(name, data) }

// Load reads the file at path, as returned by Locate. If path is "", it returns
// Default. The error is an *Error.
func (rd Reader) Load(path string) (*Config, error) {
	if path == "" {
		return Default(), nil
	}
	data, warnings, err := readFile(path)
	if err != nil {
		return nil, unreadable(path, err)
	}
	c, err := rd.Parse(path, data)
	if wrong, ok := errors.AsType[*Error](err); ok {
		for i := range wrong.Errors {
			wrong.Errors[i].Hint = cmp.Or(wrong.Errors[i].Hint, rd.Advice)
		}
	}
	if err != nil {
		return nil, err
	}
	c.Warnings = append(warnings, c.Warnings...)
	return c, nil
}

func readFile(path string) (data []byte, warnings []Issue, err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, nil, err
	}
	if info.IsDir() {
		return nil, nil, errors.New("is a folder, not a file")
	}
	if info.Mode().IsRegular() && info.Mode().Perm()&0o002 != 0 {
		warnings = append(warnings, Issue{
			Message: "every user of this machine may change this file, and so who may approve",
			Hint:    "chmod o-w " + path,
		})
	}
	data, err = io.ReadAll(io.LimitReader(f, maxFile+1))
	return data, warnings, err
}

// Parse reads data, the content of the file called name. The error is an *Error
// with all issues.
func (rd Reader) Parse(name string, data []byte) (*Config, error) {
	r := &reader{cfg: emptyConfig(), check: rd.CheckHandler, ready: rd.Ready, resolve: rd.Resolve, servedBy: rd.DaemonUID}
	r.cfg.File, r.cfg.SHA256 = name, approval.Digest(data)
	if err := r.parse(name, data, r.file); err != nil {
		return nil, err
	}
	sortIssues(r.cfg.Warnings)
	return r.cfg, nil
}

// parse gives the tree of a file to a function that reads it. The error is an *Error
// with the issues of both.
func (r *reader) parse(name string, data []byte, read func(root *node)) error {
	if len(data) > maxFile {
		return &Error{File: name, Errors: []Issue{{
			Message: fmt.Sprintf("longer than %d bytes", maxFile),
			Hint:    "is this the right file?",
		}}}
	}
	root, issue := parseTree(data)
	if issue != nil {
		return &Error{File: name, Errors: []Issue{*issue}}
	}
	read(root)
	sortIssues(r.issues)
	if len(r.issues) > 0 {
		return &Error{File: name, Errors: r.issues}
	}
	return nil
}

// Retention is how long documents are kept after their request has ended.
type Retention struct {
	Responses time.Duration
	Records   time.Duration // at least as long
}

const (
	maxRetention = 100 * maxWait
	daysHint     = `write it with its unit: "90d", "36h"`
)

// retention reads [retention]. Records must be kept at least as long as responses,
// because a response is verified and restored from its record.
func (s *section) retention() {
	sub := s.table("retention")
	if sub == nil {
		return // refused
	}
	r := Retention{sub.duration("responses"), sub.duration("records")}
	if !sub.has("records") {
		r.Records = max(r.Records, r.Responses)
		sub.showDefault("records", short(r.Records))
	}
	if r.Records < r.Responses {
		sub.fail(sub.position("records"), "records", "a response is restored from its record", "records must be kept at least as long as responses")
	}
	s.cfg.Retention = r
}

// Locate returns the path of the file to Load: the flag, PERMESSO_CONFIG, or
// $XDG_CONFIG_HOME/permesso/permesso.toml. Only the last may be missing; then the
// path is "". A file that exists but cannot be read is an error: its rules must
// not be ignored silently. The error is an *Error.
func Locate(flag string, env func(string) string) (string, error) {
	for _, named := range []struct{ path, hint string }{
		{flag, "check --config, or leave it out"},
		{env("PERMESSO_CONFIG"), "check PERMESSO_CONFIG, or unset it"},
	} {
		if named.path == "" {
			continue
		}
		// Stat, not Lstat: the target of a link must exist.
		if _, err := os.Stat(named.path); err != nil {
			return "", missing(named.path, named.hint, err)
		}
		return named.path, nil
	}
	path := UserFile(env)
	if path == "" {
		return "", nil
	}
	// Lstat: a dangling link is an error, not a missing file.
	if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) {
		return "", nil
	} else if err != nil {
		return "", missing(path, "", err)
	}
	return path, nil
}

// UserFile is the path of a user's own file, "" without a home.
func UserFile(env func(string) string) string {
	if dir := xdg("XDG_CONFIG_HOME", ".config", env); dir != "" {
		return filepath.Join(dir, "permesso", "permesso.toml")
	}
	return ""
}

// LocateHome returns the absolute path of the state folder: the flag,
// PERMESSO_HOME, or $XDG_STATE_HOME/permesso. It need not exist.
func LocateHome(flag string, env func(string) string) (string, error) {
	for _, named := range []string{flag, env("PERMESSO_HOME")} {
		if named != "" {
			return filepath.Abs(named)
		}
	}
	dir := xdg("XDG_STATE_HOME", filepath.Join(".local", "state"), env)
	if dir == "" {
		return "", &Error{File: "permesso", Errors: []Issue{{
			Message: "no state folder: HOME is not set",
			Hint:    "use --home DIR, or set PERMESSO_HOME",
		}}}
	}
	return filepath.Join(dir, "permesso"), nil
}

// xdg returns a base folder of the XDG Base Directory Specification, which ignores
// relative paths; "" without a home.
func xdg(name, fallback string, env func(string) string) string {
	if dir := env(name); filepath.IsAbs(dir) {
		return dir
	}
	if home := env("HOME"); filepath.IsAbs(home) {
		return filepath.Join(home, fallback)
	}
	return ""
}

func missing(path, hint string, err error) *Error {
	e := unreadable(path, err)
	if hint != "" && errors.Is(err, fs.ErrNotExist) {
		e.Errors[0].Hint = hint
	}
	return e
}

func unreadable(path string, err error) *Error {
	p := Issue{Message: err.Error()}
	if pe, ok := errors.AsType[*fs.PathError](err); ok {
		p.Message = pe.Err.Error() // Error.Error adds the path
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		p.Hint = "permesso init creates one"
	case errors.Is(err, fs.ErrPermission):
		p.Hint = "the daemon's user must be able to read it"
	}
	return &Error{File: path, Errors: []Issue{p}, cause: err}
}
