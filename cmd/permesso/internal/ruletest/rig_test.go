package ruletest_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/event"
	"github.com/permesso-dev/permesso/approval/gate"
	"github.com/permesso-dev/permesso/cmd/permesso/config"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/home"
	"github.com/permesso-dev/permesso/security/policy"
	"github.com/permesso-dev/permesso/security/secrets"
)

func TestMain(m *testing.M) {
	rome, err := time.LoadLocation("Europe/Rome")
	if err != nil {
		panic(err)
	}
	time.Local = rome // "the zone of this machine"
	if scanner, err = secrets.New(); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}

var scanner *secrets.Scanner

// rig judges requests under one configuration, as the gate does.
type rig struct {
	settings gate.Settings
	config   policy.Config
	engine   *policy.Engine
	scanner  *secrets.Scanner
}

// newRig loads a configuration. With a scanner, secrets count.
func newRig(toml string, s *secrets.Scanner) (*rig, error) {
	c, err := config.Parse("permesso.toml", []byte(toml))
	if err != nil {
		return nil, err
	}
	g := &rig{settings: home.SettingsOf(c), config: c.PolicyConfig(), scanner: s}
	g.engine, err = g.newEngine()
	return g, err
}

func (g *rig) newEngine() (*policy.Engine, error) {
	e := &policy.Engine{Resolve: home.Resolve}
	if g.scanner != nil {
		e.Scan = g.scanner.Scan
	}
	return e, e.Load(g.config)
}

// judged is what became of a request.
type judged struct {
	outcome string
	ruling  approval.Ruling
}

// send judges a request: as the gate does, and as policy alone does, which sees also what
// the gate refuses because of its arguments. An allow of either is an allow.
func (g *rig) send(t *testing.T, q request) judged {
	t.Helper()
	r, err := approval.ParseDraft([]byte(q.json()))
	require.NoError(t, err, q.json())
	e := g.engine
	if len(q.taints) > 0 {
		e, err = g.newEngine()
		require.NoError(t, err)
		e.Learn(event.Entry{Event: event.AutoApproved, Workspace: "personal", SessionID: q.session, Time: q.now, Taints: q.taints})
	}
	facts, atGate := gate.Judge(g.settings, "personal", r, q.now, e.Judge, nil)
	alone := e.Judge(facts)
	if atGate.Rule != gate.NotEvaluated {
		require.Equal(t, atGate.Outcome, alone.Outcome)
	}
	return judged{alone.Outcome.String(), alone}
}

// links makes a folder of files and links.
func links(t *testing.T) string {
	t.Helper()
	folder, err := filepath.EvalSymlinks(t.TempDir())
	require.NoError(t, err)
	for _, dir := range []string{"project/sub", "project/.git/hooks", "project/sub/deeper", "outside/dir", "Case"} {
		require.NoError(t, os.MkdirAll(filepath.Join(folder, dir), 0o700))
	}
	for _, file := range []string{"project/a.txt", "project/sub/b.txt", "project/.env", "outside/secret.txt", "outside/dir/x.txt"} {
		require.NoError(t, os.WriteFile(filepath.Join(folder, file), []byte("x"), 0o600))
	}
	for link, target := range map[string]string{
		"project/out":         folder + "/outside",
		"project/relative":    "../outside",
		"project/file":        folder + "/outside/secret.txt",
		"project/inside":      "sub",
		"project/insidefile":  "sub/b.txt",
		"project/dangling":    folder + "/outside/new.txt",
		"project/deep":        "sub/deeper",
		"project/danglingin":  folder + "/project/new.txt",
		"project/nowhere":     folder + "/nowhere/new.txt",
		"project/loop":        "loop",
		"project/loop1":       "loop2",
		"project/loop2":       "loop1",
		"project/top":         "/",
		"project/proc":        "/proc/self/root",
		"project/cwd":         "/proc/self/cwd",
		"project/up":          "..",
		"project/chain":       "chain2",
		"project/chain2":      "out/dir",
		"entry":               folder + "/project",
		"secrets":             folder + "/outside",
		"project/sub/back":    "../../project/sub",
		"project/.git/config": folder + "/outside/secret.txt",
	} {
		require.NoError(t, os.Symlink(target, filepath.Join(folder, link)))
	}
	return folder
}
