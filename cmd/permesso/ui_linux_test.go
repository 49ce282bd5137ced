package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/console"
	"github.com/permesso-dev/permesso/ipc/client"
)

// pageClient is a minimal browser.
type pageClient struct {
	t      *testing.T
	client *http.Client
	origin string
	base   string // the path of the session
}

// openLink opens a login link as a browser does.
func openLink(t *testing.T, link string) *pageClient {
	jar, err := cookiejar.New(nil)
	require.NoError(t, err)
	u, err := url.Parse(strings.TrimSpace(link))
	require.NoError(t, err)
	r := &pageClient{t: t, client: &http.Client{Jar: jar, Timeout: testTimeout}, origin: "http://" + u.Host}
	code, text, at := r.post("/enter", url.Values{"token": {strings.TrimPrefix(u.Path, "/enter/")}})
	require.Equal(t, http.StatusOK, code, text)
	r.base = at
	return r
}

func (r *pageClient) do(method, path string, form url.Values) (code int, text, at string) {
	if !strings.HasPrefix(path, "/") {
		path = r.base + path
	}
	q, err := http.NewRequestWithContext(r.t.Context(), method, r.origin+path, strings.NewReader(form.Encode()))
	require.NoError(r.t, err)
	if method == http.MethodPost {
		q.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		q.Header.Set("Origin", r.origin)
	}
	resp, err := r.client.Do(q)
	require.NoError(r.t, err)
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	require.NoError(r.t, err)
	return resp.StatusCode, string(b), resp.Request.URL.Path
}

func (r *pageClient) get(path string) (code int, text string) {
	code, text, _ = r.do(http.MethodGet, path, nil)
	return code, text
}

// awaitRow waits until a request is on the list, and returns the page.
func (r *pageClient) awaitRow(id string) string {
	r.t.Helper()
	for end := time.Now().Add(testTimeout); ; time.Sleep(2 * time.Millisecond) {
		if _, text := r.get(""); strings.Contains(text, id) {
			return text
		}
		require.True(r.t, time.Now().Before(end), "%s is not on the list", id)
	}
}

func (r *pageClient) post(path string, form url.Values) (code int, text, at string) {
	return r.do(http.MethodPost, path, form)
}

var shownDigest = regexp.MustCompile(`data-sha="([0-9a-f]{64})"`)

// decide decides the request at a path.
func (r *pageClient) decide(path string, form url.Values) string {
	_, text := r.get(path)
	m := shownDigest.FindStringSubmatch(text)
	require.NotNil(r.t, m, text)
	form.Set("sha", m[1])
	code, text, _ := r.post(path+"/decide", form)
	require.Equal(r.t, http.StatusOK, code, text)
	return text
}

const uiConfig = `ui = "127.0.0.1:0"
[workspaces.personal]
approval_timeout = "1h"
[tools.hello]
dangerous_writes = true
verb = "say hello"
summary = "hello to {name}"
public_source = false
secret_data = false
public_sink = false
reversibility = "reversible"
handler = { kind = "command", argv = ["/bin/echo", "hello"] }
`

// newUIRig is a home and a running daemon with pages.
func newUIRig(t *testing.T, config string) (*rig, *daemonProcess) {
	h := newRig(t, "personal", config)
	d := h.serve()
	d.awaitLog("web UI listening")
	return h, d
}

func (h *rig) submitHello() string {
	id := client.NewID()
	require.NoError(h.t, h.agent.Submit(id, fmt.Appendf(nil, `{"request_id":%q,"tool_name":"hello","request_data":{"name":"<b>ann</b>"}}`, id)))
	return id
}

