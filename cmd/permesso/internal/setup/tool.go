package setup

import (
	"context"
	"fmt"
	"maps"
	"os"
	osexec "os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/facts"
	"github.com/permesso-dev/permesso/cmd/permesso/config"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/console"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/home"
)

// Tool is one run of tool add.
type Tool struct {
	Console   *console.Console
	New       config.NewTool
	Command   string   // the program and its arguments, in one line
	Types     []string // NAME=TYPE, of the {fields}
	Stdin     []string // NAME=TYPE, of other arguments
	Headers   []string // NAME=VALUE, the value with the path of a secret's file
	Workspace string   // for the card
	Try       string   // arguments of a trial; "": none, or those that the person gives
	Yes       bool
	Print     bool // only the lines
	// Ruling describes what policy says about a request.
	Ruling func(r approval.Ruling) string

	home   *home.Home
	data   []byte         // the configuration before
	cfg    *config.Config // and after
	result ToolResult
}

// ToolResult is what tool add --json prints.
type ToolResult struct {
	Tool   string           `json:"tool_name"`
	Lines  string           `json:"lines"`
	Ruling *approval.Ruling `json:"ruling,omitempty"` // on a request with the sample arguments
	Trial  *TrialResult     `json:"trial,omitempty"`
	Config string           `json:"config,omitempty"` // the file that it was written into
	Daemon string           `json:"daemon,omitempty"`
}

// Run runs all steps.
func (t *Tool) Run(ctx context.Context) error {
	if err := t.prepare(); err != nil {
		return err
	}
	p := &prompter{in: t.Console.In, out: t.Console.Out}
	asks := !t.Yes && !t.Print && !t.Console.JSON && console.IsTerminal(t.Console.In)
	if asks {
		if err := t.ask(ctx, p); err != nil {
			return err
		}
	}
	if err := t.complete(); err != nil {
		return err
	}
	t.adviseRelative()
	if t.Print {
		return t.Console.PrintToCopy(t.result, strings.TrimSuffix(t.result.Lines, "\n"))
	}
	if err := t.preview(ctx, p, asks); err != nil {
		return err
	}
	return t.write(ctx, p, asks)
}

// prepare checks what needs no question.
func (t *Tool) prepare() (err error) {
	if t.home, err = editable(t.Console); err != nil {
		return err
	}
	if t.data, err = os.ReadFile(t.home.Config.File); err != nil {
		return err
	}
	if !approval.ValidToolName(t.New.Name) {
		return console.Fail(console.ExitUsage, "use 1 to 64 of A-Z a-z 0-9 _ . : and -", "%.80q is not a valid tool name", t.New.Name)
	}
	if _, exists := t.home.Config.Tools[t.New.Name]; exists {
		return console.Fail(console.ExitError, "permesso config edit changes it; or choose another name", "tool '%s' already exists in %s", t.New.Name, t.home.Config.File)
	}
	if (t.Command == "") == (t.New.URL == "") {
		return console.Fail(console.ExitUsage, `for example --command "/usr/bin/notify-send {text}"`, "tool add needs --command or --url")
	}
	for _, text := range append([]string{t.Command, t.New.URL, t.New.Body, t.New.Summary, t.New.Target, t.New.Verb}, t.Headers...) {
		if home.HoldsSecret(text) {
			return console.Fail(console.ExitUsage, "put it into a file that only the daemon's user can read; --secret-header takes the path of one",
				"a secret belongs neither into the configuration nor into a command line")
		}
	}
	if err := t.readHandler(); err != nil {
		return err
	}
	if t.Workspace == "" {
		t.Workspace = home.WorkspaceNames(t.home.Config)[0]
	}
	if _, exists := t.home.Config.Workspaces[t.Workspace]; !exists {
		return noWorkspace(t.Workspace)
	}
	return t.declare()
}

