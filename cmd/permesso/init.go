package main

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

	"github.com/spf13/cobra"

	"github.com/permesso-dev/permesso/cmd/permesso/config"
	"github.com/permesso-dev/permesso/ipc"
)

// beginning is what init is told, by flags or by the answers to its questions.
type beginning struct {
	config.Start
	approver string // NAME or NAME:UID, as it was typed
	sandbox  string // how the agent runs
}

func (a *app) initCmd() *cobra.Command {
	var b beginning
	var yes bool
	c := &cobra.Command{
		Use: "init", Short: "Write a first configuration and make the state folder", Args: cobra.NoArgs,
		Long: "Write a first configuration and make the state folder. On a terminal it asks four questions, each with an answer\n" +
			"that Enter takes; with --yes or any of the flags it asks nothing. What is there already is kept.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			flags := []string{"workspace", "approver", "autonomy", "sandbox", "yes"}
			ask := terminal(a.In) && !slices.ContainsFunc(flags, cmd.Flags().Changed)
			return a.begin(cmd.Context(), b, ask)
		},
	}
	c.Flags().StringVar(&b.Workspace, "workspace", config.DefaultWorkspace, "`name` of the first workspace: the home of one agent")
	c.Flags().StringVar(&b.approver, "approver", "", "who approves: a login `name`, or NAME:UID (default: you)")
	c.Flags().StringVar(&b.Autonomy, "autonomy", "supervised", "how far the agent is trusted, a `level`: "+strings.Join(levels(), ", "))
	c.Flags().StringVar(&b.sandbox, "sandbox", "bwrap", "`how` the agent runs: "+strings.Join(sandboxes(), ", "))
	c.Flags().BoolVarP(&yes, "yes", "y", false, "ask nothing")
	for flag, values := range map[string][]string{"autonomy": levels(), "sandbox": sandboxes()} {
		_ = c.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
	}
	_ = c.RegisterFlagCompletionFunc("workspace", cobra.NoFileCompletions)
	_ = c.RegisterFlagCompletionFunc("approver", cobra.NoFileCompletions)
	return c
}

// choice is one possible answer, with its line of explanation.
type choice struct{ word, means string }

func levels() []string {
	cs := autonomies()
	list := make([]string, len(cs))
	for i, c := range cs {
		list[i] = c.word
	}
	return list
}

func autonomies() []choice {
	return []choice{
		{"readonly", "it may ask to read; everything else is denied"},
		{"supervised", "whatever reaches outside asks you first"},
		{"full", "it acts by itself; only running code and sending mail ask you"},
	}
}

func sandboxes() []string { return []string{"bwrap", "docker", "podman", "compose", "none"} }

// begin writes what is missing and leads to a first request.
func (a *app) begin(ctx context.Context, b beginning, ask bool) error {
	file, err := a.configToWrite()
	if err != nil {
		return err
	}
	_, err = os.Lstat(file)
	kept := err == nil
	p := &prompter{in: a.In, out: a.Out}
	if !kept {
		if b.approver == "" {
			b.approver = ownName()
		}
		if ask {
			if err := p.ask(ctx, &b); err != nil {
				return err
			}
		}
		if kept, err = a.writeFirst(file, b); err != nil {
			return err
		}
	}
	said := "wrote   "
	if kept {
		said = "kept    "
	}
	fmt.Fprintln(a.Out, said+file)
	a.configFlag = file
	h, err := a.initHome()
	if err != nil {
		return err
	}
	ws := b.Workspace
	if _, ok := h.cfg.Workspaces[ws]; !ok {
		ws = firstWorkspace(h.cfg)
	}
	next := a.next(h, ws)
	if err := a.sayNext(h, ws, b.sandbox, next); err != nil {
		return err
	}
	if !ask || next.tool == "" {
		return nil
	}
	return a.offer(ctx, p, h, ws)
}

// ownName is the login name of whoever runs this, if it can be a name here.
func ownName() string {
	if u, err := user.Current(); err == nil && ipc.ValidWorkspace(u.Username) {
		return u.Username
	}
	return "me:" + strconv.Itoa(os.Getuid())
}

// complete checks the answers and finds the approver's uid.
func (b *beginning) complete() error {
	if err := checkName(b.Workspace); err != nil {
		return err
	}
	if err := oneOf(b.Autonomy, levels()); err != nil {
		return err
	}
	if err := oneOf(b.sandbox, sandboxes()); err != nil {
		return err
	}
	var err error
	b.Approver, b.UID, err = approverUID(b.approver)
	return err
}

