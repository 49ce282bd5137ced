package servers

import (
	"bytes"
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"github.com/permesso-dev/permesso/ipc/agentconf"
)

// Wrapper is the command line of the gateway, without the server.
type Wrapper struct {
	Program string   // absolute path
	Args    []string // behind mcp proxy --server NAME --env VARIABLE... --hold TIME
}

// words are those of the gateway before a server: without the program, and with -- or --url at the end. The variables of
// the server go by their names: the gateway has them from the agent, and gives a server no other ones.
func (w Wrapper) words(e entry, last string) []string {
	words := []string{"mcp", "proxy", "--server", e.name()}
	for _, name := range e.variables() {
		words = append(words, "--env", name)
	}
	if e.hold > 0 {
		words = append(words, "--hold", e.hold.String())
	}
	return slices.Concat(words, w.Args, []string{last})
}

// variables are the names of those that the settings give a server.
func (e entry) variables() (names []string) {
	for _, m := range e.Members {
		switch m.Name {
		case "env", "environment":
			for _, variable := range m.Members {
				names = append(names, variable.Name)
			}
		case "env_vars": // of Codex, which has them from its own environment
			for _, item := range m.Items {
				if name := item.Get("name"); name != nil {
					item = name.Value
				}
				names = append(names, item.String)
			}
		}
	}
	return names
}

// Left is a server that stays as it is.
type Left struct {
	Name   string `json:"name"`
	Reason string `json:"reason"`
}

// Wrap returns settings with the gateway before each server, and the servers before which it was not put. before are the
// settings without the gateway, if they are known.
func (a Agent) Wrap(text, before []byte, w Wrapper) (out []byte, left []Left, err error) {
	t, err := agentconf.Parse(text, a.toml)
	if err != nil {
		return nil, nil, err
	}
	// What another program of ours, or other options have put there is taken away first.
	other := func(e entry) bool { return !w.isBefore(e, a.words(e.Value)) }
	if text, err = a.unwrap(t, before, other); err != nil {
		return nil, nil, err
	}
	if t, err = agentconf.Parse(text, a.toml); err != nil {
		return nil, nil, err
	}
	var edits []agentconf.Edit
	for _, e := range a.entries(t) {
		more, reason := a.wrap(t, e, w)
		if reason != "" {
			left = append(left, Left{e.name(), reason})
		}
		edits = append(edits, more...)
	}
	if out = t.Apply(edits); len(edits) == 0 {
		out = text
	}
	return out, left, a.wrapped(out, left, w)
}

// isBefore reports whether a command line is that of this gateway.
func (w Wrapper) isBefore(e entry, words []string) bool {
	return len(words) > 0 && words[0] == w.Program && slices.ContainsFunc([]string{"--", "--url"}, func(last string) bool {
		all := w.words(e, last)
		return len(words) > len(all)+1 && slices.Equal(words[1:1+len(all)], all)
	})
}

// wrapped reads what was written: each server that was not left runs through the gateway.
func (a Agent) wrapped(text []byte, left []Left, w Wrapper) error {
	t, err := agentconf.Parse(text, a.toml)
	if err != nil {
		return err
	}
	for _, e := range a.entries(t) {
		words := a.words(e.Value)
		if !w.isBefore(e, words) && !isOurs(words) && !slices.ContainsFunc(left, func(l Left) bool { return l.Name == e.name() }) {
			return fmt.Errorf("the gateway cannot be put before %q without changing more", e.name())
		}
	}
	return nil
}

// harmless are the members of a remote server that hold no credentials, and mean the same for a local one.
var harmless = strings.Fields(`type url httpUrl timeout enabled disabled description trust includeTools excludeTools alwaysLoad
	startup_timeout_sec startup_timeout_ms tool_timeout_sec enabled_tools disabled_tools required supports_parallel_tool_calls
	default_tools_approval_mode tools autoApprove alwaysAllow`)

// elsewhere are members of a local server that is not simply started here.
var elsewhere = map[string]string{
	"sandboxEnabled":           "it runs in a sandbox of the agent, which does not reach the gate",
	"dev":                      "the agent may start it in a debugger",
	"envFile":                  "the gateway would not give it the variables of that file",
	"experimental_environment": "it runs on another machine",
}

var plainVariable = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// placesGate are the variables by which the gateway finds the gate. A server of others must not set them.
var placesGate = regexp.MustCompile(`(?i)^(PERMESSO_.*|HOME|XDG_(STATE|CONFIG)_HOME)$`)