// readHandler reads --command and --secret-header.
func (t *Tool) readHandler() error {
	for _, header := range t.Headers {
		name, value, ok := strings.Cut(header, "=")
		if !ok {
			return console.Fail(console.ExitUsage, `--secret-header "Authorization=Bearer /etc/permesso/api.token"`, "--secret-header: %q is not NAME=VALUE", header)
		}
		if t.New.SecretHeaders == nil {
			t.New.SecretHeaders = map[string]string{}
		}
		t.New.SecretHeaders[name] = value
	}
	if t.Command == "" {
		return nil
	}
	words, ok := wordsOf(t.Command)
	if !ok {
		return console.Fail(console.ExitUsage, "no shell runs: write the program and its arguments, or a script that has them", "--command is not one plain command")
	}
	t.New.Argv = words
	program, err := osexec.LookPath(t.New.Argv[0])
	if err == nil {
		program, err = filepath.Abs(program)
	}
	if err != nil {
		return console.Fail(console.ExitUsage, "--command begins with a program, by its path or its name in PATH", "--command: %w", err)
	}
	t.New.Argv[0] = program
	return nil
}

// field is a placeholder in a line of a command.
var field = regexp.MustCompile(`\{[^{},\s'"$\x60\\]+\}`)

// wordsOf returns the words of a line that is one plain command. To a shell, a {field} is the
// beginning of an expansion, so a word without a meaning stands for it.
func wordsOf(line string) (words []string, ok bool) {
	const stand = "field.of.the.request."
	var fields []string
	line = field.ReplaceAllStringFunc(line, func(f string) string {
		fields = append(fields, f)
		return stand
	})
	s, err := facts.ParseCommand(line)
	if err != nil || !s.Plain || strings.Count(line, stand) != len(fields) {
		return nil, false
	}
	for _, w := range s.Commands[0].Words {
		text := w.Text
		for strings.Contains(text, stand) {
			text, fields = strings.Replace(text, stand, fields[0], 1), fields[1:]
		}
		words = append(words, text)
	}
	return words, true
}

// declare reads --arg and --stdin.
func (t *Tool) declare() error {
	t.New.Args = map[string]approval.Argument{}
	fields := t.New.Placeholders()
	for _, name := range fields {
		t.New.Args[name] = approval.Argument{Type: config.LikelyType(name)}
	}
	for _, text := range t.Types {
		if name, _, _ := strings.Cut(text, "="); !slices.Contains(fields, name) {
			return console.Fail(console.ExitUsage, "an argument that is not in the template is --stdin "+text, "--arg: there is no {%s} in the template", name)
		}
		if err := t.declareOne(text, false); err != nil {
			return err
		}
	}
	for _, text := range t.Stdin {
		if err := t.addStdin(text); err != nil {
			return err
		}
	}
	return nil
}

// addStdin declares an argument that the handler reads with the request's data.
func (t *Tool) addStdin(text string) error {
	if name, _, _ := strings.Cut(text, "="); slices.Contains(t.New.Placeholders(), name) {
		return console.Fail(console.ExitUsage, "--arg "+text+" gives its type", "--stdin: {%s} is in the template already", name)
	}
	if t.New.Argv == nil && t.New.Body != "" {
		return console.Fail(console.ExitUsage, "write {NAME} into --body", "--stdin sends the request's data, and --body another body")
	}
	t.New.BodyArgs = t.New.Argv == nil
	return t.declareOne(text, true)
}

// declareOne reads NAME=TYPE. With a ? after the type a request may leave the argument out.
func (t *Tool) declareOne(text string, mayBeOptional bool) error {
	name, kind, ok := strings.Cut(text, "=")
	kind, optional := strings.CutSuffix(kind, "?")
	switch {
	case !ok || name == "":
		return console.Fail(console.ExitUsage, "for example to=recipients", "%q is not NAME=TYPE", text)
	case optional && !mayBeOptional:
		return console.Fail(console.ExitUsage, "leave out the ?", "{%s} is in the template: no request may leave it out", name)
	}
	if err := oneOf(kind, facts.ArgTypes()); err != nil {
		return err
	}
	t.New.Args[name] = approval.Argument{Type: kind, Optional: optional}
	return nil
}