// A login link is opened, a request is approved and run, and the agent gets the response.
func TestUI(t *testing.T) {
	t.Parallel()
	h, d := newUIRig(t, uiConfig)
	code, out, errs := h.run("", "ui", "--print")
	require.Zero(t, code, errs)
	require.Regexp(t, `^http://127\.0\.0\.1:[0-9]+/enter/[0-9a-f]{64}\n$`, out)
	b := openLink(t, out)
	id := h.submitHello()
	text := b.awaitRow(id)
	require.Contains(t, text, "&lt;b&gt;ann&lt;/b&gt;")
	require.Contains(t, b.decide("r/personal/"+id, url.Values{"code": {"1"}}), "Approved: say hello")
	r := h.awaitResponse(id)
	require.Equal(t, approval.StatusApproved, r.Status)
	require.Equal(t, "web", *r.Decision.Via)
	for _, path := range []string{"", "r/personal/" + id, "history", "audit", "grants", "rules", "workspaces", "help", "like?ws=personal&kind=hello"} {
		code, text := b.get(path)
		require.Equal(t, http.StatusOK, code, path)
		require.NotContains(t, text, "could not be read")
	}
	require.Eventually(t, func() bool { // the response is written before its audit entry
		_, text = b.get("audit?q=" + id)
		return strings.Contains(text, "executed")
	}, testTimeout, 20*time.Millisecond)
	require.Contains(t, text, "approval_requested")
	_, text = b.get("history?q=hello&status=approved")
	require.Contains(t, text, id)
	_, text = b.get("history?q=nothing-of-the-kind")
	require.NotContains(t, text, id)
	_, text, _ = b.post("audit/verify", url.Values{"verify": {"yes"}})
	require.Contains(t, text, "Log OK: ")

	// A pause on the pages applies to the commands, and the reverse.
	_, text, _ = b.post("workspaces/pause", url.Values{"ws": {"personal"}, "reason": {"lunch"}})
	require.Contains(t, text, "lunch")
	_, out, _ = h.run("", "doctor", "--quick")
	require.Contains(t, out, "web UI at "+b.origin)
	_, out, _ = h.run("", "status")
	require.Contains(t, out, "lunch")
	require.Contains(t, out, "web UI  "+b.origin)
	_, _, errs = h.run("", "resume", "personal")
	require.Empty(t, errs)
	_, text = b.get("")
	require.NotContains(t, text, "lunch")

	code, out, _ = h.run("", "ui", "--json")
	require.Zero(t, code)
	var link uiLink
	require.NoError(t, json.Unmarshal([]byte(out), &link))
	require.False(t, link.Opened)
	require.WithinDuration(t, time.Now().Add(time.Minute), link.ExpiresAt, 50*time.Second)
	log := d.logged()
	require.NotContains(t, log, "/enter/")
	require.NotContains(t, log, strings.TrimPrefix(b.base, "/s/")[:32], "the path of a session is half of its key")

	d.stop()
	code, _, errs = h.run("", "ui", "--print")
	require.Equal(t, console.ExitError, code)
	require.Contains(t, errs, "the daemon is not running")
	d = h.serve()
	d.awaitLog("web UI listening")
	resp, err := b.client.Get(b.origin + b.base)
	if err == nil { // the port is the same again, or closed
		require.Equal(t, http.StatusForbidden, resp.StatusCode)
		require.NoError(t, resp.Body.Close())
	}
}

// awaitResponse waits for the response of a request.
func (h *rig) awaitResponse(id string) *approval.Response {
	h.t.Helper()
	for end := time.Now().Add(testTimeout); ; time.Sleep(2 * time.Millisecond) {
		if b, err := os.ReadFile(filepath.Join(h.agent.Responses, id+".json")); err == nil {
			r, err := approval.ParseResponse(b)
			require.NoError(h.t, err)
			return r
		}
		require.True(h.t, time.Now().Before(end), "no response to %s", id)
	}
}

// An "always" approval is revoked with one tap; the next request is asked again.
func TestUIUndo(t *testing.T) {
	t.Parallel()
	h, _ := newUIRig(t, uiConfig)
	_, link, _ := h.run("", "ui", "--print")
	b := openLink(t, link)
	id := h.submitHello()
	(&multiUserRig{rig: h}).awaitFile(filepath.Join(h.layout.Pendings("personal"), id+".json"))
	b.decide("r/personal/"+id, url.Values{"code": {"6"}})
	h.awaitResponse(id)
	require.Equal(t, approval.StatusAutoApproved, h.awaitResponse(h.submitHello()).Status)
	_, text := b.get("grants")
	require.Contains(t, text, "g-"+id)
	_, text, _ = b.post("r/personal/"+id+"/undo", url.Values{"undo": {"yes"}})
	require.Contains(t, text, "id=\"note\"")
	again := h.submitHello()
	(&multiUserRig{rig: h}).awaitFile(filepath.Join(h.layout.Pendings("personal"), again+".json"))
	_, text = b.get("grants")
	require.Contains(t, text, "revoked")
}

