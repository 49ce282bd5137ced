package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	osexec "os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/chat/telegram/botapi"
)

// conformanceSuites are installed below modules, with the Node that they need.
func conformanceSuites(t *testing.T) (node, modules string) {
	t.Helper()
	dir, err := botapi.Install(t.Context(), "mcp-conformance", os.DirFS("../../testdata/mcp/conformance"))
	require.NoError(t, err, "hint: this needs npm and a reachable registry")
	modules = filepath.Join(dir, "node_modules")
	node = filepath.Join(modules, "node-linux-"+map[string]string{"amd64": "x64", "arm64": "arm64"}[runtime.GOARCH], "bin", "node")
	require.FileExists(t, node)
	return node, modules
}

// The conformance suites for servers: the stable one for 2025-11-25, the one before its release for 2026-07-28. What fails
// as expected stands in testdata/mcp/conformance, with the reason; the suites fail if anything there passes.
func TestMCPConformance(t *testing.T) {
	t.Parallel()
	node, modules := conformanceSuites(t)
	h := newMCPRig(t)
	d := h.serve()
	d.awaitLog(`"serving"`)
	_, key, _ := h.run("", "key", "create", "default")
	found := listenPattern.FindStringSubmatch(d.logged())
	require.NotNil(t, found)

	// The suites send no key. The proxy has connections of its own: a server of another test that ends closes the idle ones of
	// the default transport.
	var own string
	pass := &httputil.ReverseProxy{FlushInterval: -1, Transport: &http.Transport{DisableKeepAlives: true}, Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(&url.URL{Scheme: "http", Host: found[1]})
		if r.Out.Host = r.In.Host; r.In.Host == own {
			r.Out.Host = found[1]
		}
		r.Out.Header.Set("Authorization", "Bearer "+strings.TrimSpace(key))
	}}
	proxy := httptest.NewUnstartedServer(wholeRequests(pass))
	own = proxy.Listener.Addr().String()
	proxy.Start()
	t.Cleanup(proxy.Close)

	for _, row := range []struct{ suite, version string }{{"conformance-stable", "2025-11-25"}, {"conformance-next", "2026-07-28"}} {
		t.Run(row.version, func(t *testing.T) {
			expected, err := filepath.Abs("../../testdata/mcp/conformance/expected-" + row.version + ".yml")
			require.NoError(t, err)
			args := []string{filepath.Join(modules, row.suite, "dist", "index.js"), "server", "--url", proxy.URL + "/mcp", "--expected-failures", expected}
			if row.suite == "conformance-next" {
				args = append(args, "--requirements", row.version)
			}
			dir := t.TempDir()
			cmd := osexec.Command(node, append(args, "--output-dir", dir)...)
			cmd.Dir = dir
			out, err := cmd.CombinedOutput()
			if err != nil {
				t.Log(unexpected(t, string(out), dir))
			}
			require.NoError(t, err, "%s", lastLines(string(out), 60))
			require.Contains(t, string(out), "tools-list", "it ran")
		})
	}
}

// TestMCPConformanceGateway runs the suites against the Go SDK's own server for them: by itself, and behind the gateway with
// a policy that allows every call. What fails in both stands in testdata/mcp/conformance/gateway-VERSION.yml, what differs
// here.
func TestMCPConformanceGateway(t *testing.T) {
	t.Parallel()
	node, modules := conformanceSuites(t)
	server := everythingServer(t)
	h := newRig(t, "default", "")
	allowEverything(t, h, server)
	h.serve().awaitLog(`"serving"`)
	for _, row := range []struct {
		suite, version string
		scenarios      int
		differ         map[string]string // by itself -> behind the gateway
	}{
		{"conformance-stable", "2025-11-25", 30, map[string]string{}},
		{"conformance-next", "2026-07-28", 50, map[string]string{
			// On standard streams the server takes a request without _meta for one of an older client; the gateway refuses it.
			"server-stateless/sep-2575-request-meta-invalid-missing-meta":             "FAILURE -> SUCCESS",
			"server-stateless/sep-2575-request-meta-invalid-missing-protocol-version": "FAILURE -> SUCCESS",
			"server-stateless/sep-2575-http-server-meta-invalid-400":                  "FAILURE FAILURE SUCCESS -> SUCCESS SUCCESS SUCCESS",
		}},
	} {
		t.Run(row.version, func(t *testing.T) {
			expected, err := filepath.Abs("../../testdata/mcp/conformance/gateway-" + row.version + ".yml")
			require.NoError(t, err)
			results := func(t *testing.T, start func() *osexec.Cmd) map[string]string {
				dir := t.TempDir()
				args := []string{filepath.Join(modules, row.suite, "dist", "index.js"), "server", "--url", newBridge(t, start), "--expected-failures", expected, "--output-dir", dir}
				if row.suite == "conformance-next" {
					args = append(args, "--requirements", row.version)
				}
				cmd := osexec.Command(node, args...)
				cmd.Dir = dir
				out, err := cmd.CombinedOutput()
				require.NoError(t, err, "%s", lastLines(string(out), 80))
				return checksIn(t, dir, row.scenarios)
			}
			direct := results(t, func() *osexec.Cmd { return osexec.Command(server) })
			through := results(t, func() *osexec.Cmd {
				return h.command("mcp", "proxy", "--server", "everything", "--sampling", "--roots", "--", server)
			})
			differ := map[string]string{}
			for name := range through {
				if direct[name] != through[name] {
					differ[name] = direct[name] + " -> " + through[name]
				}
			}
			for name := range direct {
				if _, has := through[name]; !has {
					differ[name] = direct[name] + " -> nothing"
				}
			}
			require.Equal(t, row.differ, differ)
		})
	}
}

