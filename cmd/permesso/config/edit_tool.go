package config

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/facts"
)

// NewTool is a tool to add: a command if it has Argv, else an HTTP request. Empty fields are
// left out, and get the defaults.
type NewTool struct {
	Name, Capability, ActionType string
	Verb, Summary, Target        string
	Args                         map[string]approval.Argument
	Argv                         []string
	URL, Method, Body            string
	BodyArgs                     bool              // send the request's data
	SecretHeaders                map[string]string // each with the file of its value
	AllowPrivate                 []string
	Timeout                      time.Duration
}

// AddTool appends the section to data, the content of the file called name. It keeps every
// existing byte. An error about the result is an *Error.
func (rd Reader) AddTool(name string, data []byte, t NewTool) ([]byte, error) {
	return rd.addText(name, data, t.Section(), "tools."+t.Name+".", func(before *Config) error {
		if _, exists := before.Tools[t.Name]; exists {
			return fmt.Errorf("tool %s already exists", quote(t.Name))
		}
		return nil
	})
}

// Section formats it as TOML.
func (t NewTool) Section() string {
	var args []string
	for _, name := range sortedKeys(t.Args) {
		args = append(args, tomlKey(name)+" = "+argText(t.Args[name]))
	}
	all := ""
	if len(args) > 0 {
		all = "{ " + strings.Join(args, ", ") + " }"
	}
	return tableText("tools."+tomlKey(t.Name), []entry{
		{"capability", written(t.Capability)},
		{"action_type", written(t.ActionType)},
		{"verb", written(t.Verb)},
		{"summary", written(t.Summary)},
		{"target", written(t.Target)},
		{"args", all},
		{"handler", t.handler()},
	})
}

// written formats a text as TOML, "" if it is empty.
func written(text string) string {
	if text == "" {
		return ""
	}
	return quoteTOML(text)
}

func (t NewTool) handler() string {
	var argv, headers []string
	for _, word := range t.Argv {
		argv = append(argv, quoteTOML(word))
	}
	for _, name := range sortedKeys(t.SecretHeaders) {
		headers = append(headers, tomlKey(name)+" = "+quoteTOML(t.SecretHeaders[name]))
	}
	list := []entry{{"kind", written(approval.HandlerHTTP)}, {"method", written(t.Method)}, {"url", written(t.URL)}, {"body", written(t.Body)}}
	if t.BodyArgs {
		list = append(list, entry{"body_args", "true"})
	}
	if len(headers) > 0 {
		list = append(list, entry{"secret_headers", "{ " + strings.Join(headers, ", ") + " }"})
	}
	list = append(list, entry{"allow_private", quotedList(t.AllowPrivate)})
	if t.Argv != nil {
		list = []entry{{"kind", written(approval.HandlerCommand)}, {"argv", "[" + strings.Join(argv, ", ") + "]"}}
	}
	if t.Timeout > 0 {
		list = append(list, entry{"timeout", written(short(t.Timeout))})
	}
	return inlineTable(list)
}

// Placeholders are the names of the {fields} in its handler, in their order.
func (t NewTool) Placeholders() (names []string) {
	h := approval.Handler{Kind: approval.HandlerCommand, Argv: t.Argv}
	if t.Argv == nil {
		h = approval.Handler{Kind: approval.HandlerHTTP, HTTP: approval.HTTP{URL: t.URL, Body: t.Body}}
	}
	for _, template := range facts.Templates(approval.Tool{Handler: h}) {
		for _, name := range template.Names {
			if !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
	}
	return names
}

// LikelyCapability is the capability that fits its handler best.
func (t NewTool) LikelyCapability() string {
	if t.Argv == nil {
		return likelyCapability(approval.Tool{Handler: approval.Handler{Kind: approval.HandlerHTTP}})
	}
	return likelyCapability(approval.Tool{})
}

// typeOfName are the types that arguments of these canonical names usually have.
var typeOfName = map[string]string{
	"recipient": facts.TypeRecipients, "email": facts.TypeRecipients, "mail": facts.TypeRecipients,
	"path": facts.TypePath, "dir": facts.TypePath, "directory": facts.TypePath,
	"host": facts.TypeHost, "hostname": facts.TypeHost, "amount": facts.TypeAmount, "price": facts.TypeAmount,
	"command": facts.TypeCommand, "cmd": facts.TypeCommand, "table": facts.TypeTable, "diff": facts.TypeDiff, "patch": facts.TypeDiff,
}

// LikelyType is the type that an argument of this name usually has.
func LikelyType(name string) string {
	canonical := facts.CanonicalArg(name)
	if canonical == "host" && !strings.HasPrefix(strings.ToLower(name), "host") {
		return facts.TypeURL // url, uri
	}
	return cmp.Or(typeOfName[canonical], facts.TypeText)
}

// actionOf are the types of actions of capabilities.
var actionOf = map[string]string{
	"fs:write": "write_file", "network:http": "http_request", "channel:out": "send_message", "mail:send": "send_message",
}

// Propose fills the empty fields of what a card says. Its capability and arguments must be
// set.
func (t *NewTool) Propose() {
	t.ActionType = cmp.Or(t.ActionType, actionOf[t.Capability], "custom:"+t.Name)
	t.Verb = cmp.Or(t.Verb, strings.Join(strings.FieldsFunc(t.Name, func(r rune) bool { return strings.ContainsRune("_.:-", r) }), " "))
	var fields []string
	for _, name := range sortedKeys(t.Args) {
		if !t.Args[name].Optional {
			fields = append(fields, "{"+name+"}")
		}
	}
	t.Summary = cmp.Or(t.Summary, strings.Join(fields, ", "))
	t.Target = cmp.Or(t.Target, t.likelyTarget())
}

// likelyTarget names the argument that says where the effect is, "" if it has none. The
// default target of an HTTP request is its host.
func (t *NewTool) likelyTarget() string {
	if c, _ := facts.CapabilityNamed(t.Capability); t.Argv == nil || c.TargetKind == "none" {
		return ""
	}
	for _, kind := range []string{facts.TypeRecipients, facts.TypeURL, facts.TypeHost, facts.TypePath} {
		if name := firstOf(t.Args, kind); name != "" && !t.Args[name].Optional {
			return "{" + name + "}"
		}
	}
	return ""
}