// ask asks for what no flag says.
func (t *Tool) ask(ctx context.Context, p *prompter) error {
	fmt.Fprintln(p.out, "Press Enter for the answer in brackets. Nothing is written before the last question.")
	if t.New.Capability == "" {
		text := "\nWhat does the tool do?"
		for _, c := range facts.Capabilities() {
			text += fmt.Sprintf("\n     %-14s %s", c.Name, c.Sentence)
		}
		t.New.Capability = t.New.LikelyCapability()
		if err := p.question(ctx, text, &t.New.Capability, func(s string) error { return oneOf(s, config.Capabilities()) }); err != nil {
			return err
		}
	}
	if err := t.askArguments(ctx, p); err != nil {
		return err
	}
	said := t.New
	t.New.Propose()
	for _, q := range []struct {
		text, flag string
		value      *string
		check      func(string) error
	}{
		{"\nThe type of the action? " + strings.Join(approval.ActionTypes(), ", ") + ", or custom:NAME.", said.ActionType, &t.New.ActionType, checkActionType},
		{"\nThe card asks: May I …?", said.Verb, &t.New.Verb, anyAnswer},
		{"\nWhat is it about, with {fields} of the request? Or none.", said.Summary, &t.New.Summary, anyAnswer},
		{"\nWhere is the effect, with {fields} of the request? Or none.", said.Target, &t.New.Target, anyAnswer},
	} {
		if q.flag != "" {
			continue
		}
		if err := p.optional(ctx, q.text, q.value, q.check); err != nil {
			return err
		}
	}
	return nil
}

func (t *Tool) askArguments(ctx context.Context, p *prompter) error {
	for _, name := range t.New.Placeholders() {
		if slices.ContainsFunc(t.Types, func(text string) bool { return strings.HasPrefix(text, name+"=") }) {
			continue
		}
		kind := t.New.Args[name].Type
		err := p.question(ctx, "\nWhat is {"+name+"}? "+strings.Join(facts.ArgTypes(), ", "), &kind, func(s string) error { return oneOf(s, facts.ArgTypes()) })
		if err != nil {
			return err
		}
		t.New.Args[name] = approval.Argument{Type: kind}
	}
	if len(t.Stdin) > 0 || t.New.Body != "" {
		return nil
	}
	where := "on standard input"
	if t.New.Argv == nil {
		where = "in the body"
	}
	more, declared := "", maps.Clone(t.New.Args)
	return p.optional(ctx, "\nMore arguments, that it gets "+where+", as JSON? NAME=TYPE NAME=TYPE?, the ? if it may be absent; or none.", &more, func(s string) error {
		t.New.Args = maps.Clone(declared)
		for _, text := range strings.Fields(s) {
			if err := t.addStdin(text); err != nil {
				return err
			}
		}
		return nil
	})
}

// none is the answer for an empty value.
const none = "none"

// optional is a question with a value that may be empty.
func (p *prompter) optional(ctx context.Context, text string, value *string, check func(string) error) error {
	answer := *value
	if answer == "" {
		answer = none
	}
	err := p.question(ctx, text, &answer, func(s string) error {
		if s == none {
			return nil
		}
		return check(s)
	})
	if *value = answer; answer == none {
		*value = ""
	}
	return err
}

func anyAnswer(string) error { return nil }

func checkActionType(s string) error {
	if approval.ValidActionType(s) {
		return nil
	}
	return console.Fail(console.ExitUsage, "one of "+strings.Join(approval.ActionTypes(), ", ")+", or custom:NAME", "%.80q is not a type of an action", s)
}

