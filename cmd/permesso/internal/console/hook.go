package console

import "github.com/permesso-dev/permesso/ipc/hook/check"

// hookCommands are what an operator runs about a hook, by the class of the advice; each is followed by the agent's name.
var hookCommands = map[check.Command][2]string{
	check.Install:        {"permesso hook install "},
	check.InstallManaged: {"or sudo permesso hook install ", " --managed"},
	check.TryIt:          {"permesso hook check ", " tries what holds"},
	check.NameProgram:    {"permesso hook check ", " --program PATH"},
}

// HookHint is what an operator can do about a line of the check of an agent's hook, or "".
func HookHint(agent string, l check.Line) string {
	command := ""
	if around, ok := hookCommands[l.Command]; ok {
		command = around[0] + agent + around[1]
	}
	return OneLine(Hints(l.Hint, command))
}
