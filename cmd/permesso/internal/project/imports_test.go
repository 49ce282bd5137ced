package project

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const module = "github.com/permesso-dev/permesso"

// allParts in a package's list stands for every package that is neither below cmd nor test support.
const allParts = "*"

// What cmd/permesso consists of.
const (
	console  = "cmd/permesso/internal/console"
	home     = "cmd/permesso/internal/home"
	control  = "cmd/permesso/internal/control"
	daemon   = "cmd/permesso/internal/daemon"
	doctor   = "cmd/permesso/internal/doctor"
	hometest = "cmd/permesso/internal/hometest"
	demo     = "cmd/permesso/internal/demo"
	setup    = "cmd/permesso/internal/setup"
	sandbox  = "cmd/permesso/internal/sandbox"
	desktop  = "cmd/permesso/internal/desktop"
	agent    = "cmd/permesso/internal/agent"
)

// rule is one package of ours and the packages of ours that it may import. What is not listed is
// forbidden, so a package without a list imports none of ours.
type rule struct {
	path string
	may  []string
}

// leaves are the pure packages around approval. A package that may import approval may import them as well. What a leaf
// itself may import is in the plan.
var leaves = []string{
	"approval/apikey", "approval/codec", "approval/decide", "approval/event", "approval/facts", "approval/grant", "approval/hints",
	"approval/move", "approval/program", "approval/store", "approval/submit",
}

