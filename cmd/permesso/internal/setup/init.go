// Package setup sets up an installation: configuration, workspaces, systemd
// units, and the wizards of the Telegram and email channels.
package setup

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/grant"
	"github.com/permesso-dev/permesso/cmd/permesso/config"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/console"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/daemon"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/home"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/sandbox"
	"github.com/permesso-dev/permesso/ipc"
	"github.com/permesso-dev/permesso/ipc/client"
)

// Options is the input of init, from flags or answers.
type Options struct {
	config.ExampleOptions
	TypedApprover string   // NAME or NAME:UID, as it was typed
	Sandbox       string   // how the agent runs
	Preset        string   // "": none
	Project       string   // its folder
	Person        string   // its email address
	Given         []string // the names of the flags that were given
	// PresetText returns the lines of a preset.
	PresetText func(b Options) (string, error)
}

const autonomyQuestion = `
3. How much may the agent do without asking?
     readonly    reading asks you; everything else is denied
     supervised  every access to the outside asks you first
     full        only running code and sending email ask you`

// Presets are the names of the presets, in the order in which they are shown.
func Presets() []string {
	return []string{"coding-agent", "claude-code", "codex", "gemini", "assistant", "ci"}
}

// Sandboxes are the kinds of sandboxes that init knows.
func Sandboxes() []string { return []string{"bwrap", "docker", "podman", "compose", "none"} }

// Init writes what is missing and prints the next steps.
func Init(ctx context.Context, a *console.Console, b Options, ask bool) error {
	if err := home.CheckNew(a); err != nil {
		return err
	}
	file, err := configToWrite(a)
	if err != nil {
		return err
	}
	b.TypedApprover = cmp.Or(b.TypedApprover, ownName())
	if err := b.complete(); err != nil {
		return err
	}
	_, err = os.Lstat(file)
	kept := err == nil
	says := a.Out
	if a.JSON {
		says = io.Discard
	}
	p := &prompter{in: a.In, out: a.Out}
	if kept && b.Preset != "" {
		return console.Fail(console.ExitUsage, "permesso policy preset "+b.Preset+" prints the lines to add", "%s exists already", file)
	}
	if !kept {
		if ask {
			if err := p.ask(ctx, &b); err != nil {
				return err
			}
		}
		if kept, err = writeFirst(a, file, b); err != nil {
			return err
		}
	}
	verb := "wrote   "
	if kept {
		verb = "kept    "
	}
	fmt.Fprintln(says, verb+file)
	a.ConfigFlag = file
	h, err := initHome(a, says)
	if err != nil {
		return err
	}
	ws := b.Workspace
	if _, ok := h.Config.Workspaces[ws]; !ok {
		ws = home.WorkspaceNames(h.Config)[0]
	}
	result := initResult{Config: file, Home: h.Layout.Home, Workspace: ws, Kept: kept, NotApplied: []string{}, Requests: h.Layout.Requests(ws), Responses: h.Layout.Responses(ws)}
	if kept {
		result.NotApplied = b.tellNotApplied(a, h)
	}
	if a.JSON {
		return a.Print(result, "")
	}
	if err := printNext(a, h, ws, b.Sandbox); err != nil {
		return err
	}
	if ask && hasFirstTool(h) {
		err = offerTrial(ctx, a, p, h, ws)
	}
	if !ask || err != nil || h.Config.Telegram != nil {
		return err
	}
	return offerTelegram(ctx, a, p, ws)
}

// initResult is what init --json prints.
type initResult struct {
	Config     string   `json:"config"`
	Home       string   `json:"home"`
	Workspace  string   `json:"workspace"`
	Kept       bool     `json:"kept"`        // the configuration existed already
	NotApplied []string `json:"not_applied"` // flags without an effect on a kept configuration
	Requests   string   `json:"requests"`
	Responses  string   `json:"responses"`
}

// tellNotApplied says which flags have no effect on a configuration that was kept, and which
// command does what they mean.
func (b *Options) tellNotApplied(a *console.Console, h *home.Home) []string {
	flags, commands := []string{}, []string{}
	for _, x := range [][2]string{
		{"workspace", "permesso workspace add " + b.Workspace},
		{"approver", "permesso approver add " + b.Approver + " --local " + b.UID},
		{"autonomy", "permesso config edit"},
		{"project", "permesso policy preset"},
		{"person", "permesso policy preset"},
	} {
		_, exists := h.Config.Workspaces[b.Workspace]
		if slices.Contains(b.Given, x[0]) && (x[0] != "workspace" || !exists) {
			flags, commands = append(flags, "--"+x[0]), append(commands, x[1])
		}
	}
	if len(flags) > 0 {
		a.Tell(strings.Join(slices.Compact(commands), "; "), "%s was kept, so not applied: %s", h.Config.File, strings.Join(flags, ", "))
	}
	return flags
}

