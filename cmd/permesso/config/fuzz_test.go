package config_test

import (
	"strings"
	"testing"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/cmd/permesso/config"
)

// FuzzParse puts a token between the fuzzer's inputs. No error may print it, and
// an accepted configuration must be usable.
func FuzzParse(f *testing.F) {
	const planted = "hunter2hunter2"
	const line = "\ntoken = \"" + planted + "\"\n"
	f.Add("", "")
	f.Add(config.Example(), config.Example())
	f.Add("[workspaces.w]\napprovers = [\"ann\"]\nprincipal = \"ann\"\n[approvers.ann]\ntelegram = 1\nemail = \"Ann@Example.org\"\nlocal = 1000\n[approvers.bob]\n", "[tools.t]\nhandler = { kind = \"command\", argv = [\"/x\", \"{y}\"] }")
	f.Add(httpTool, "[tools.t]\nhandler = { kind = \"http\", method = \"GET\", url = \"https://")
	f.Add("[workspaces.w]\nautonomy = \"\"\"", "\"\"\"")
	f.Add("[workspaces.w]\napprovers = [\"\"\"", "\"\"\"]")
	f.Add("[[rules]]\nmatch = { tool = '''", "''' }\noutcome = \"ask\"")
	f.Add("[tools.t]\nhandler = { kind = \"command\", ", "}")
	f.Add("[tools.t]\nverb = {", "}")
	f.Add("[channels.telegram]", "")
	f.Add("a = [", "]")
	f.Add("gate = \"x", "y\"")
	f.Add("[workspaces.w]\napproval_timeout = 5", "limits = { pending = 9999999999999999999 }")
	f.Add("a = 1e999\n[[a]]", "a.b.c = 1\n[a.b]")
	f.Fuzz(func(t *testing.T, before, after string) {
		// The fuzzer may find the token itself.
		if strings.Contains(before, planted) || strings.Contains(after, planted) {
			return
		}
		if _, err := config.Parse("p.toml", []byte(before+line+after)); err != nil && strings.Contains(printed(err), planted) {
			t.Fatalf("the error quotes another line: %s", err)
		}
		c, err := config.Parse("p.toml", []byte(before+"\n"+after))
		if err != nil {
			return
		}
		for ws, w := range c.Workspaces {
			if name := c.Approver(approval.Person{}); name != "" || w.Timeout <= 0 || w.MaxTimeout < w.Timeout || w.Limits.Pending <= 0 {
				t.Fatalf("workspace %q is not usable: %+v", ws, w)
			}
		}
	})
}
