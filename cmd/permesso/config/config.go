// Package config reads permesso.toml, the one file in which the operator says
// who may ask, who may decide, and what may run.
//
// # Strictness
//
// A gate that half understands its configuration guards half a door, so every
// key and every value must be known. All mistakes of a file are reported at
// once, each with its line and column, the nearest right spelling where one is
// near, and never with the text of another line: tokens may stand there.
//
// # Who may decide
//
// MayDecide is the whole answer. Zero values deny: no workspace, no id, no
// list means nobody.
package config

import (
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/security/policy"
)

// Config is what the operator said, complete with defaults.
type Config struct {
	File           string // where it was read; "" when built in
	SHA256         string // of its bytes, in hex; "" when built in
	Home           string // the state folder; "" when none could be located
	GateName       string // signs receipts and checkpoints; safe as a host name
	RunBefore      time.Duration
	LogLevel       string              // debug, info, warn, error
	LogFormat      string              // auto, json, console
	Language       string              // en, it
	LocalDecisions bool                // what workspaces get that say nothing of their own
	Socket         string              // where other people of this machine decide; "": nowhere
	Listen         []Listen            // where the HTTP door is; none: it is shut
	ListenStated   bool                // the file says so
	ListenHosts    []string            // names it answers to besides its addresses
	UI             string              // where the pages for people are, an address of this machine; "": nowhere
	UIStated       bool                // the file says so
	AgentUIDs      map[string][]string // by workspace: the uids its agents run as; they decide nothing
	Workspaces     map[string]approval.Workspace
	Approvers      map[string]approval.Approver
	Tools          map[string]approval.Tool
	Provers        approval.Provers
	Rules          []policy.Rule
	Limits         map[string]policy.Limits // by workspace
	Retention      Retention
	Telegram       *Telegram                         // nil: nobody is reached there
	TelegramChats  map[string]TelegramChat           // by workspace; not in it: the private chats of its approvers
	Email          *Email                            // nil: nobody is reached by e-mail
	EmailCeiling   map[string]approval.Reversibility // by workspace: mail approves no further; not in it: everything
	Warnings       []Issue                           // what is allowed but probably not meant
	Settings       []Setting                         // every key, as it holds
}

// The defaults that a file may change.
const (
	DefaultGateName   = "permesso"
	DefaultRunBefore  = 10 * time.Minute
	DefaultTimeout    = 5 * time.Minute
	DefaultMaxTimeout = 24 * time.Hour
	DefaultWorkspace  = "default"
)

// maxFile bounds a configuration: more is not something a person wrote.
const maxFile = 1 << 20

// Default is the configuration without a file: one supervised workspace whose
// approver is the local operator, and no tools, so that everything asks.
func Default() *Config {
	r := &reader{cfg: emptyConfig()}
	r.file(newTable(pos{1, 1}))
	return r.cfg
}

func emptyConfig() *Config {
	return &Config{
		GateName:       DefaultGateName,
		RunBefore:      DefaultRunBefore,
		LogLevel:       "info",
		LogFormat:      "auto",
		Language:       languages()[0],
		LocalDecisions: true,
		Retention:      Retention{DefaultResponses, DefaultRecords},
		Workspaces:     map[string]approval.Workspace{},
		Approvers:      map[string]approval.Approver{},
		Tools:          map[string]approval.Tool{},
		Provers:        approval.Provers{},
		Limits:         map[string]policy.Limits{},
		AgentUIDs:      map[string][]string{},
		TelegramChats:  map[string]TelegramChat{},
		EmailCeiling:   map[string]approval.Reversibility{},
	}
}

// workspace is one about which nothing is said.
func (c *Config) workspace(name string) approval.Workspace {
	return approval.Workspace{
		Name:           name,
		Autonomy:       "supervised",
		LocalDecisions: c.LocalDecisions,
		Timeout:        DefaultTimeout,
		MaxTimeout:     DefaultMaxTimeout,
		Language:       c.Language,
		Limits:         approval.Limits{}.WithDefaults(),
	}
}

// Reader reads configurations. The zero Reader is ready, and leaves the
// templates of handlers to be checked by whoever runs them.
type Reader struct {
	// CheckHandler refuses handlers that no executor would run. It sees only
	// those that run something and are otherwise in order. An error that has a
	// method ConfigKey is reported at that key of the handler.
	CheckHandler func(approval.Handler) error
	// ServedBy is the uid of the daemon that reads its own configuration; 0,
	// also root's, leaves out what concerns that.
	ServedBy int
}

// Load reads the file at path with a zero Reader.
func Load(path string, env func(string) string) (*Config, error) {
	return Reader{}.Load(path, env)
}

// Parse reads data with a zero Reader.
func Parse(name string, data []byte) (*Config, error) { return Reader{}.Parse(name, data) }

// Load reads the file at path, which Locate found; "" gives Default. Home is
// filled in from env where it can be. The error is an *Error.
func (rd Reader) Load(path string, env func(string) string) (*Config, error) {
	c := Default()
	if path != "" {
		data, warnings, err := readFile(path)
		if err != nil {
			return nil, unreadable(path, err)
		}
		if c, err = rd.Parse(path, data); err != nil {
			return nil, err
		}
		c.Warnings = append(warnings, c.Warnings...)
	}
	// Without a home here the caller may still have a flag for it.
	c.Home, _ = LocateHome("", env)
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
		return nil, nil, errors.New("this is a folder, not a file")
	}
	if info.Mode().IsRegular() && info.Mode().Perm()&0o002 != 0 {
		warnings = append(warnings, Issue{
			Message: "everybody on this machine may change this file, and with it who may approve",
			Hint:    "chmod o-w " + path,
		})
	}
	data, err = io.ReadAll(io.LimitReader(f, maxFile+1))
	return data, warnings, err
}

// Parse reads data, the content of the file called name. The error is an
// *Error with everything that is wrong with it.
func (rd Reader) Parse(name string, data []byte) (*Config, error) {
	if len(data) > maxFile {
		return nil, &Error{File: name, Errors: []Issue{{
			Message: fmt.Sprintf("longer than %d bytes", maxFile),
			Hint:    "is this the right file?",
		}}}
	}
	root, issue := parseTree(data)
	if issue != nil {
		return nil, &Error{File: name, Errors: []Issue{*issue}}
	}
	r := &reader{cfg: emptyConfig(), check: rd.CheckHandler, servedBy: rd.ServedBy}
	r.cfg.File, r.cfg.SHA256 = name, approval.Digest(data)
	r.file(root)
	sortIssues(r.issues)
	sortIssues(r.cfg.Warnings)
	if len(r.issues) > 0 {
		return nil, &Error{File: name, Errors: r.issues}
	}
	return r.cfg, nil
}