func TestUIReadOnlyAndOff(t *testing.T) {
	t.Parallel()
	h, d := newUIRig(t, "local_decisions = false\n"+uiConfig)
	_, link, errs := h.run("", "ui", "--print")
	require.Empty(t, errs)
	b := openLink(t, link)
	id := h.submitHello()
	d.awaitLog(`"message":"asked"`)
	path := "r/personal/" + id
	_, text := b.get(path)
	require.Contains(t, text, "not decide it here")
	require.NotContains(t, text, `name="code"`)
	for _, code := range []string{"1", "2", "3", "6", "?"} {
		require.Contains(t, b.decide(path, url.Values{"code": {code}, "text": {"why me and not you"}, "sure": {"yes"}}), "not an approver here", code)
	}
	_, err := os.Stat(filepath.Join(h.layout.Decisions("personal"), id+".json"))
	require.ErrorIs(t, err, os.ErrNotExist)
	d.stop()

	require.NoError(t, os.WriteFile(h.config, []byte(strings.Replace(uiConfig, `"127.0.0.1:0"`, "false", 1)), 0o600))
	d = h.serve()
	d.awaitLog(`"message":"serving"`)
	code, _, errs := h.run("", "ui")
	require.Equal(t, console.ExitError, code)
	require.Contains(t, errs, "the daemon serves no web UI\nhint: check ui in permesso.toml")
	require.NotContains(t, d.logged(), "web UI listening")
}

// If the default port is in use, the daemon takes another one. If the configuration names it, the daemon exits.
func TestUIPortTaken(t *testing.T) {
	t.Parallel()
	h := newRig(t, "default", "")
	var d *daemonProcess
	for {
		taken, err := net.Listen("tcp", "127.0.0.1:8766")
		if err == nil {
			defer taken.Close()
		} // on error another process has the port, which serves the test as well
		d = h.serve()
		d.awaitLog("web UI listening")
		if strings.Contains(d.logged(), "web UI uses another port") {
			break
		}
		require.Error(t, err, "the daemon got a port that the test holds")
		d.stop()
	}
	_, link, errs := h.run("", "ui", "--print")
	require.Empty(t, errs)
	require.NotContains(t, link, ":8766/")
	code, _ := openLink(t, link).get("")
	require.Equal(t, http.StatusOK, code)
	d.stop()
	ours, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer ours.Close()
	require.NoError(t, os.WriteFile(h.config, fmt.Appendf(nil, "ui = %q", ours.Addr()), 0o600))
	code, _, errs = h.run("", "serve")
	require.Equal(t, console.ExitError, code)
	require.Contains(t, errs, "set ui to another address, or to false to turn it off")
}

// A login link through the socket is for the approver with the peer's UID, who sees
// only their workspaces. The operator sees all.
func TestUIUsers(t *testing.T) {
	t.Parallel()
	v := newMultiUserRig(t)
	v.configure("ui = \"127.0.0.1:0\"\n" + fmt.Sprintf(multiUserConfig, v.socket, v.ann))
	d := v.startServing()
	d.awaitLog("web UI listening")
	annes, bobs := v.submitAndAwait("annes"), v.submitAndAwait("bobs")
	code, link, errs := v.runAs(v.ann, "ui", "--print")
	require.Zero(t, code, errs)
	b := openLink(t, link)
	text := b.awaitRow(annes)
	require.Contains(t, text, "richiesta in attesa", "ann's own language")
	if v.root {
		require.NotContains(t, text, bobs)
		require.Contains(t, text, "Accesso eseguito come ann")
		for _, path := range []string{"r/bobs/" + bobs, "r/annes/" + bobs} {
			code, _ := b.get(path)
			require.Equal(t, http.StatusNotFound, code)
		}
		_, text = b.get("audit")
		require.NotContains(t, text, bobs)
		_, text = b.get("workspaces")
		require.NotContains(t, text, `id="ws-bobs"`)
		for form, ws := range map[string]string{"": "", "bobs": "bobs"} {
			code, _, _ := b.post("workspaces/pause", url.Values{"ws": {ws}})
			require.Equal(t, http.StatusForbidden, code, form)
		}
		for _, uid := range []int{uidStranger, uidAgent} {
			code, out, errs := v.runAs(uid, "ui", "--print")
			require.Equal(t, console.ExitRefused, code)
			require.Empty(t, out)
			require.Regexp(t, strangerLine, errs)
		}
	}
	b.decide("r/annes/"+annes, url.Values{"code": {"1"}, "sure": {"yes"}})
	v.agent = client.Files{Requests: v.layout.Requests("annes"), Responses: v.layout.Responses("annes")}
	r := v.awaitResponse(annes)
	require.Equal(t, "ann", *r.Decision.By)

	code, link, errs = v.run("", "ui", "--print")
	require.Zero(t, code, errs)
	if v.root { // the operator's own link
		openLink(t, link).awaitRow(bobs)
	}
}