// plan holds every package, built or not yet: a package that is missing here is refused.
var plan = []rule{
	{"approval", []string{"approval/codec"}},                                              // pure: imported by all
	{"approval/codec", nil},                                                               // strict JSON
	{"approval/event", []string{"approval/codec"}},                                        // the audit log's words
	{"approval/facts", []string{"approval", "approval/codec"}},                            // what is known of a request
	{"approval/grant", []string{"approval", "approval/codec", "approval/facts"}},          // autonomy, grants, taints
	{"approval/hints", nil},                                                               // what an operator can do about an error
	{"approval/move", []string{"approval"}},                                               // chooses the next step
	{"approval/apikey", []string{"approval", "approval/codec"}},                           // keys for the HTTP API
	{"approval/store", []string{"approval", "approval/event"}},                            // the store's interface, the parts of a commit, errors
	{"approval/submit", []string{"approval"}},                                             // what comes with a request
	{"approval/decide", []string{"approval"}},                                             // what comes with a decision
	{"approval/program", []string{"approval", "approval/codec", "approval/facts"}},        // evaluates programs, and checks what they guarantee
	{"approval/gate", []string{"approval"}},                                               // knows stores, policies and executors only as its own interfaces
	{"approval/read", []string{"approval"}},                                               // the read model
	{"approval/exec/evaluate", []string{"approval/program"}},                              // the process that evaluates a program
	{"approval/exec", []string{"approval", "approval/program", "approval/exec/evaluate"}}, // takes a receipt verifier as an interface

	{"ipc/journal", []string{"approval/hints"}}, // a write-ahead journal of bytes
	{"ipc", []string{"approval", "ipc/journal"}},
	{"ipc/service", []string{"approval", "approval/read"}},
	{"ipc/httpapi", []string{"approval", "approval/read", "ipc", "ipc/service"}},
	{"ipc/webhook", []string{"approval", "approval/read"}}, // tells programs, and takes nothing from them
	{"ipc/mcp", []string{"approval", "approval/read", "ipc/client", "ipc/service", "ipc/wholefile"}},
	{"ipc/procgroup", nil},                         // ends a program with what it has started
	{"ipc/wholefile", nil},                         // small files and locks, outside of a home
	{"ipc/agentconf", []string{"approval/codec"}},  // finds and edits the settings of agents: it knows neither hooks nor servers
	{"ipc/mcp/servers", []string{"ipc/agentconf"}}, // the servers in the settings of agents: it speaks no protocol
	{"ipc/hook", []string{"approval", "ipc/agentconf", "ipc/client", "ipc/wholefile"}},
	{"ipc/mcp/wire", []string{"approval"}},                                                                 // one connection, as the client: it knows no gate
	{"ipc/mcp/gateway", []string{"approval", "ipc/mcp", "ipc/mcp/wire", "ipc/procgroup", "ipc/wholefile"}}, // knows the gate only as its own interface
	{"ipc/hook/check", []string{"ipc/hook", "ipc/hook/model", "ipc/procgroup"}},                            // starts agents: it asks no gate
	{"ipc/mcp/mcptest", nil}, // test support: a server
	{"ipc/acp", []string{"approval", "ipc/client"}},
	{"ipc/hook/model", nil},                                // a model on loopback: it knows agents, not the gate
	{"ipc/client", []string{"approval", "ipc", "watcher"}}, // waits for its response as the gate waits for requests

	{"watcher", nil}, // knows paths, not approvals

	{"chat", []string{"approval"}}, // never the gate: it calls Decide through its own interface
	{"chat/terminal", []string{"approval", "chat"}},
	{"chat/tui", []string{"approval", "approval/read", "chat"}},
	{"chat/tui/tuitest", nil},                                       // test support: simulates a terminal
	{"chat/deliver", []string{"approval", "approval/read", "chat"}}, // what all channels with messages share
	{"chat/telegram", []string{"approval", "chat", "chat/deliver"}},
	{"chat/ntfy", []string{"approval", "chat/deliver"}},
	{"chat/ntfy/ntfyserver", []string{"chat/deliver/channeltest"}}, // test support: simulates ntfy
	{"chat/deliver/channeltest", []string{"approval", "approval/gate", "approval/gate/gatetest", "approval/read", "chat", "chat/cardtest", "chat/deliver", "ipc"}}, // test support: what every adapter has to pass
	{"chat/email", []string{"approval", "chat", "chat/deliver", "chat/email/mailbox", "chat/email/authentic"}},
	{"chat/email/mailbox", []string{"approval", "chat"}},
	{"chat/email/authentic", []string{"approval", "chat"}},
	{"chat/email/oauth", []string{"chat", "chat/email/mailbox", "ipc/wholefile"}}, // gives tokens to a mailbox, and fails like one
	{"chat/email/mailserver", nil},                                      // test support: real servers, which know nothing of us
	{"chat/cardtest", []string{"approval", "chat", "security/secrets"}}, // test support: hostile requests, and what a card has to show of them
	{"chat/messagestest", nil},                                          // test support: compares the messages with a struct
	{"chat/web", []string{"approval", "approval/read", "chat"}},
	{"chat/web/push", []string{"approval", "chat", "chat/deliver"}},
	{"chat/web/push/pushserver", []string{"chat/deliver/channeltest"}}, // test support: simulates a push service and browsers

	{"security/policy", []string{"approval"}},
	{"security/secrets", []string{"approval", "approval/facts"}},
	{"security/receipt", []string{"approval", "security/keyfile"}},
	{"security/audit", []string{"approval"}},
	{"security/audit/audittest", []string{"approval", "security/audit"}}, // test support: commits entries in memory
	{"security/seal", []string{"approval", "security/keyfile"}},
	{"security/keyfile", []string{"approval/hints"}}, // how both keep their keys: it knows neither

	{"cmd/permesso", []string{allParts, "cmd/permesso/config", agent, console, home, control, sandbox, daemon, doctor, setup, demo, desktop}}, // the only one who knows all
	{console, []string{allParts}},
	{agent, []string{"approval", "ipc/acp", "ipc/agentconf", "ipc/client", "ipc/hook", "ipc/hook/check", "ipc/mcp", "ipc/mcp/gateway", "ipc/mcp/servers", "ipc/wholefile", "security/receipt", console}}, // no store and no daemon: it runs on every system
	{"cmd/permesso/client", []string{"approval", "security/receipt", agent, console}},                                                                                                                    // the program where the daemon cannot run
	{home, []string{allParts, "cmd/permesso/config", console}},
	{control, []string{allParts, "cmd/permesso/config", console, home}},
	{daemon, []string{allParts, "cmd/permesso/config", console, home, control, sandbox}},
	{doctor, []string{allParts, "cmd/permesso/config", console, home, sandbox}},
	{setup, []string{allParts, "cmd/permesso/config", console, home, sandbox, daemon}},
	{desktop, []string{"approval", "chat", home}},
	{"cmd/permesso/internal/desktop/desktoptest", nil}, // test support: simulates a desktop
	{demo, []string{allParts, console, home, daemon, sandbox}},
	{hometest, []string{"approval", home}},                                                                                                                        // test support: fills a home
	{"approval/gate/gatetest", []string{"approval", "approval/gate", "ipc", "security/audit", "security/policy", "security/receipt", "security/seal", "watcher"}}, // test support: a gate in a temporary folder
	{sandbox, []string{"approval/exec", "approval/hints", "ipc", "ipc/client", console}},
	{"cmd/permesso/internal/project", nil}, // tests about the whole tree
	{"cmd/permesso/config", []string{"approval", "approval/exec", "chat", "security/policy"}},
	{"cmd/permesso/internal/bench", nil},     // benchmarks only
	{"cmd/permesso/internal/widthtest", nil}, // test support: judges grants by their sentences, so it may know none of us
	{"cmd/permesso/internal/ruletest", nil},  // test support: judges rules by their document, so it may know none of us

	{"ipc/storetest", []string{"approval"}},                                // test support: what a store must do
	{"ipc/crashfs", nil},                                                   // test support: simulates the disk
	{"chat/telegram/botapi", nil},                                          // test support: simulates Telegram
	{"cmd/permesso/internal/crashtest", []string{allParts, "ipc/crashfs"}}, // test support: the real parts on a disk that crashes
}

