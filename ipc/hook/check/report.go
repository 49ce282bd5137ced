package check

import (
	"fmt"
	"slices"
	"strings"

	"github.com/permesso-dev/permesso/ipc/hook"
)

// Stand is a file of settings that has the hook.
type Stand struct {
	Scope  hook.Scope `json:"scope"`
	File   string     `json:"file"`
	Events []string   `json:"events"`
	Advice string     `json:"advice"` // what a person has to know about this scope; "": it holds
}

// Standing is what the settings say of a hook, without a try.
type Standing struct {
	Stands []Stand `json:"settings"`
	Off    []Off   `json:"off"` // the nearest first
}

// Report is what a check has seen.
type Report struct {
	Standing

	Agent   string `json:"agent"`
	Program string `json:"program"` // "": not found
	Version string `json:"version"` // "": not known
	Asked   bool   `json:"asked"`   // the agent has asked the model
	Called  bool   `json:"called"`  // the hook
	Undone  bool   `json:"undone"`  // the call

	why     error  // the program was not found
	call    string // that the hook was called for
	outcome outcome
}

// Standing reads the settings of an agent for a project.
func (p Place) Standing(a hook.Agent) (s Standing) {
	s.Stands, s.Off = []Stand{}, []Off{}
	user := ""
	for _, scope := range []hook.Scope{hook.Managed, hook.User, hook.Project} {
		file, err := a.File(scope, p.Home, p.Project, p.Env)
		if err != nil || file == user { // the project is the user's folder
			continue
		}
		if scope == hook.User {
			user = file
		}
		text, err := readFile(file)
		if err != nil {
			continue // off names it, if the agent reads it
		}
		if events := a.Stands(scope, text); len(events) > 0 {
			s.Stands = append(s.Stands, Stand{scope, file, events, a.Advice(scope)})
		}
	}
	s.Off = append(s.Off, p.off(a)...)
	return s
}

// permissionOnly says that the hook stands only where the agent would ask.
func (s Standing) permissionOnly() bool {
	return len(s.Stands) > 0 && !slices.ContainsFunc(s.Stands, func(x Stand) bool {
		return slices.ContainsFunc(x.Events, func(e string) bool { return e != "PermissionRequest" })
	})
}

// managed says that the hook stands in the settings of the system.
func (s Standing) managed() bool {
	return slices.ContainsFunc(s.Stands, func(x Stand) bool { return x.Scope == hook.Managed })
}

// Severity orders lines, as doctor does.
type Severity string

// The severities.
const (
	OK      Severity = "ok"
	Info    Severity = "info"
	Warning Severity = "warning"
	Error   Severity = "error"
)

// Line is one thing that was seen, with what can be done about it.
type Line struct {
	Of       string   `json:"of"`
	Severity Severity `json:"severity"`
	What     string   `json:"what"`
	Hint     string   `json:"hint"`
	Command  Command  `json:"-"`
}

// Command is the command that helps. Its name is known to the program alone.
type Command string

// The commands, "" for none.
const (
	Install        Command = "install"
	InstallManaged Command = "managed"
	TryIt          Command = "try"
	NameProgram    Command = "program"
)

// Lines say what the settings say.
func (s Standing) Lines(a hook.Agent) (lines []Line) {
	for _, x := range s.Stands {
		l := Line{"settings", OK, fmt.Sprintf("%s settings have the hook, for %s: %s", x.Scope, strings.Join(x.Events, " and "), x.File), x.Advice, ""}
		if l.Hint != "" {
			l.Severity = Info
		}
		lines = append(lines, l)
	}
	if len(s.Stands) == 0 {
		lines = append(lines, Line{"settings", Error, "no settings have the hook", "", Install})
	}
	for _, o := range s.Off {
		lines = append(lines, s.offLine(a, o))
	}
	return lines
}

func (s Standing) offLine(a hook.Agent, o Off) Line {
	if o.Key == "" {
		return Line{"off", Warning, fmt.Sprintf("%s cannot be read: %s", o.File, o.Error), "look in it for " + keyNames(a), TryIt}
	}
	l := Line{"off", Error, fmt.Sprintf("%s switches hooks off: %s", o.File, o.Key), "remove it from the file", InstallManaged}
	switch {
	case s.managed() && !o.Managed:
		l.Severity, l.Hint, l.Command = Info, "the hook in the settings of the system is called all the same", ""
	case o.Managed:
		l.Command = ""
	}
	if l.Severity == Error && o.Above {
		l.Severity = Warning
	}
	return l
}