// wrap are the edits that put the gateway before one server, or the reason why it is not put there.
func (a Agent) wrap(t *agentconf.Text, e entry, w Wrapper) ([]agentconf.Edit, string) {
	words := a.words(e.Value)
	if e.Kind != '{' {
		return nil, "it is not an object"
	}
	switch remote := urlOf(e.Value); {
	case isOurs(words) && words[0] != w.Program:
		return nil, "it is " + words[0] + ": see that this is the gate's program"
	case isOurs(words) && !isProxy(words) && slices.ContainsFunc(words[2:], func(word string) bool { return word == "proxy" || word == "--" }):
		return nil, "it is a gateway with other options: see which gate it asks"
	case isOurs(words):
		return nil, ""
	case remote != nil && (e.Get("command") != nil || e.Get("url") != nil && e.Get("httpUrl") != nil):
		return nil, "it has two of a command and addresses"
	case remote != nil:
		return a.wrapRemote(t, e, *remote, w)
	case words == nil:
		return nil, "it has no command and no address that is a text"
	}
	for _, m := range e.Members {
		if reason := elsewhere[m.Name]; reason != "" && (m.Kind != 0 || t.Raw(m.Value) != "false") {
			return nil, reason
		}
	}
	for _, name := range e.variables() {
		switch {
		case placesGate.MatchString(name):
			return nil, "its variable " + name + " would tell the gateway where the gate is"
		case !plainVariable.MatchString(name):
			return nil, "it has a variable without a plain name"
		}
	}
	command, args := e.Get("command"), e.Get("args")
	prefix := w.words(e, "--")
	if a.oneList {
		first := agentconf.QuoteAll(append([]string{w.Program}, prefix...)) + ","
		return []agentconf.Edit{{Start: command.Value.Start + 1, End: command.Value.Start + 1, By: first}}, ""
	}
	first := agentconf.QuoteAll(prefix) + ", " + t.Raw(command.Value)
	program := agentconf.Edit{Start: command.Value.Start, End: command.Value.End, By: agentconf.Quote(w.Program)}
	if args == nil {
		// The space at the beginning tells unwrap that there was no list.
		program.By += a.between(t, e, *command) + "[ " + first + "]"
		return []agentconf.Edit{program}, ""
	}
	if len(args.Items) > 0 {
		first += ","
	}
	return []agentconf.Edit{program, {Start: args.Value.Start + 1, End: args.Value.Start + 1, By: first}}, ""
}

// between is what stands between the value of command and that of args, where both are ours.
func (a Agent) between(t *agentconf.Text, e entry, key agentconf.Member) string {
	if !a.toml {
		return `, "args": `
	}
	dotted := dots(t, key)
	if e.End > 0 {
		return ", " + dotted + "args = "
	}
	return t.Newline() + dotted + "args = "
}

// dots is what stands before the last part of a key of TOML.
func dots(t *agentconf.Text, key agentconf.Member) string {
	name := string(t.Bytes[key.Start:key.End])
	return name[:strings.LastIndexByte(name, '.')+1]
}

var longSegment = regexp.MustCompile(`[0-9A-Za-z_-]{20,}`)

// plainURL is the reason why an address must not stand on a command line, where every user of the machine sees it.
func plainURL(text string) string {
	u, err := url.Parse(text)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return "its address is not one of http or https"
	}
	for _, segment := range longSegment.FindAllString(u.Path, -1) {
		if strings.ContainsAny(segment, "0123456789") {
			return "its address may hold a secret"
		}
	}
	switch {
	case u.User != nil, u.RawQuery != "", u.Fragment != "", strings.ContainsAny(text, "${}"):
		return "its address may hold a secret"
	case strings.HasSuffix(u.Path, "/sse"):
		return "it speaks the older protocol over server-sent events"
	}
	return ""
}

// wrapRemote makes a local server of a remote one. Its secrets must not stand on a command line, so one that has any is left.
func (a Agent) wrapRemote(t *agentconf.Text, e entry, address agentconf.Member, w Wrapper) ([]agentconf.Edit, string) {
	for _, m := range e.Members {
		if !slices.Contains(harmless, m.Name) {
			return nil, "it has " + m.Name + ": the gateway would not have what is there"
		}
	}
	if address.Kind != '"' {
		return nil, "its address is not a text"
	}
	if reason := plainURL(address.String); reason != "" {
		return nil, reason
	}
	var edits []agentconf.Edit
	if kind := e.Get("type"); kind != nil {
		switch kind.String {
		case "http", "streamable-http", "streamableHttp", "remote":
		default:
			return nil, "the gateway does not speak its protocol"
		}
		local := a.local
		if local == "" {
			local = "stdio"
		}
		edits = append(edits, agentconf.Edit{Start: kind.Value.Start, End: kind.Value.End, By: agentconf.Quote(local)})
	}
	words := append(w.words(e, "--url"), address.String)
	key := agentconf.Quote("command") + ": "
	if a.toml {
		key = dots(t, address) + "command = "
	}
	by := key + agentconf.Quote(w.Program) + a.between(t, e, address) + "[" + agentconf.QuoteAll(words) + "]"
	if a.oneList {
		by = key + "[" + agentconf.QuoteAll(append([]string{w.Program}, words...)) + "]"
	}
	return append(edits, agentconf.Edit{Start: address.Start, End: address.Value.End, By: by}), ""
}