// testSupport is linked into tests only.
var testSupport = []string{"security/audit/audittest", "approval/gate/gatetest", "ipc/storetest", "ipc/mcp/mcptest", "chat/messagestest", "chat/cardtest", "chat/deliver/channeltest", hometest, "ipc/crashfs", "cmd/permesso/internal/crashtest", "cmd/permesso/internal/widthtest", "cmd/permesso/internal/ruletest", "chat/telegram/botapi", "chat/email/mailserver", "chat/ntfy/ntfyserver", "chat/web/push/pushserver", "cmd/permesso/internal/desktop/desktoptest", "chat/tui/tuitest"}

// homes says which packages may import a library, subpackages included. A library that is not listed
// may be used anywhere.
var homes = []struct {
	library string
	allowed []string
}{
	{"github.com/fsnotify/fsnotify", []string{"watcher"}},
	{"github.com/go-telegram/bot", []string{"chat/telegram", "chat/telegram/botapi"}},
	{"github.com/emersion/go-message", []string{"chat/email"}},
	{"charm.land/bubbletea", []string{"chat/tui"}},
	{"github.com/charmbracelet", []string{"chat/tui", "chat/tui/tuitest"}},
	{"golang.org/x/oauth2", []string{"chat/email/oauth", "ipc/mcp/gateway"}},
	{"github.com/modelcontextprotocol/go-sdk", []string{"ipc/mcp", "ipc/mcp/wire", "ipc/mcp/gateway", "ipc/mcp/mcptest"}},
	// The seam for the crash file system: ipc, and what must be crash-tested besides. That includes the keys:
	// one that a power cut takes away makes every document unreadable.
	{"github.com/spf13/afero", []string{
		"ipc", "ipc/journal", "ipc/crashfs", "ipc/httpapi", "ipc/mcp", "ipc/hook", "ipc/client",
		"security/audit", "security/keyfile", "approval/gate", "cmd/permesso/internal/crashtest",
	}},
	{"github.com/coreos/go-systemd", []string{daemon}},
	{"github.com/godbus/dbus", []string{desktop, "cmd/permesso/internal/desktop/desktoptest"}},
	// Policy matches paths; no other package matches patterns.
	{"github.com/bmatcuk/doublestar", []string{"security/policy"}},
	{"go.starlark.net", []string{"approval/program"}},
	{"mvdan.cc/sh", []string{"approval/facts", "cmd/permesso/internal/ruletest"}},
	{"github.com/pelletier/go-toml", []string{"chat", "chat/messagestest", "cmd/permesso", "cmd/permesso/config", console, "ipc/agentconf", "ipc/hook/check", "security/secrets"}},
	// Test libraries never reach the binary.
	{"testing", testSupport},
	{"github.com/stretchr/testify", testSupport},
	{"github.com/rogpeppe/go-internal/testscript", testSupport},
	{"go.uber.org/goleak", testSupport},
	{"pgregory.net/rapid", testSupport},
}

