package config_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/cmd/permesso/config"
)

func TestParseScript(t *testing.T) {
	sc, err := config.ParseScript("/some/where/answers.toml", []byte(`
otherwise = "none"
[[rules]]
match = { tool = "x_*", action_type = "send_message", workspace = "w", title = "*5*", args = { text = "hi", n = "9*" } }
do = "note"
text = "be brief"
delay = "1500ms"
times = 2
[[rules]]
do = "deny"
`))
	require.NoError(t, err)
	require.Equal(t, "answers.toml", sc.Name)
	require.Equal(t, config.ScriptRule{
		Tool: "x_*", ActionType: "send_message", Workspace: "w", Title: "*5*", Args: map[string]string{"text": "hi", "n": "9*"},
		Do: "note", Text: "be brief", Delay: 1500 * time.Millisecond, Times: 2,
	}, sc.Rules[0])
	require.Equal(t, config.ScriptRule{Do: "deny"}, sc.Rules[1], "it matches everything")
	require.Equal(t, "none", sc.Default.Do)
	sc, err = config.ParseScript("empty", nil)
	require.NoError(t, err)
	require.Equal(t, "deny", sc.Default.Do, "the default denies")
}

func TestParseScriptRefuses(t *testing.T) {
	for _, row := range []struct{ why, text, says string }{
		{"an unknown action", "[[rules]]\ndo = \"aprove\"", "f:2:6: do must be approve, session,"},
		{"a misspelled action", "[[rules]]\ndo = \"aprove\"", `hint: did you mean "approve"?`},
		{"no action", "[[rules]]\ntext = \"x\"", "rule has no action"},
		{"an unknown key", "[[rules]]\ndo = \"approve\"\ntool = \"x\"", `f:3:1: unknown key "tool"`},
		{"an unknown key in match", "[[rules]]\ndo = \"approve\"\nmatch = { capability = \"x\" }", `unknown key "capability"`},
		{"an unknown key at the top", "default = \"deny\"", `unknown key "default"`},
		{"the same key twice", "otherwise = \"none\"\notherwise = \"none\"", "not valid TOML"},
		{"approving by default", "otherwise = \"approve\"", "otherwise must be deny or none"},
		{"an override without text", "[[rules]]\ndo = \"override\"", "override needs a text"},
		{"a note without text", "[[rules]]\ndo = \"note\"\ntext = \"\"", "note needs a text"},
		{"a text that would not be sent", "[[rules]]\ndo = \"approve\"\ntext = \"hello\"", "f:3:8: approve has no text"},
		{"a delay without a unit", "[[rules]]\ndo = \"approve\"\ndelay = \"5\"", "delay is not a duration"},
		{"a negative delay", "[[rules]]\ndo = \"approve\"\ndelay = \"-5s\"", "delay must be"},
		{"zero times", "[[rules]]\ndo = \"approve\"\ntimes = 0", "times must be 1 to"},
		{"an empty glob", "[[rules]]\ndo = \"approve\"\nmatch = { tool = \"\" }", "tool is empty"},
		{"a glob that is not a string", "[[rules]]\ndo = \"approve\"\nmatch = { args = { n = 1 } }", "n must be a string"},
		{"one rule, not a list", "[rules]\ndo = \"approve\"", "rules must be an array, not a table"},
		{"a list of numbers", "rules = [1]", "rules must hold tables"},
		{"a text that is too long", "[[rules]]\ndo = \"deny\"\ntext = \"" + strings.Repeat("x", 9000) + "\"", "text is longer than 8192 bytes"},
	} {
		t.Run(row.why, func(t *testing.T) {
			sc, err := config.ParseScript("f", []byte(row.text))
			require.Nil(t, sc)
			require.Contains(t, printed(err), row.says)
		})
	}
	_, err := config.LoadScript(t.TempDir() + "/none.toml")
	require.Contains(t, printed(err), "no such file")
}

func TestScriptRuleMatches(t *testing.T) {
	p := &approval.Pending{
		SourceGroup: "home", ToolName: "x_post", ActionType: "send_message", Agent: approval.Prose{Title: "Post to X"},
		RequestData: approval.Raw(`{"text":"Meeting at 5","n":9007199254740993,"to":["a","b"],"flag":true,"esc":"a\u0062c"}`),
	}
	args := func(name, glob string) config.ScriptRule {
		return config.ScriptRule{Args: map[string]string{name: glob}}
	}
	for _, row := range []struct {
		why  string
		rule config.ScriptRule
		fits bool
	}{
		{"an empty rule matches everything", config.ScriptRule{}, true},
		{"the tool", config.ScriptRule{Tool: "x_post"}, true},
		{"only the start of the tool", config.ScriptRule{Tool: "x_pos"}, false},
		{"a glob for the tool", config.ScriptRule{Tool: "x_*"}, true},
		{"a part in the middle", config.ScriptRule{Tool: "*_*"}, true},
		{"parts in order", config.ScriptRule{Tool: "x*p*t"}, true},
		{"parts out of order", config.ScriptRule{Tool: "*t*p*"}, false},
		{"overlapping parts", config.ScriptRule{Tool: "x_post*t"}, false},
		{"the action type", config.ScriptRule{ActionType: "send_*"}, true},
		{"another workspace", config.ScriptRule{Workspace: "work"}, false},
		{"the title", config.ScriptRule{Title: "*X"}, true},
		{"an argument", args("text", "*at 5"), true},
		{"every digit of a number", args("n", "9007199254740993"), true},
		{"another last digit", args("n", "9007199254740992"), false},
		{"the JSON of a list", args("to", `["a",*`), true},
		{"true", args("flag", "true"), true},
		{"an escaped letter", args("esc", "abc"), true},
		{"a missing argument", args("gone", "*"), false},
		{"both", config.ScriptRule{Tool: "x_post", Args: map[string]string{"text": "*", "n": "9*"}}, true},
		{"one of two", config.ScriptRule{Tool: "x_post", Args: map[string]string{"text": "*", "n": "8*"}}, false},
		{"no other special characters", args("text", "Meeting at [0-9]"), false},
	} {
		t.Run(row.why, func(t *testing.T) { require.Equal(t, row.fits, row.rule.Matches(p)) })
	}
}

// A rule without a known action denies.
func TestScriptRuleZeroDenies(t *testing.T) {
	for _, do := range []string{"", "perhaps"} {
		a, decides := (&config.ScriptRule{Do: do}).Decision(approval.Key{Workspace: "w", ID: "1"})
		require.True(t, decides)
		require.Equal(t, approval.Denied, a.Verdict)
	}
	for _, do := range config.ScriptActions() {
		a, decides := (&config.ScriptRule{Do: do, Text: "t"}).Decision(approval.Key{})
		require.Equal(t, do != "none", decides)
		require.Equal(t, decides, a.Verdict != "")
	}
}