// offerTelegram goes on into telegram setup, if the person accepts.
func offerTelegram(ctx context.Context, a *console.Console, p *prompter, ws string) error {
	fmt.Fprint(a.Out, "\nConnect Telegram now, to approve with a tap on your phone? [y/N] ")
	line, err := p.line(ctx)
	if err != nil || !strings.HasPrefix(strings.ToLower(line), "y") {
		return nil //nolint:nilerr // init is complete
	}
	t := &Telegram{Console: a, Workspace: ws, Timeout: DefaultWait}
	return t.Run(ctx)
}

// ownName is the current user's login name, if it is a valid approver name.
func ownName() string {
	if u, err := user.Current(); err == nil && ipc.ValidWorkspace(u.Username) {
		return u.Username
	}
	return "me:" + strconv.Itoa(os.Getuid())
}

// complete checks the answers and looks up the approver's UID.
func (b *Options) complete() error {
	if err := checkName(b.Workspace); err != nil {
		return err
	}
	if err := oneOf(b.Autonomy, grant.Levels()); err != nil {
		return err
	}
	if err := oneOf(b.Sandbox, Sandboxes()); err != nil {
		return err
	}
	var err error
	if b.Approver, b.UID, err = approverUID(b.TypedApprover); err != nil || b.Preset == "" {
		return err
	}
	if err := oneOf(b.Preset, Presets()); err != nil {
		return err
	}
	_, err = b.PresetText(*b)
	return err
}

func checkName(name string) error {
	if ipc.ValidWorkspace(name) {
		return nil
	}
	return console.Fail(console.ExitUsage, "use a to z, 0 to 9, _ and -, at most 63 characters, starting with a letter or digit", "%.80q is not a valid name", name)
}

func oneOf(word string, allowed []string) error {
	if slices.Contains(allowed, word) {
		return nil
	}
	return console.Fail(console.ExitUsage, "use one of "+strings.Join(allowed, ", "), "%.80q is not a valid answer", word)
}

// approverUID parses NAME, an account of this machine, or NAME:UID.
func approverUID(typed string) (name, uid string, err error) {
	name, uid, stated := strings.Cut(typed, ":")
	if err := checkName(name); err != nil {
		return "", "", err
	}
	if !stated {
		u, err := user.Lookup(name)
		if err != nil {
			return "", "", console.Fail(console.ExitUsage, "write NAME:UID; id -u prints the number", "no user '%s' on this machine", name)
		}
		uid = u.Uid
	}
	if _, err := strconv.ParseUint(uid, 10, 32); err != nil {
		return "", "", console.Fail(console.ExitUsage, "write NAME:UID; id -u prints the number", "%.20q is not a UID", uid)
	}
	return name, uid, nil
}

// writeFirst creates the file and never overwrites one.
func writeFirst(a *console.Console, file string, b Options) (kept bool, err error) {
	if err := b.complete(); err != nil {
		return false, err
	}
	text, err := b.text(home.Reader(a), file)
	if err != nil {
		return false, err
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return false, err
	}
	err = createFile(file, text, ourselves())
	if errors.Is(err, fs.ErrExist) {
		return true, nil
	}
	return false, err
}

// text is the configuration: the example, and the preset. The approver decides there, too.
func (b *Options) text(reader config.Reader, file string) (string, error) {
	text := b.Example()
	before, err := reader.Parse(file, []byte(text))
	if err != nil || b.Preset == "" {
		return text, err
	}
	lines, err := b.PresetText(*b)
	if err != nil {
		return "", err
	}
	after, err := reader.Parse(file, []byte(text+"\n"+lines))
	if err != nil {
		return "", err
	}
	n := config.NewApprover{Name: b.Approver}
	for _, ws := range home.WorkspaceNames(after) {
		if _, known := before.Workspaces[ws]; !known {
			n.Workspaces = append(n.Workspaces, ws)
		}
	}
	all, err := reader.AddToWorkspaces(file, []byte(text+"\n"+lines), n)
	return string(all), err
}

func configToWrite(a *console.Console) (string, error) {
	for _, f := range []string{a.ConfigFlag, a.Env("PERMESSO_CONFIG")} {
		if f != "" {
			return filepath.Abs(f)
		}
	}
	if file := config.UserFile(a.Env); file != "" {
		return file, nil
	}
	return "", console.Fail(console.ExitUsage, "permesso init --config FILE", "HOME is not set")
}

