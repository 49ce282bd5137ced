package main

import (
	"bytes"
	"fmt"
	"os"
	osexec "os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/ipc"
)

// programOf starts permesso run for a source.
func (h *rig) programOf(source string, args ...string) (cmd *osexec.Cmd, out *bytes.Buffer) {
	h.t.Helper()
	out = &bytes.Buffer{}
	cmd = h.command(append([]string{"run", "-", "--requests", h.agent.Requests, "--responses", h.agent.Responses}, args...)...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(source), out, out
	require.NoError(h.t, cmd.Start())
	return cmd, out
}

// alike replaces ids and digests, which differ each time.
func alike(text string) string {
	return regexp.MustCompile(`\b[0-9a-f]{32,64}\b`).ReplaceAllStringFunc(text, func(id string) string { return strings.Repeat("0", len(id)) })
}

// The worked example of approval/program: what plan and run print, and one approval for all. With UPDATE_README=1 the test
// rewrites what they print.
func TestProgramReadme(t *testing.T) {
	t.Parallel()
	file := filepath.Join("..", "..", "approval", "program", "README.md")
	b, err := os.ReadFile(file)
	require.NoError(t, err)
	text := string(b)
	config, source, printed := blocksOf(text, "toml"), blocksOf(text, "python"), blocksOf(text, "text")
	require.Len(t, config, 1)
	require.Len(t, source, 1)
	require.Len(t, printed, 2)
	h := newRig(t, "default", "listen = \"\"\nui = false\n"+config[0])
	plan := h.mustRun("plan", h.file("choir.star", source[0]))

	d := h.serve()
	defer d.stop()
	d.awaitLog(`"serving"`)
	cmd, out := h.programOf(source[0])
	h.mustRun("approve", h.awaitOnePending())
	require.NoError(t, cmd.Wait(), out)
	if os.Getenv("UPDATE_README") != "" {
		text = strings.NewReplacer(printed[0], alike(plan), printed[1], alike(out.String())).Replace(text)
		require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
		return
	}
	require.Equal(t, printed[0], alike(plan))
	require.Equal(t, printed[1], alike(out.String()))
}

// The examples of the manual for agents run, its numbers are the limits, and its error is the one that is printed.
func TestProgramsManual(t *testing.T) {
	t.Parallel()
	var config strings.Builder
	config.WriteString("listen = \"\"\nui = false\n[workspaces.default]\nlimits = { per_minute = 1000 }\n")
	for _, tool := range []struct{ name, more string }{
		{"send_email", `args = { to = "recipients", subject = "text", body = "text" }`},
		{"write_file", `args = { path = "path", content = "text" }`},
		{"fetch", `args = { url = "url" }`},
		{"pay", `args = { to = "text", currency = "text", amount = { type = "amount", currency = "currency" } }`},
	} {
		fmt.Fprintf(&config, `[tools.%s]
trust = false
%s
handler = { kind = "command", argv = ["/bin/echo", "{{\"title\":\"Choir\",\"items\":[\"ada\",\"bea\"]}"] }
[[rules]]
match = { tool = "%[1]s" }
outcome = "allow"
`, tool.name, tool.more)
	}
	h := newRig(t, "default", config.String())
	d := h.serve()
	defer d.stop()
	d.awaitLog(`"serving"`)
	blocks := blocksOf(ipc.ProgramsManual, "python")
	require.Len(t, blocks, 5)
	for i, parts := range []int{1, 1, 2, 2, 1} {
		cmd, out := h.programOf(blocks[i])
		require.NoError(t, cmd.Wait(), "%s%s", blocks[i], out)
		require.Contains(t, out.String(), "\nexecuted: main\n")
		require.Equal(t, parts, strings.Count(out.String(), "submitted program"), out)
		require.NotContains(t, out.String(), "main: refuted")
	}

	const wrong = "line 2: there is no tool send_mail; did you mean send_email?"
	cmd, out := h.programOf("def main():\n    tools.send_mail()\n")
	require.Error(t, cmd.Wait())
	require.Contains(t, out.String(), wrong)
	for _, says := range []string{
		wrong, fmt.Sprintf("| program | %d KiB |", approval.MaxProgram>>10),
		fmt.Sprintf("| calls | %d, with %d KiB of arguments together |", approval.MaxSteps, approval.MaxTrace>>10),
	} {
		require.Contains(t, ipc.ProgramsManual, says)
	}
	require.LessOrEqual(t, strings.Count(ipc.ProgramsManual, "\n"), 120, "one page")
	require.Equal(t, ipc.ProgramsManual, h.mustRun("plan", "--teach"))
}