// A token must not be in an argument list, so the browser opens a file.
func TestUIOpensAFile(t *testing.T) {
	t.Parallel()
	h, _ := newUIRig(t, uiConfig)
	bin, run := t.TempDir(), t.TempDir()
	require.NoError(t, os.Chmod(run, 0o700))
	seen := filepath.Join(bin, "seen")
	script := "#!/bin/sh\nprintf '%s\\n' \"$*\" >" + seen + ".new\nmv " + seen + ".new " + seen + "\n"
	require.NoError(t, writeProgram(filepath.Join(bin, "xdg-open"), script, 0o755))
	cmd := h.command("ui")
	cmd.Env = append(cmd.Env, "DISPLAY=:9", "XDG_RUNTIME_DIR="+run, "PATH="+bin+":"+os.Getenv("PATH"))
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.Contains(t, string(out), "opened in your browser")
	(&multiUserRig{rig: h}).awaitFile(seen)
	b, err := os.ReadFile(seen)
	require.NoError(t, err)
	file := filepath.Join(run, "permesso-ui.html")
	require.Equal(t, file+"\n", string(b))
	info, err := os.Stat(file)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode().Perm())
	b, err = os.ReadFile(file)
	require.NoError(t, err)
	link := regexp.MustCompile(`http://[^"]+`).FindString(string(b))
	code, _ := openLink(t, link).get("")
	require.Equal(t, http.StatusOK, code)
	cmd = h.command("ui")
	cmd.Env = append(cmd.Env, "DISPLAY=", "WAYLAND_DISPLAY=")
	out, err = cmd.Output()
	require.NoError(t, err)
	require.Regexp(t, `^http://[^ \n]+\n$`, string(out), "no browser without a display")
}

// A request that was decided elsewhere leaves an open list at once, not after its
// run.
func TestUIShowsDecisionsMadeElsewhere(t *testing.T) {
	t.Parallel()
	h, d := newUIRig(t, strings.Replace(uiConfig, `argv = ["/bin/echo", "hello"]`, `argv = ["/bin/sleep", "600"], timeout = "10m"`, 1))
	_, link, _ := h.run("", "ui", "--print")
	b := openLink(t, link)
	id := h.submitHello()
	b.awaitRow(id)
	code, _, errs := h.run("", "approve", id)
	require.Zero(t, code, errs)
	for end := time.Now().Add(testTimeout); ; time.Sleep(5 * time.Millisecond) {
		if _, text := b.get(""); !strings.Contains(text, id) {
			break
		}
		require.True(t, time.Now().Before(end), "what was decided is still on the list")
	}
	_, text := b.get("r/personal/" + id)
	require.Contains(t, text, `data-state="decided:approved"`)
	_, err := os.Stat(filepath.Join(h.agent.Responses, id+".json"))
	require.ErrorIs(t, err, os.ErrNotExist, "it still runs")
	d.kill()
}

// With a scripted approver there are no pages.
func TestUIOffWithAScript(t *testing.T) {
	t.Parallel()
	h := newRig(t, "personal", uiConfig)
	script := filepath.Join(h.dir, "script.toml")
	require.NoError(t, os.WriteFile(script, []byte("[[rules]]\ndo = \"deny\""), 0o600))
	d := h.start(h.command("serve", "--script", script))
	d.awaitLog(`"message":"serving"`)
	require.Equal(t, approval.StatusDenied, h.awaitResponse(h.submitHello()).Status) // the daemon is completely started
	code, _, errs := h.run("", "ui", "--print")
	require.Equal(t, console.ExitError, code)
	require.Contains(t, errs, "the daemon serves no web UI")
}