// everythingServer builds the SDK's server for the suites, from a copy with one change. The SDK ends, with a
// subscriptions/listen, also the later ones of its session. Over HTTP each has a session of its own; behind the bridge they
// share one, and if the suite cancels a listen and opens the next, that one may hear nothing.
func everythingServer(t *testing.T) string {
	t.Helper()
	const module = "github.com/modelcontextprotocol/go-sdk"
	found, err := osexec.Command("go", "list", "-m", "-f", "{{.Dir}}", module).Output()
	require.NoError(t, err)
	dir := t.TempDir()
	sdk, mod, server := filepath.Join(dir, "sdk"), filepath.Join(dir, "go.mod"), filepath.Join(dir, "everything-server")
	require.NoError(t, os.CopyFS(sdk, os.DirFS(strings.TrimSpace(string(found)))))
	source := filepath.Join(sdk, "mcp", "server.go")
	text, err := os.ReadFile(source)
	require.NoError(t, err)
	end := regexp.MustCompile(`\t\tdelete\((s\.\w+ChangeSubscriptions), req\.Session\)\n`)
	require.Len(t, end.FindAll(text, -1), 3, "is the SDK mended? then use it as it is")
	text = end.ReplaceAll(text, []byte("\t\tif $1[req.Session] == requestID {\n\t\t\tdelete($1, req.Session)\n\t\t}\n"))
	require.NoError(t, os.WriteFile(source, text, 0o600))
	for _, name := range []string{"go.mod", "go.sum"} {
		text, err := os.ReadFile(filepath.Join("..", "..", name))
		require.NoError(t, err)
		if name == "go.mod" {
			text = append(text, "\nreplace "+module+" => "+sdk+"\n"...)
		}
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), text, 0o600))
	}
	out, err := osexec.Command("go", "build", "-buildvcs=false", "-modfile", mod, "-o", server, module+"/conformance/everything-server").CombinedOutput()
	require.NoError(t, err, "%s", out)
	return server
}

// unexpected is what the checks of the scenarios say that failed and are not expected to.
func unexpected(t *testing.T, out, dir string) string {
	t.Helper()
	var all strings.Builder
	_, names, _ := strings.Cut(out, "Unexpected failures")
	for _, name := range unexpectedName.FindAllStringSubmatch(names, -1) {
		files, err := filepath.Glob(filepath.Join(dir, "server-"+name[1]+"-*", "checks.json"))
		require.NoError(t, err)
		for _, file := range files {
			text, err := os.ReadFile(file)
			require.NoError(t, err)
			fmt.Fprintf(&all, "%s: %s\n", name[1], text)
		}
	}
	return all.String()
}

var unexpectedName = regexp.MustCompile(`(?m)^ *✗ (\S+)`)

// checksIn are the results of each check of each scenario, in their order.
func checksIn(t *testing.T, dir string, scenarios int) map[string]string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*", "checks.json"))
	require.NoError(t, err)
	require.Len(t, files, scenarios)
	results := map[string]string{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		var checks []struct{ ID, Status string }
		require.NoError(t, json.Unmarshal(text, &checks))
		scenario := scenarioFolder.FindStringSubmatch(filepath.Base(filepath.Dir(file)))
		require.NotNil(t, scenario, file)
		for _, c := range checks {
			name := scenario[1] + "/" + c.ID
			results[name] = strings.TrimSpace(results[name] + " " + c.Status)
		}
	}
	return results
}

var scenarioFolder = regexp.MustCompile(`^server-(.*)-\d{4}-\d\d-\d\dT`)

// allowEverything declares each tool of the server as one that can do no harm.
func allowEverything(t *testing.T, h *rig, server string) {
	t.Helper()
	list, err := h.connectMCP("2025-11-25", &mcp.CommandTransport{Command: osexec.Command(server)}).session.ListTools(t.Context(), nil)
	require.NoError(t, err)
	var config strings.Builder
	config.WriteString("listen = \"\"\nui = false\n[workspaces.default]\nlimits = { per_minute = 100000 }\n")
	for _, tool := range append(list.Tools, &mcp.Tool{Name: "__transient_tool_for_list_changed"}) { // which a call adds
		var args []string
		if schema, ok := tool.InputSchema.(map[string]any); ok {
			properties, _ := schema["properties"].(map[string]any)
			for name := range properties {
				args = append(args, name+` = { type = "json", optional = true }`)
			}
		}
		fmt.Fprintf(&config, "[mcp.everything.tools.%s]\ntrust = false\nargs = { %s }\n", tool.Name, strings.Join(args, ", "))
	}
	require.NoError(t, os.WriteFile(h.config, []byte(config.String()), 0o600))
}