func checkName(name string) error {
	if ipc.ValidWorkspace(name) {
		return nil
	}
	return fail(codeUsage, "use a to z, 0 to 9, _ and -, at most 63, beginning with a letter or digit", "%.80q: not a valid name", name)
}

func oneOf(word string, allowed []string) error {
	if slices.Contains(allowed, word) {
		return nil
	}
	return fail(codeUsage, "one of "+strings.Join(allowed, ", "), "%.80q is none of the answers", word)
}

// approverUID takes NAME, an account of this machine, or NAME:UID.
func approverUID(typed string) (name, uid string, err error) {
	name, uid, stated := strings.Cut(typed, ":")
	if err := checkName(name); err != nil {
		return "", "", err
	}
	if !stated {
		u, err := user.Lookup(name)
		if err != nil {
			return "", "", fail(codeUsage, "write NAME:UID; id -u prints the number", "no account '%s' on this machine", name)
		}
		uid = u.Uid
	}
	if _, err := strconv.ParseUint(uid, 10, 32); err != nil {
		return "", "", fail(codeUsage, "write NAME:UID; id -u prints the number", "%.20q is no uid", uid)
	}
	return name, uid, nil
}

// writeFirst writes the file, never over another one.
func (a *app) writeFirst(file string, b beginning) (kept bool, err error) {
	if err := b.complete(); err != nil {
		return false, err
	}
	text := b.Example()
	if _, err := a.reader().Parse(file, []byte(text)); err != nil {
		return false, err
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return false, err
	}
	f, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	_, err = f.WriteString(text)
	return false, errors.Join(err, f.Sync(), f.Close())
}

func (a *app) configToWrite() (string, error) {
	for _, f := range []string{a.configFlag, a.Env("PERMESSO_CONFIG")} {
		if f != "" {
			return filepath.Abs(f)
		}
	}
	dir := a.Env("XDG_CONFIG_HOME")
	if dir == "" {
		home := a.Env("HOME")
		if home == "" {
			return "", fail(codeUsage, "permesso init --config FILE", "HOME is not set")
		}
		dir = filepath.Join(home, ".config")
	}
	return filepath.Join(dir, "permesso", "permesso.toml"), nil
}

func (a *app) initHome() (*house, error) {
	h, err := a.house()
	if err != nil {
		return nil, err
	}
	if err := h.prepare(); err != nil {
		return nil, err
	}
	if _, err := h.makeKeys(); err != nil {
		return nil, err
	}
	fmt.Fprintf(a.Out, "made    %s\n", h.layout.Home)
	return h, nil
}

// nextSteps are the commands of a first request.
type nextSteps struct {
	serve   string
	tool    string // "" where the configuration has no tool hello
	request string
	mounts  string
}

func (a *app) next(h *house, ws string) nextSteps {
	given := a.given(h)
	n := nextSteps{serve: "permesso serve" + given, mounts: "permesso mounts " + ws + given}
	if _, ok := h.cfg.Tools[firstTool]; ok {
		n.tool = firstTool + " --arg name=you"
	}
	n.request = fmt.Sprintf("permesso request %s --requests %s --responses %s --wait",
		cmp.Or(n.tool, "TOOL"), shellWord(h.layout.Requests(ws)), shellWord(h.layout.Responses(ws)))
	return n
}

// firstTool is the tool of the example configuration.
const firstTool = "hello"

// given repeats the flags without which the next command would look elsewhere.
func (a *app) given(h *house) string {
	var flags string
	if usual, err := (&app{Main: a.Main}).configToWrite(); err != nil || usual != h.cfg.File {
		flags += " --config " + shellWord(h.cfg.File)
	}
	if usual, err := config.LocateHome("", a.Env); err != nil || usual != h.layout.Home {
		flags += " --home " + shellWord(h.layout.Home)
	}
	return flags
}

func (a *app) sayNext(h *house, ws, sandbox string, n nextSteps) error {
	var b strings.Builder
	switch list := mounts(h.layout, ws); sandbox {
	case "none":
		b.WriteString("\nAn agent without a sandbox, under your own user, could approve itself: give it at least another user,\n" +
			"and these two folders:\n  " + list[0].Source + "\n  " + list[1].Source + "\n")
	default:
		text, err := list.form(sandbox)
		if err != nil {
			return err
		}
		b.WriteString("\nThe agent's sandbox (" + sandbox + ") gets these two folders and nothing else of the gate:\n  " +
			strings.ReplaceAll(text, "\n", "\n  ") + "\nThis prints them again: " + n.mounts + " --" + sandbox + "\n")
	}
	b.WriteString("\nNext:\n  " + n.serve + "\nand in another terminal, as the agent would:\n  " + n.request + "\n")
	_, err := io.WriteString(a.Out, b.String())
	return err
}