// Unwrap returns settings without the gateway. before are those that were there before it, if they are known: a remote server
// gets its spelling from them.
func (a Agent) Unwrap(text, before []byte) ([]byte, error) {
	t, err := agentconf.Parse(text, a.toml)
	if err != nil {
		return nil, err
	}
	return a.unwrap(t, before, func(entry) bool { return true })
}

// Unwraps reports whether old settings are those of now without the gateway, whatever the layout of both is.
func (a Agent) Unwraps(old, now []byte) bool {
	without, err := a.Unwrap(now, old)
	return err == nil && !bytes.Equal(old, now) && agentconf.Same(without, old, a.toml)
}

// Wrapped are the names of the servers that have the gateway before them, and of those that have not.
func (a Agent) Wrapped(text []byte) (with, without []string) {
	t, err := agentconf.Parse(text, a.toml)
	if err != nil {
		return nil, nil
	}
	for _, e := range a.entries(t) {
		switch words := a.words(e.Value); {
		case isProxy(words):
			with = append(with, e.name())
		case !isOurs(words):
			without = append(without, e.name())
		}
	}
	return with, without
}

func (a Agent) unwrap(t *agentconf.Text, before []byte, which func(entry) bool) ([]byte, error) {
	var edits []agentconf.Edit
	old, err := agentconf.Parse(before, a.toml)
	if err != nil {
		old, _ = agentconf.Parse(nil, a.toml)
	}
	for _, e := range a.entries(t) {
		words := a.words(e.Value)
		if !isProxy(words) || !which(e) {
			continue
		}
		more, err := a.unwrapOne(t, e, words, old)
		if err != nil {
			return nil, fmt.Errorf("server %q: %w", e.name(), err)
		}
		edits = append(edits, more...)
	}
	if len(edits) == 0 {
		return t.Bytes, nil
	}
	out := t.Apply(edits)
	_, err = agentconf.Parse(out, a.toml)
	return out, err
}

var errByHand = errors.New("the line of the gateway was changed: take it away by hand")

func (a Agent) unwrapOne(t *agentconf.Text, e entry, words []string, old *agentconf.Text) ([]agentconf.Edit, error) {
	last := -1
	for i := 5; i < len(words)-1 && last < 0; i++ { // permesso mcp proxy --server NAME
		if words[i] == "--" || words[i] == "--url" {
			last = i
		}
	}
	if last < 0 || words[3] != "--server" {
		return nil, errByHand
	}
	was := old.Root.At(e.names...)
	if words[last] == "--url" {
		return a.unwrapRemote(t, e, words[last+1], old, was)
	}
	command, args := e.Get("command"), e.Get("args")
	if a.oneList {
		end, ok := t.Behind(command.Items[last].End)
		if !ok {
			return nil, errByHand
		}
		return []agentconf.Edit{{Start: command.Value.Start + 1, End: end}}, nil
	}
	own := args.Items[last] // without the program, so this is the server's command
	edits := []agentconf.Edit{{Start: command.Value.Start, End: command.Value.End, By: t.Raw(own)}}
	if last+1 < len(args.Items) {
		end, ok := t.Behind(own.End)
		if !ok {
			return nil, errByHand
		}
		return append(edits, agentconf.Edit{Start: args.Value.Start + 1, End: end}), nil
	}
	switch ours := a.between(t, e, *command) + "[ "; {
	case strings.HasPrefix(string(t.Bytes[command.Value.End:]), ours) && args.Items[0].Start == command.Value.End+len(ours):
		edits = append(edits, agentconf.Edit{Start: command.Value.End, End: args.Value.End})
	case !a.toml && was != nil && was.Get("args") == nil: // the agent has written it anew
		edits = append(edits, t.Without(e.Value, "args")...)
	default:
		edits = append(edits, agentconf.Edit{Start: args.Value.Start + 1, End: own.End})
	}
	return edits, nil
}

func (a Agent) unwrapRemote(t *agentconf.Text, e entry, address string, old *agentconf.Text, was *agentconf.Value) ([]agentconf.Edit, error) {
	command, end := e.Get("command"), 0
	if end = command.Value.End; !a.oneList {
		args := e.Get("args")
		if args.Start < end || strings.Trim(string(t.Bytes[end:args.Start]), ", \t\r\n") != "" {
			return nil, errByHand
		}
		end = args.Value.End
	}
	by, kind := agentconf.Quote("url")+": "+agentconf.Quote(address), agentconf.Quote(a.remote)
	if a.remote == "" {
		kind = agentconf.Quote("http")
	}
	if a.toml {
		by = dots(t, *command) + "url = " + agentconf.Quote(address)
	}
	if was != nil {
		if m := urlOf(was); m != nil && m.String == address {
			by = string(old.Bytes[m.Start:m.Value.End])
		}
		if m := was.Get("type"); m != nil {
			kind = old.Raw(m.Value)
		}
	}
	edits := []agentconf.Edit{{Start: command.Start, End: end, By: by}}
	if m := e.Get("type"); m != nil {
		edits = append(edits, agentconf.Edit{Start: m.Value.Start, End: m.Value.End, By: kind})
	}
	return edits, nil
}