// complete proposes what is left, and checks the configuration with the tool in it.
func (t *Tool) complete() error {
	if t.New.Capability == "" {
		t.New.Capability = t.New.LikelyCapability()
	}
	if !slices.Contains(config.Capabilities(), t.New.Capability) {
		return console.Fail(console.ExitUsage, "permesso policy registry lists the capabilities", "%q is not a capability", t.New.Capability)
	}
	if t.New.Argv == nil && t.New.Method == "" {
		t.New.Method = "GET"
		if t.New.BodyArgs || t.New.Body != "" {
			t.New.Method = "POST"
		}
	}
	t.New.Propose()
	if err := checkActionType(t.New.ActionType); err != nil {
		return err
	}
	t.result.Tool, t.result.Lines = t.New.Name, t.New.Section()
	after, err := home.Reader(t.Console).AddTool(t.home.Config.File, t.data, t.New)
	if err == nil {
		t.cfg, err = home.Reader(t.Console).Parse(t.home.Config.File, after)
	}
	if err != nil {
		fmt.Fprint(t.Console.Err, t.result.Lines) // what was answered is not lost
		return withoutPosition(err)
	}
	return nil
}

// adviseRelative warns of what is relative: a run has a new empty folder, and no grant names
// such a target.
func (t *Tool) adviseRelative() {
	relative := func(text string) bool { return !filepath.IsAbs(text) }
	if target := t.New.Target; t.New.Capability == "fs:write" && target != "" && !strings.HasPrefix(target, "{") && relative(target) {
		t.Console.Tell("begin --target with /", "--target %q is relative: no grant can name it", target)
	}
	var given map[string]any
	_ = json.Unmarshal([]byte(t.Try), &given) // the trial reports what is wrong with it
	for _, name := range slices.Sorted(maps.Keys(t.New.Args)) {
		if t.New.Args[name].Type != facts.TypePath {
			continue
		}
		if text, ok := given[name].(string); ok && relative(text) {
			t.Console.Tell("give the whole path", "--try: %s is relative: a tool runs in a new empty folder, which is then removed", name)
		}
		for _, word := range t.New.Argv[min(1, len(t.New.Argv)):] {
			if before, _, ok := strings.Cut(word, "{"+name+"}"); ok && before != "" && !strings.HasPrefix(before, "-") && relative(before) {
				t.Console.Tell("begin it with /", "--command: %s is relative: a tool runs in a new empty folder, which is then removed", word)
			}
		}
	}
}

// sampleOf are values of the types of arguments.
var sampleOf = map[string]any{
	facts.TypeNumber: 1, facts.TypeBool: true, facts.TypePath: "/tmp/example", facts.TypeURL: "https://example.org/",
	facts.TypeHost: "example.org", facts.TypeRecipients: "ann@example.org", facts.TypeAmount: "10.00 EUR", facts.TypeCommand: "true",
	facts.TypeList: []string{"example"}, facts.TypeJSON: map[string]any{},
}

// sample is a request's data that fits the arguments.
func (t *Tool) sample() (string, error) {
	data := map[string]any{}
	for name, a := range t.New.Args {
		if !a.Optional {
			data[name] = "example"
			if v, ok := sampleOf[a.Type]; ok {
				data[name] = v
			}
		}
	}
	b, err := json.Marshal(data, json.Deterministic(true))
	return string(b), err
}

// write adds the tool to the file.
func (t *Tool) write(ctx context.Context, p *prompter, asks bool) (err error) {
	if asks {
		fmt.Fprintf(p.out, "\n%s\nWrite this into %s? [Y/n] ", t.result.Lines, t.home.Config.File)
		line, err := p.line(ctx)
		if err == nil && strings.HasPrefix(strings.ToLower(line), "n") {
			err = console.Fail(console.ExitError, "", "cancelled; nothing was written")
		}
		if err != nil {
			return err
		}
	}
	t.result.Daemon, err = EditConfig(t.Console, t.home, func(data []byte) ([]byte, error) {
		return home.Reader(t.Console).AddTool(t.home.Config.File, data, t.New)
	})
	if err != nil {
		return err
	}
	t.result.Config = t.home.Config.File
	return t.Console.Print(t.result, fmt.Sprintf("added   tool %s to %s\n%s", t.New.Name, t.home.Config.File, t.result.Daemon))
}

// owns reports whether this process runs as the owner of the home, as the daemon does.
func (t *Tool) owns() bool {
	info, err := os.Stat(t.home.Layout.Home)
	if err != nil {
		return os.IsNotExist(err)
	}
	owner, ok := ownerOf(info)
	return ok && owner.uid == os.Geteuid()
}
