package config

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"

	"github.com/permesso-dev/permesso/approval"
)

// ExampleOptions has settings for a first configuration. Zero fields get the defaults.
type ExampleOptions struct {
	Workspace string
	Autonomy  string
	Approver  string // a name, which needs UID; "": only the local operator
	UID       string
}

// Example returns a commented configuration to start from, with a workspace and a
// tool. Lines that begin with # and no space are optional settings.
func Example() string { return ExampleOptions{}.Example() }

// Example returns the example with these settings. The names must be valid.
func (s ExampleOptions) Example() string {
	top := permessoKeys()
	text := exampleProse
	for _, k := range top.Keys {
		if k.read != nil {
			text += k.line()
		}
	}
	text += top.sections("")
	if s.Workspace != "" {
		text = strings.ReplaceAll(text, "[workspaces.default]", "[workspaces."+s.Workspace+"]")
		text = strings.ReplaceAll(text, `workspace = "default"`, "workspace = "+strconv.QuoteToASCII(s.Workspace))
	}
	if s.Autonomy != "" {
		text = strings.Replace(text, `autonomy = "supervised"`, "autonomy = "+strconv.QuoteToASCII(s.Autonomy), 1)
	}
	if s.Approver != "" {
		text = strings.Replace(text, "approvers = []", "approvers = ["+strconv.QuoteToASCII(s.Approver)+"]", 1)
		text = strings.Replace(text, "#[approvers.ann]\n#local = 1000 ", "[approvers."+s.Approver+"]\nlocal = "+s.UID+" ", 1)
		text = strings.Replace(text, `#principal = "ann"`, "#principal = "+strconv.QuoteToASCII(s.Approver), 1)
	}
	return text
}

// sections returns the tables of the example, each with its own header.
func (k Key) sections(path string) (text string) {
	for _, below := range k.Keys {
		if !below.isTable() {
			continue
		}
		at, header := strings.TrimPrefix(path+"."+cmp.Or(below.exampleName, below.Name), "."), "[%s]"
		if below.isList() {
			header = "[[%s]]"
		}
		if (path == "" || path == "channels") && (below.Keys[0].isName() || len(below.kinds) == 0) {
			text += below.sections(at)
			continue
		}
		if !below.shown {
			header = "#" + header
		}
		text += "\n" + below.prose + fmt.Sprintf(header, at) + "\n"
		for _, inner := range below.Keys {
			text += inner.line()
		}
		if below.after != nil {
			text += below.after()
		}
	}
	return text
}

// line returns a key with its value, as a comment unless the example sets it.
func (k Key) line() string {
	text := k.Name + " = " + k.example()
	switch {
	case k.instead:
		text = "# " + text
	case !k.shown:
		text = "#" + text
	}
	if k.isTable() {
		text = k.prose + text
	}
	if k.Help != "" {
		text = fmt.Sprintf("%-32s # %s", text, k.Help)
	}
	var more []string
	for _, below := range k.Keys {
		if below.instead {
			more = append(more, below.Name+" = "+below.example())
		}
	}
	if len(more) > 0 {
		text += "\n# in " + k.Name + " also: " + strings.Join(more, ", ")
	}
	return text + "\n"
}

// example returns the value of a key in the example.
func (k Key) example() string {
	switch {
	case k.Example != "":
		return k.Example
	case k.Default != "":
		return k.Default
	case k.Keys == nil:
		return "[]"
	}
	var items []string
	for _, below := range k.Keys {
		if !below.instead {
			items = append(items, cmp.Or(below.exampleName, below.Name)+" = "+below.example())
		}
	}
	return "{ " + strings.Join(items, ", ") + " }"
}

const exampleProse = `# permesso.toml: which agents may send requests, who may decide, what may run.
# Every key has a safe default. An unknown key is an error. All keys: man permesso.toml

# Global settings, before the first [table].
`

const workspaceProse = `# Each agent has a workspace. Rename this one. The agent's two folders are
# HOME/ipc/NAME/requests and HOME/ipc/NAME/responses; permesso mounts NAME
# prints the mounts for a container.
`

const toolProse = `# A tool is an action that an agent may request. You describe it here, not the
# agent; {fields} are replaced with values of the request.
`

const handlerProse = `# The program runs without a shell, in an empty folder, with only these
# variables. It gets the request's data as JSON on standard input.
`

// toolExamples are more tools.
func toolExamples() string {
	text := `
# A tool may also be one HTTP request. {fields} may stand in the path, in values of
# the query, and for complete values of a JSON body; never in the host. Put secrets
# into files (mode 600). Redirects to other hosts are not followed. Private
# addresses must be in allow_private.
#[tools.post]
#capability = "channel:out"
#verb = "post"
#summary = "{text} -> {board}"
#[tools.post.handler]            # the default of target is the URL's host
`
	for _, k := range handlerKeys() {
		k.instead = k.handler == approval.HandlerCommand
		text += k.line()
	}
	return text + `
# The meaning of arguments, for cards and rules. If an argument is a program, only a
# prover can tell what it does.
#[tools.newsletter]
#facts = { recipient = ["to", "cc", "bcc"], path = "attachment" }
#[tools.script]
#program = "code"
`
}

func ruleExamples() string {
	return `# A rule may depend on what a prover has proven or, without a program in the request,
# on the arguments. Unknown facts are not proven. Claims of the agent never count.
#[[rules]]
#match = { tool = "script" }
#outcome = "deny"                # unless_proven: for deny and ask; when_proven: for allow
#unless_proven = [{ domain = "mail", op = "send", at_most = 0, of = { recipient = "boss@example.org" } }]
#[[rules]]
#match = { tool = "script" }
#outcome = "allow"
#when_proven = [{ domain = "mail", op = "send", only = { recipient = ["ann@example.org"] } }, { domain = "mail", unique = "recipient" }, { domain = "mail", at_most = 10 }, { domain = "file", under = { path = ["/srv/out"] } }]
`
}

const emailProse = `# Approvers decide by replying to an email: permesso email setup finds the settings.
# Put passwords into files (mode 600), or into PERMESSO_EMAIL_PASSWORD.
`

const telegramProse = `# Approvers decide in Telegram. @BotFather creates a bot and its token. The bot
# answers /start with the user's numeric id.
`