// impure is what the pure packages may not import, subpackages included: they get bytes and times handed in.
// addresses are the two that only read text.
var impure = []string{"os", "net", "syscall", "log", "math/rand", "golang.org/x/sys", "golang.org/x/term"}

// parsers are parts of the impure that only read text.
var parsers = []string{"net/mail", "net/netip", "net/url"}

// clocks are time's functions that look at the clock, which the pure packages may not call.
var clocks = []string{"Now", "Since", "Until", "Sleep", "After", "AfterFunc", "Tick", "NewTimer", "NewTicker"}

// TestImports compares the plan with the imports of every file that is not a test.
// It parses instead of asking the go command, which would see one operating system's files only.
func TestImports(t *testing.T) {
	imports := importsOf(t, "../../../..")
	require.Contains(t, imports, "approval", "looked in the wrong folder")
	require.Empty(t, violations(imports))
}

// TestImportsBites gives the checker source trees with one fault each: a checker that finds nothing there
// would find nothing in ours.
func TestImportsBites(t *testing.T) {
	own := func(p string) string { return module + "/" + p }
	tests := []struct {
		why, from, to, want string
	}{
		{"the core imports none of ours", "approval", own("ipc"), "approval imports ipc"},
		{"the core is pure", "approval", "os", "approval imports os"},
		{"a leaf is pure", "approval/event", "os", "approval/event imports os"},
		{"a leaf knows what the plan says", "approval/event", own("approval"), "approval/event imports approval"},
		{"leaves are for those who know the core", "watcher", own("approval/event"), "watcher imports approval/event"},
		{"subpackages of the impure too", "approval", "net/http", "approval imports net/http"},
		{"the gate sees interfaces, not the disk", "approval/gate", own("ipc"), "approval/gate imports ipc"},
		{"a subpackage is a package of its own", "approval/exec", own("approval/gate"), "approval/exec imports approval/gate"},
		{"siblings never meet", "security/receipt", own("security/seal"), "security/receipt imports security/seal"},
		{"channels are siblings as well", "chat/email", own("chat/telegram"), "chat/email imports chat/telegram"},
		{"a parent does not know its children", "chat", own("chat/terminal"), "chat imports chat/terminal"},
		{"the watcher knows paths only", "watcher", own("approval"), "watcher imports approval"},
		{"doors do not reach around the gate", "ipc/httpapi", own("approval/gate"), "ipc/httpapi imports approval/gate"},
		{"no package imports cmd", "ipc", own("cmd/permesso"), "ipc imports cmd/permesso"},
		{"config belongs to cmd", "cmd/permesso/internal/bench", own("cmd/permesso/config"), "cmd/permesso/internal/bench imports cmd/permesso/config"},
		{"the crash harness wires without cmd", "cmd/permesso/internal/crashtest", own("cmd/permesso/config"), "cmd/permesso/internal/crashtest imports cmd/permesso/config"},
		{"the program holds no test support", "cmd/permesso", own("ipc/crashfs"), "cmd/permesso imports ipc/crashfs"},
		{"nor test libraries", "cmd/permesso", "github.com/stretchr/testify/require", "cmd/permesso imports github.com/stretchr/testify/require"},
		{"a library has one home", "ipc", "github.com/fsnotify/fsnotify", "ipc imports github.com/fsnotify/fsnotify"},
		{"so do its subpackages", "chat", "github.com/emersion/go-message/mail", "chat imports github.com/emersion/go-message/mail"},
		{"a shell's grammar belongs to the facts", "chat", "mvdan.cc/sh/v3/syntax", "chat imports mvdan.cc/sh"},
		{"the seam is for what is crash-tested", "cmd/permesso", "github.com/spf13/afero", "cmd/permesso imports github.com/spf13/afero"},
		{"a new package is added to the plan first", "attic", "fmt", "attic is not in the plan"},
		{"a package at the root is a new package", ".", "fmt", ". is not in the plan"},
		{"the plan cannot be left through an unknown door", "cmd/permesso", own("attic"), "cmd/permesso imports attic"},
	}
	for _, tt := range tests {
		t.Run(tt.why, func(t *testing.T) {
			found := violations(map[string][]string{tt.from: {tt.to}})
			require.Len(t, found, 1)
			require.Contains(t, found[0], tt.want)
		})
	}
}

