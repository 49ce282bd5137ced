package doctor

import (
	"context"
	"os"

	"github.com/permesso-dev/permesso/cmd/permesso/internal/console"
	"github.com/permesso-dev/permesso/ipc/hook"
	hookcheck "github.com/permesso-dev/permesso/ipc/hook/check"
)

// checkHooks reports, for each agent whose settings have our hook, what stays open there and which file of this folder
// switches hooks off. With Hooks it starts the agents, too.
func (d *Doctor) checkHooks(ctx context.Context) (list []Finding) {
	place := hookcheck.Place{Env: d.app.Env}
	var err error
	if place.Home, err = os.UserHomeDir(); err != nil {
		return nil // a service, which no agent has
	}
	if place.Project, err = os.Getwd(); err != nil {
		return findingsOf(SeverityWarning, "", err)
	}
	for _, name := range hook.Agents() {
		a, _ := hook.AgentNamed(name)
		if s := place.Standing(a); len(s.Stands) > 0 {
			list = append(list, d.checkHook(ctx, a, place, s)...)
		}
	}
	return list
}

func (d *Doctor) checkHook(ctx context.Context, a hook.Agent, place hookcheck.Place, s hookcheck.Standing) (list []Finding) {
	lines := s.Lines(a)
	if d.Hooks {
		tell := func(doing string) { d.app.Status(console.OneLine(doing)) }
		r, err := hookcheck.Check{Place: place, Agent: a, Environ: os.Environ(), Progress: tell}.Run(ctx)
		switch {
		case err != nil:
			list = findingsOf(SeverityWarning, "", err)
		case r.Program == "":
			list = notice(a.Name+" is not installed, or not in PATH: its hook was not tried", "permesso hook check "+a.Name+" --program PATH")
		default:
			lines = r.Lines(a)
		}
	}
	for _, l := range lines {
		list = append(list, Finding{Severity: severityOf[l.Severity], What: a.Name + ": " + console.OneLine(l.What), Cure: console.HookHint(a.Name, l)})
	}
	return list
}

var severityOf = map[hookcheck.Severity]Severity{
	hookcheck.OK: SeverityOK, hookcheck.Info: SeverityInfo, hookcheck.Warning: SeverityWarning, hookcheck.Error: SeverityError,
}