func initHome(a *console.Console, says io.Writer) (*home.Home, error) {
	h, err := home.Load(a)
	if err != nil {
		return nil, err
	}
	_, notYet := os.Stat(h.Layout.Keys())
	if err := h.Prepare(); err != nil {
		return nil, err
	}
	if _, err := h.MakeKeys(); err != nil {
		return nil, err
	}
	if err := sandbox.WriteFilter(h.Layout); err != nil {
		return nil, err
	}
	did := "created"
	if notYet == nil {
		did = "kept   "
	}
	fmt.Fprintf(says, "%s %s\n", did, h.Layout.Home)
	return h, nil
}

// firstTool is the tool of the example configuration.
const firstTool = "hello"

func hasFirstTool(h *home.Home) bool {
	_, ok := h.Config.Tools[firstTool]
	return ok
}

// requiredFlags repeats the flags that the next command needs to find this home.
func requiredFlags(a *console.Console, h *home.Home) string {
	var flags string
	if usual, err := configToWrite((&console.Console{Env: a.Env})); err != nil || usual != h.Config.File {
		flags += " --config " + sandbox.ShellWord(h.Config.File)
	}
	if usual, err := config.LocateHome("", a.Env); err != nil || usual != h.Layout.Home {
		flags += " --home " + sandbox.ShellWord(h.Layout.Home)
	}
	return flags
}

// printNext prints the mounts, and the commands of the first request.
func printNext(a *console.Console, h *home.Home, ws, kind string) error {
	var b strings.Builder
	given := requiredFlags(a, h)
	switch list := sandbox.Mounts(h.Layout, ws); kind {
	case "none":
		b.WriteString("\nWithout a sandbox, an agent that runs as your user can approve its own requests. Run it at least as another\n" +
			"user, with these two folders:\n  " + list[0].Source + "\n  " + list[1].Source + "\n")
	default:
		text, err := list.Form(kind, h.Layout)
		if err != nil {
			return err
		}
		b.WriteString("\nThe agent's sandbox (" + kind + ") gets these two folders and no other of the daemon's:\n  " +
			strings.ReplaceAll(text, "\n", "\n  ") + "\nTo print them again: permesso mounts " + ws + given + " --" + kind + "\n")
	}
	tool := "TOOL"
	if hasFirstTool(h) {
		tool = firstTool + " --arg name=you"
	}
	fmt.Fprintf(&b, "\nNext:\n  permesso serve%s\nIn another terminal, as the agent:\n  permesso request %s --requests %s --responses %s --wait\n",
		given, tool, sandbox.ShellWord(h.Layout.Requests(ws)), sandbox.ShellWord(h.Layout.Responses(ws)))
	_, err := io.WriteString(a.Out, b.String())
	return err
}

// prompter asks questions on a terminal.
type prompter struct {
	in  io.Reader
	out io.Writer
}

// ask asks the questions, and repeats a question after an invalid answer.
func (p *prompter) ask(ctx context.Context, b *Options) error {
	fmt.Fprintln(p.out, "Some questions. Press Enter for the answer in brackets. Nothing is written before the last one.")
	for _, q := range []struct {
		text  string
		value *string
		check func(string) error
	}{
		{"\n1. Name of the first workspace? A workspace is for one agent.", &b.Workspace, checkName},
		{"\n2. Who approves? A login name of this machine, or NAME:UID.", &b.TypedApprover, func(s string) error { _, _, err := approverUID(s); return err }},
		{autonomyQuestion, &b.Autonomy, func(s string) error { return oneOf(s, grant.Levels()) }},
		{
			"\n4. How does the agent run? In a sandbox: " + strings.Join(Sandboxes()[:4], ", ") + "; or none.",
			&b.Sandbox, func(s string) error { return oneOf(s, Sandboxes()) },
		},
	} {
		if err := p.question(ctx, q.text, q.value, q.check); err != nil {
			return err
		}
	}
	if err := p.askPreset(ctx, b); err != nil {
		return err
	}
	fmt.Fprintln(p.out)
	return nil
}