// TestImportsAllows keeps the checker from refusing what the plan permits.
func TestImportsAllows(t *testing.T) {
	own := func(p string) string { return module + "/" + p }
	require.Empty(t, violations(map[string][]string{
		"approval":                        {"time", "crypto/sha256", "github.com/go-json-experiment/json", "slices"},
		"approval/gate":                   {own("approval"), own("approval/event"), "os"},
		"ipc/client":                      {own("approval"), own("ipc"), own("watcher")},
		"watcher":                         {"github.com/fsnotify/fsnotify"},
		"ipc":                             {"github.com/spf13/afero/mem"},
		"chat":                            {"github.com/go-telegram/botany"}, // a prefix of a name is not a path
		"cmd/permesso":                    {own("chat/terminal"), own("security/seal"), own("cmd/permesso/config")},
		"cmd/permesso/internal/crashtest": {own("ipc"), own("security/audit"), own("ipc/crashfs"), "testing"},
	}))
}

// TestCoreHasNoClock looks for calls that read the clock in approval and its leaves: they may import time for the
// types, and must be told what time it is.
func TestCoreHasNoClock(t *testing.T) {
	require.Equal(t, []string{"a.go:3: time.Now"}, clockUses(t, map[string]string{
		"a.go": "package a\nimport \"time\"\nvar x = time.Now()\nvar y = time.Time{}",
	}), "the search finds a clock where there is one")

	sources := map[string]string{}
	var files []string
	for _, dir := range append([]string{"approval"}, leaves...) {
		found, err := filepath.Glob("../../../../" + dir + "/*.go")
		require.NoError(t, err)
		require.NotEmpty(t, found, dir)
		files = append(files, found...)
	}
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		src, err := os.ReadFile(name)
		require.NoError(t, err)
		sources[name] = string(src)
	}
	require.NotEmpty(t, sources, "looked in the wrong folder")
	require.Empty(t, clockUses(t, sources))
}

// violations compares imports (by package) with the plan and returns one sentence for each fault, sorted.
func violations(imports map[string][]string) []string {
	var found []string
	for from, targets := range imports {
		i := slices.IndexFunc(plan, func(r rule) bool { return r.path == from })
		if i < 0 {
			found = append(found, from+" is not in the plan: decide first what it may import")
			continue
		}
		for _, target := range targets {
			if why := refuse(plan[i], target); why != "" {
				found = append(found, fmt.Sprintf("%s imports %s: %s", from, strings.TrimPrefix(target, module+"/"), why))
			}
		}
	}
	slices.Sort(found)
	return found
}

