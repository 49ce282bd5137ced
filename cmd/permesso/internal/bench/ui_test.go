package bench

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const uiWaiting = 500

const uiConfig = `ui = "127.0.0.1:0"
listen = ""
[workspaces.default]
limits = { pending = 10000 }
[tools.none]
dangerous_writes = true
args = { text = "text" }
public_source = false
secret_data = false
public_sink = false
reversibility = "reversible"
handler = { kind = "none" }
`

// tab is one browser with a session.
type tab struct {
	client       *http.Client
	origin, base string
}

// openTab gets a login link from the real program and opens it.
func (r *rig) openTab() (*tab, error) {
	out, err := r.program("ui", "--print")
	if err != nil {
		return nil, fmt.Errorf("get login link: %w", err)
	}
	link, err := url.Parse(out)
	if err != nil {
		return nil, errors.New("get login link: invalid output")
	}
	jar, err := cookiejar.New(nil)
	if err != nil {
		return nil, err
	}
	t := &tab{origin: "http://" + link.Host, client: &http.Client{Jar: jar, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}}
	t.base, err = t.post("/enter", url.Values{"token": {strings.TrimPrefix(link.Path, "/enter/")}})
	return t, err
}

// post sends a form and returns the target of the redirect.
func (t *tab) post(path string, form url.Values) (to string, err error) {
	r, err := http.NewRequest(http.MethodPost, t.origin+path, strings.NewReader(form.Encode()))
	if err != nil {
		return "", err
	}
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	r.Header.Set("Origin", t.origin)
	resp, err := t.client.Do(r)
	if err != nil {
		return "", err
	}
	_ = resp.Body.Close()
	if resp.StatusCode != http.StatusSeeOther {
		return "", fmt.Errorf("post %s: %d", path, resp.StatusCode)
	}
	return resp.Header.Get("Location"), nil
}

func (t *tab) get(path string) (text string, took time.Duration, err error) {
	began := time.Now()
	resp, err := t.client.Get(t.origin + t.base + path)
	if err != nil {
		return "", 0, err
	}
	defer resp.Body.Close()
	page, err := io.ReadAll(resp.Body)
	return string(page), time.Since(began), err
}

// listen returns the lines of the event stream.
func (t *tab) listen(query string) (<-chan string, error) {
	resp, err := t.client.Get(t.origin + t.base + "events?" + query) //nolint:bodyclose // it stays open as long as the daemon runs
	if err != nil {
		return nil, err
	}
	lines := make(chan string, 1000)
	go func() {
		defer close(lines)
		in := bufio.NewScanner(resp.Body)
		in.Buffer(nil, 16<<20)
		for in.Scan() {
			lines <- in.Text()
		}
	}()
	return lines, nil
}

// attrValue returns the text between mark and the next quotation mark.
func attrValue(text, mark string) string {
	_, rest, _ := strings.Cut(text, mark)
	value, _, _ := strings.Cut(rest, `"`)
	return value
}

// BenchmarkUI measures the list with many pending requests, and the time until a
// second tab gets a decision of the first, with the real program.
func BenchmarkUI(b *testing.B) {
	r := newRig(b)
	r.writePendings(uiWaiting, time.Hour, "none")
	r.daemon(uiConfig)
	var one *tab
	r.Await("login link", func() (ok bool) {
		t, err := r.openTab()
		one = t
		return err == nil
	})
	page, first, err := one.get("")
	require.NoError(b, err)
	require.Equal(b, uiWaiting, strings.Count(page, `<li id="q-`))
	b.Run("UI: list of 500", func(b *testing.B) {
		var took []time.Duration
		for b.Loop() {
			_, d, err := one.get("")
			require.NoError(b, err)
			took = append(took, d)
		}
		reportMS(b, "first load after the start", first, "<=150")
		reportMS(b, "p50", quantile(took, 0.5), "")
		reportMS(b, "p99", quantile(took, 0.99), "<=150")
	})
	rows := strings.Split(page, `<li id="`)[1:]
	b.Run("UI: decision to event in another tab", func(b *testing.B) {
		two, err := r.openTab()
		require.NoError(b, err)
		lines, err := two.listen("rev=" + attrValue(page, `data-rev="`))
		require.NoError(b, err)
		var took []time.Duration
		for b.Loop() {
			if len(took) == len(rows) {
				continue // all are decided
			}
			d, err := decideOnce(one, rows[len(took)], lines)
			require.NoError(b, err)
			took = append(took, d)
		}
		reportMS(b, "p50", quantile(took, 0.5), "")
		reportMS(b, "p99", quantile(took, 0.99), "<=100")
	})
}

// decideOnce decides the request of a row, and measures the time from the POST to
// the event that removes the row.
func decideOnce(t *tab, row string, lines <-chan string) (time.Duration, error) {
	id, _, _ := strings.Cut(row, `"`)
	path := attrValue(row, `href="`)
	page, _, err := t.get(path)
	if err != nil {
		return 0, err
	}
	began := time.Now()
	if _, err := t.post(t.base+path+"/decide", url.Values{"sha": {attrValue(page, `data-sha="`)}, "code": {"3"}}); err != nil {
		return 0, err
	}
	for {
		select {
		case line, ok := <-lines:
			if !ok {
				return 0, errors.New("event stream closed")
			}
			if strings.Contains(line, id+`\" hx-swap-oob=\"delete`) {
				return time.Since(began), nil
			}
		case <-time.After(20 * time.Second):
			return 0, fmt.Errorf("no event about %s", id)
		}
	}
}