// askPreset asks for a preset, and for what it needs to know.
func (p *prompter) askPreset(ctx context.Context, b *Options) error {
	err := p.optional(ctx, "\n5. Rules to start from, in a workspace of their own? "+strings.Join(Presets(), ", ")+"; or none.\n"+
		"   permesso policy preset NAME prints them.", &b.Preset, func(s string) error { return oneOf(s, Presets()) })
	if err != nil || b.Preset == "" {
		return err
	}
	text, value := "\n   Which folder is the project?", &b.Project
	if b.Preset == "assistant" {
		text, value = "\n   The person's email address?", &b.Person
	}
	return p.question(ctx, text, value, func(s string) error {
		*value = s
		_, err := b.PresetText(*b)
		return err
	})
}

func (p *prompter) question(ctx context.Context, text string, value *string, check func(string) error) error {
	fmt.Fprintln(p.out, text)
	for {
		fmt.Fprintf(p.out, "   [%s] ", *value)
		line, err := p.line(ctx)
		if err != nil {
			return err
		}
		line = cmp.Or(line, *value)
		if err = check(line); err == nil {
			*value = line
			return nil
		}
		fmt.Fprintf(p.out, "   %v\n", err)
		if hint := console.HintFor(err); hint != "" {
			fmt.Fprintf(p.out, "   hint: %s\n", hint)
		}
	}
}

// line reads exactly one line, byte by byte: the input after it belongs to the
// next reader.
func (p *prompter) line(ctx context.Context) (string, error) {
	line, err := readLine(ctx, p.in, readOne)
	switch {
	case err == nil:
		return strings.TrimSpace(line), nil
	case ctx.Err() != nil:
		err = console.Fail(console.ExitError, "", "interrupted; nothing was written")
	default:
		err = console.Fail(console.ExitError, "with --yes no questions are asked", "end of input; nothing was written")
	}
	fmt.Fprintln(p.out)
	return "", err
}

// readLine reads a line, or until ctx ends; then the read ends with the process.
func readLine(ctx context.Context, in io.Reader, read func(io.Reader) (string, error)) (string, error) {
	var line string
	done := make(chan error, 1)
	go func() {
		var err error
		line, err = read(in)
		done <- err
	}()
	select {
	case <-ctx.Done():
		return "", ctx.Err()
	case err := <-done:
		return line, err
	}
}

func readOne(in io.Reader) (string, error) {
	const longest = 1000
	var line []byte
	b := make([]byte, 1)
	for {
		n, err := in.Read(b)
		switch {
		case n == 1 && b[0] == '\n':
			return string(line), nil
		case n == 1 && len(line) < longest:
			line = append(line, b[0])
		}
		if err != nil {
			return "", err
		}
	}
}

// offerTrial ends init with a request that runs, if the person accepts.
func offerTrial(ctx context.Context, a *console.Console, p *prompter, h *home.Home, ws string) error {
	if served, err := h.Served(); err != nil || served {
		return err // a running daemon needs no trial
	}
	fmt.Fprint(a.Out, "\nTry it now with a temporary daemon? [Y/n] ")
	line, err := p.line(ctx)
	if err != nil || strings.HasPrefix(strings.ToLower(line), "n") {
		return nil //nolint:nilerr // init is complete
	}
	fmt.Fprintln(a.Out, "\nThe agent requests the tool hello. Answer 1 to approve, 3 to deny.")
	resp, err := tryRequest(ctx, a, h, ws)
	if err != nil {
		return err
	}
	fmt.Fprintln(a.Out, "\nThe agent reads:")
	a.PrintResponse(resp)
	fmt.Fprintln(a.Out, "\nDone; the temporary daemon has stopped. To start the daemon: permesso serve")
	return nil
}

// trialTimeout is the timeout of the trial's request.
const trialTimeout = 3 * time.Minute

// tryRequest runs a daemon until one request of our own has its response.
func tryRequest(ctx context.Context, a *console.Console, h *home.Home, ws string) (*approval.Response, error) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	stopDaemon := daemon.Background(ctx, a, stop) // without a daemon there is no response
	files := client.Files{Requests: h.Layout.Requests(ws), Responses: h.Layout.Responses(ws)}
	r := approval.Request{
		RequestID: client.NewID(), ToolName: firstTool, RequestData: approval.Raw(`{"name":"you"}`),
		ExpiresInSec: int64(trialTimeout / time.Second),
	}
	asked, err := files.Ask(ctx, r)
	var resp *approval.Response
	if err == nil {
		resp, err = files.Await(ctx, asked)
	}
	if err := stopDaemon(); err != nil {
		return nil, err
	}
	if errors.Is(err, context.Canceled) {
		return nil, console.Fail(console.ExitError, "it stays pending until its timeout, or until permesso serve runs", "interrupted before request %s had its response", approval.ShortID(r.RequestID))
	}
	return resp, err
}