// refuse says why a package may not import target, or nothing where it may.
func refuse(r rule, target string) string {
	if within(target, module) {
		if ours := strings.TrimPrefix(target, module+"/"); !r.knows(ours) {
			return "it may know " + strings.Join(append([]string{"of ours"}, r.may...), ", ")
		}
		return ""
	}
	pure := (r.path == "approval" || slices.Contains(leaves, r.path)) && !slices.Contains(parsers, target)
	if pure && slices.ContainsFunc(impure, func(lib string) bool { return within(target, lib) }) {
		return "it is pure"
	}
	for _, h := range homes {
		if within(target, h.library) && !slices.Contains(h.allowed, r.path) {
			return "that library may be imported by " + strings.Join(h.allowed, ", ")
		}
	}
	return ""
}

// knows reports whether the package's list names the other one, by itself or by allParts.
func (r rule) knows(ours string) bool {
	if slices.Contains(r.may, ours) {
		return true
	}
	if slices.Contains(leaves, ours) && !slices.Contains(leaves, r.path) {
		return r.knows("approval")
	}
	return slices.Contains(r.may, allParts) &&
		!within(ours, "cmd") && !slices.Contains(testSupport, ours) &&
		slices.ContainsFunc(plan, func(known rule) bool { return known.path == ours })
}

// within reports whether path is root or lies below it.
func within(path, root string) bool {
	return path == root || strings.HasPrefix(path, root+"/")
}

// importsOf parses every Go file below root that is not a test, on whatever system it builds, and
// returns the imports by folder. As the go command does, it passes over testdata, hidden folders and
// other modules.
func importsOf(t *testing.T, root string) map[string][]string {
	t.Helper()
	found := map[string][]string{}
	err := filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			return enter(root, name)
		}
		if !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ImportsOnly)
		if err != nil {
			return fmt.Errorf("parse %s: %w", name, err)
		}
		rel, err := filepath.Rel(root, filepath.Dir(name))
		if err != nil {
			return err
		}
		from := filepath.ToSlash(rel)
		found[from] = append(found[from], importPaths(file)...)
		return nil
	})
	require.NoError(t, err)
	for from := range found {
		slices.Sort(found[from])
		found[from] = slices.Compact(found[from])
	}
	return found
}

// enter is fs.SkipDir for folders that hold no packages of ours.
func enter(root, dir string) error {
	if dir == root {
		return nil
	}
	base := filepath.Base(dir)
	if base == "testdata" || base == "vendor" || strings.HasPrefix(base, ".") || strings.HasPrefix(base, "_") {
		return fs.SkipDir
	}
	if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
		return fs.SkipDir
	}
	return nil
}

func importPaths(file *ast.File) []string {
	var paths []string
	for _, spec := range file.Imports {
		if p, err := strconv.Unquote(spec.Path.Value); err == nil {
			paths = append(paths, p)
		}
	}
	return paths
}

// clockUses returns "file:line: time.Func" for every mention of one of clocks, sorted.
func clockUses(t *testing.T, sources map[string]string) []string {
	t.Helper()
	var found []string
	for name, src := range sources {
		set := token.NewFileSet()
		file, err := parser.ParseFile(set, name, src, parser.SkipObjectResolution)
		require.NoError(t, err)
		ast.Inspect(file, func(n ast.Node) bool {
			sel, ok := n.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			if pkg, ok := sel.X.(*ast.Ident); ok && pkg.Name == "time" && slices.Contains(clocks, sel.Sel.Name) {
				found = append(found, fmt.Sprintf("%s:%d: time.%s", path.Base(name), set.Position(sel.Pos()).Line, sel.Sel.Name))
			}
			return true
		})
	}
	slices.Sort(found)
	return found
}