// keyNames are the keys that switch the hooks of an agent off.
func keyNames(a hook.Agent) string {
	var names []string
	for _, k := range keys[a.Name] {
		if name := strings.Join(k.path, "."); !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return strings.Join(names, ", ")
}

// Proven says that the hook was called and the call stayed undone, in a version for which that can be promised.
func (r Report) Proven(a hook.Agent) bool { return r.Called && r.Undone && TooOld(a, r.Version) == "" }

// Lines say what was seen, in the order in which one thing explains the next.
func (r Report) Lines(a hook.Agent) []Line {
	lines := append(r.versionLines(a), r.Standing.Lines(a)...)
	if r.Program == "" {
		return lines
	}
	for i, l := range lines {
		if r.Called && l.Of == "off" && l.Severity == Error {
			lines[i].Severity = Warning // another hook is called, or the agent does not read it here
		}
	}
	return append(lines, r.calledLine(a), r.undoneLine())
}

func (r Report) versionLines(a hook.Agent) []Line {
	old := TooOld(a, r.Version)
	switch {
	case r.Program == "":
		return []Line{{"version", Error, fmt.Sprintf("%s is not installed, or not in PATH: %v", a.Name, r.why), "", NameProgram}}
	case r.Version == "":
		return []Line{{"version", Warning, r.Program + " --version prints no version", "check that it is " + a.Name, ""}}
	case old != "":
		return []Line{{"version", Error, old, Update(a), ""}}
	}
	return []Line{{"version", OK, fmt.Sprintf("%s %s, %s", a.Name, r.Version, r.Program), "", ""}}
}

func (r Report) calledLine(a hook.Agent) Line {
	switch {
	case r.Called:
		return Line{"called", OK, "the hook was called: " + r.call, "", ""}
	case r.outcome.late:
		return Line{"called", Error, "the hook was not called, and the agent did not end in time: " + r.outcome.last, "start " + r.Program + " in this folder, and see what it waits for", ""}
	case !r.Asked:
		return Line{"called", Error, "the hook was not called: the agent has asked no model: " + r.outcome.said(), "start " + r.Program + " in this folder, and see what is missing", ""}
	}
	l := Line{"called", Error, "the hook was not called", r.whyNot(a), ""}
	if len(r.Stands) == 0 {
		l.Command = Install
	}
	return l
}

// whyNot is the likeliest reason why an agent did not call the hook.
func (r Report) whyNot(a hook.Agent) string {
	off := slices.IndexFunc(r.Off, func(o Off) bool { return o.Key != "" && (!r.managed() || o.Managed) })
	switch {
	case len(r.Stands) == 0:
		return ""
	case off >= 0:
		return "remove " + r.Off[off].Key + " from " + r.Off[off].File
	case a.Name == "codex" && r.permissionOnly():
		return "codex exec never asks for permission, so this event cannot be checked: install the hook with --events pretool"
	case a.Name == "codex" && !r.managed():
		return "Codex skips a hook that is not trusted, without a word: start codex in this folder, type /hooks, trust it; again after each change"
	}
	return "look for other settings that switch hooks off: " + keyNames(a) + ", and for policies of your organization"
}

func (r Report) undoneLine() Line {
	switch {
	case r.Undone && r.Called:
		return Line{"undone", OK, "the denied call was not executed", "", ""}
	case r.Undone:
		return Line{"undone", Info, "the call was not executed, but that was not the hook", "", ""}
	case r.Called:
		return Line{"undone", Error, "the call was executed, although the hook denied it", "do not rely on the hook with this version", ""}
	}
	return Line{"undone", Error, "the call was executed: the hook does not hold the agent's calls here", "", ""}
}

// said is the agent's last line, or the error with which it ended.
func (o outcome) said() string {
	switch {
	case o.last != "":
		return o.last
	case o.err != nil:
		return o.err.Error()
	}
	return "it printed nothing"
}
