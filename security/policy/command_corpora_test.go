package policy_test

import (
	"encoding/json"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/grant"
	"github.com/permesso-dev/permesso/security/policy"
)

// corpus reads a file of shared test data, or the project's own lines. CI needs the
// shared file.
func corpus(t *testing.T, name string) []string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("../../../shared/corpora", name))
	if err != nil {
		require.Empty(t, os.Getenv("CI"), "CI needs the corpora: %v", err)
		b, err = os.ReadFile(filepath.Join("../../testdata/policy", name))
		require.NoError(t, err)
	}
	return strings.Split(strings.TrimRight(string(b), "\n"), "\n")
}

func command(line string) approval.Raw {
	b, _ := json.Marshal(map[string]string{"command": line}) // never fails
	return b
}

// execFacts is a release-only request to run a command.
func execFacts(args approval.Raw) approval.Facts {
	f := factsFor("")
	f.Tool, f.KnownTool, f.ToolSHA256, f.Targeted, f.Target = "", false, "", false, ""
	f.Trust, f.ActionType, f.Args = approval.Trust{}, "exec_cmd", args
	return f
}

// everyday are the lines of the tldr corpus, with plain words for what the reader fills in.
func everyday(t *testing.T) (lines []string) {
	t.Helper()
	for _, line := range corpus(t, "tldr-sample.txt") {
		line = alternatives.ReplaceAllString(line, "$1")
		lines = append(lines, strings.NewReplacer("{{", "", "}}", "").Replace(line))
	}
	return lines
}

// alternatives are the two names of an option: {{[-a|--all]}}.
var alternatives = regexp.MustCompile(`\{\{\[([^|\]]*)\|[^\]]*\]\}\}`)

// remember grants a command line, exactly and as the pattern that is suggested for it.
func remember(t *testing.T, e *policy.Engine, line string) (exact, pattern bool) {
	t.Helper()
	f := execFacts(command(line))
	f.RequestID = approval.Digest([]byte(line))[:32]
	exact = approved(t, e, f, approval.Always) != nil
	f.RequestID = approval.Digest([]byte("pattern " + line))[:32]
	p := &approval.Pending{RequestID: f.RequestID, ShortID: f.RequestID[:8], Offers: e.Offers(f, execRuling(f))}
	if o, ok := p.Offer(approval.Commands); ok {
		addGrants(t, e, *grant.From(p, &approval.Decision{
			Verdict: approval.Approved, Scope: approval.Always, Commands: o.Terms.Words, DecidedBy: "ann", DecidedAt: f.Now,
		}))
		pattern = true
	}
	return exact, pattern
}

// execRuling is the ruling of a request that no grant covers.
func execRuling(f approval.Facts) approval.Ruling { return (&policy.Engine{}).Judge(f) }

func allowed(e *policy.Engine, args approval.Raw) bool {
	return e.Judge(execFacts(args)).Outcome == approval.Allow
}

// Every everyday line, granted exactly and as a pattern, covers no GTFOBins entry.
func TestEverydayGrantsCoverNoAbuse(t *testing.T) {
	e, exact, patterns := engine(t, policy.Config{}), 0, 0
	for _, line := range everyday(t) {
		again, pattern := remember(t, e, line)
		if again {
			exact++
			require.True(t, allowed(e, command(line)), line)
		}
		if pattern {
			patterns++
		}
	}
	t.Logf("grants cover %d lines exactly, %d as patterns", exact, patterns)
	require.Greater(t, patterns, 20)
	tried := 0
	for _, entry := range corpus(t, "gtfobins-sample.txt") {
		_, quoted, ok := strings.Cut(entry, "\t")
		require.True(t, ok, entry)
		for _, code := range unquoted(t, quoted) {
			tried++
			r := e.Judge(execFacts(command(code)))
			require.NotEqual(t, approval.Allow, r.Outcome, "%q: %v", code, r.Reasons)
		}
	}
	require.NotZero(t, tried)
}

// What a command must not become: with another option, program, path, environment, working
// directory, or quotes, or as a part of a line.
func variations(line string) (all []approval.Raw) {
	words := strings.Fields(line)
	insert := func(i int, more ...string) {
		all = append(all, command(strings.Join(slices.Concat(words[:i], more, words[i:]), " ")))
	}
	for i := range len(words) + 1 {
		for _, w := range []string{
			"--exec=sh", "-x", "'-x'", "NAME=value", "ext::sh", "/etc/shadow", "../../x", "a/../../x", "~/.ssh/id", "'~/x'", "@file", "+x", "sh",
			"python3", "https://evil.example", "evil.example:x", "u@evil.example:", "'$(id)'", "$X", "'a b'", "''", "*", "!x", "'a;b'", "\u00a0", "vim",
		} {
			insert(i, w)
		}
		insert(i, "--exec", "x")
		insert(i, "-exec", "sh")
	}
	for _, form := range []string{
		"%s | sh", "%s; id", "%s & id", "%s && id", "%s > x", "%s < x", "%s $(id)", "%s `id`", "x | %s", "(%s)", "! %s", "time %s", "env %s", "sudo %s",
		"X=1 %s", "LD_PRELOAD=x %s", "./%s", "/tmp/%s", "../%s", "bin/%s", "/usr/bin/../../tmp/%s", "sh -c '%s'", "eval '%s'", "%s # x", "%s\nid", "\\%s",
	} {
		all = append(all, command(strings.Replace(form, "%s", line, 1)))
	}
	quoted, _ := json.Marshal(line) // never fails
	for _, more := range []string{`"cwd":"/etc"`, `"env":{"PATH":"/tmp"}`, `"stdin":"x"`, `"argv":["id"]`, `"Command":"id"`} {
		all = append(all, approval.Raw(`{"command":`+string(quoted)+`,`+more+`}`))
	}
	if len(words) > 1 {
		all = append(all, approval.Raw(`{"argv":[`+string(quoted)+`]}`))
	}
	return append(all, approval.Raw(`{"cmd":`+string(quoted)+`,"cwd":"/etc"}`))
}

// make test tries a twentieth of the lines. PERMESSO_SEED repeats a run.
func TestEverydayGrantsCoverNoVariation(t *testing.T) {
	seed, err := strconv.ParseUint(os.Getenv("PERMESSO_SEED"), 10, 64)
	if err != nil {
		seed = rand.Uint64()
	}
	t.Logf("PERMESSO_SEED=%d", seed)
	tried := 0
	for i, line := range everyday(t) {
		if uint64(i)%20 != seed%20 && os.Getenv("PERMESSO_SOAK") == "" {
			continue
		}
		e := engine(t, policy.Config{})
		if again, pattern := remember(t, e, line); !again && !pattern {
			continue
		}
		for _, args := range variations(line) {
			if string(args) == string(command(line)) {
				continue
			}
			tried++
			require.False(t, allowed(e, args), "%q covers %s", line, args)
		}
	}
	t.Logf("%d variations", tried)
	require.NotZero(t, tried)
}

// unquoted parses a Python string literal and returns each line and all of it.
func unquoted(t *testing.T, lit string) []string {
	t.Helper()
	body := lit[1 : len(lit)-1]
	if lit[0] == '\'' {
		body = strings.ReplaceAll(strings.ReplaceAll(body, `\'`, `'`), `"`, `\"`)
	}
	s, err := strconv.Unquote(`"` + body + `"`)
	require.NoError(t, err, lit)
	return append(strings.Split(s, "\n"), s)
}
