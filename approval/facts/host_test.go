package facts_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/facts"
)

// factLines lists the host facts of a request, one line each.
func factLines(tool approval.Tool, r *approval.Request) string {
	var b strings.Builder
	for _, h := range facts.Of(tool, r, nil, noon()).Host {
		if h.Domain == facts.Digest {
			continue
		}
		fmt.Fprintf(&b, "%s %s %s %q", h.Domain, strings.TrimSpace(h.Op+" "+h.Name), h.From, h.Values)
		if h.Currency != "" {
			b.WriteString(" " + h.Currency)
		}
		if h.Omitted > 0 {
			fmt.Fprintf(&b, " and %d", h.Omitted)
		}
		b.WriteString("\n")
	}
	return strings.TrimSpace(b.String())
}

func TestHostFacts(t *testing.T) {
	mail := approval.Tool{Name: "mail", Capability: "mail:send", Target: "{to}", Args: argTypes("to", "recipients", "cc", "recipients", "files", "path")}
	get := approval.Tool{Name: "get", Capability: "network:http", Target: "{url}", Args: argTypes("url", "url", "then", "host")}
	pay := approval.Tool{Name: "pay", Args: argTypes("sum", "amount")}
	post := approval.Tool{Name: "post", Capability: "channel:out", Target: "api.example.org", Handler: approval.Handler{
		Kind: approval.HandlerHTTP, HTTP: approval.HTTP{URL: "https://api.example.org/v1/{board}/posts"},
	}}
	fetch := post
	fetch.Capability = "network:http"
	write := approval.Tool{Name: "write", Capability: "fs:write", Target: "/srv/{name}"}
	for _, c := range []struct {
		why  string
		tool approval.Tool
		data string
		want string
	}{
		{"all recipients, in all fields", mail, `{"to":"bob","cc":["ann",["eve"]],"files":"a.txt"}`, `mail send target template ["bob"]
mail send recipient argument ["bob" "ann" "eve"]
file send path argument ["a.txt"]`},
		{"a missing field gives no fact", mail, `{"to":"bob","cc":null}`, "mail send target template [\"bob\"]\nmail send recipient argument [\"bob\"]"},
		{"unreadable values are counted", mail, `{"to":{"name":"bob"},"cc":["ann",null]}`, "mail send target template [\"{\\\"name\\\":\\\"bob\\\"}\"]\nmail send recipient argument [\"ann\"] and 2"},
		{"another letter case may be read as the same field", mail, `{"to":"bob","To":"eve"}`, "mail send target template [\"bob\"]\nmail send recipient argument [\"bob\"] and 1"},
		{"letter case, amounts", pay, `{"sum":10.50,"SUM":1000}`, `money amount argument ["10.50"] and 1`},
		{"an undeclared recipient", mail, `{"to":"bob","bcc":["eve"]}`, "mail send target template [\"bob\"]\nmail send recipient argument [\"bob\"] and 1"},
		{"the target's field is missing", mail, `{}`, `mail send target template [] and 1`},
		{"hosts, not URLs", get, `{"url":"HTTPS://API.example.org:443/v1?x=@evil.org","then":"api.example.org:8080"}`, `host http host template ["api.example.org"]
host http host argument ["api.example.org" "api.example.org:8080"]`},
		{"a URL that two parsers read differently", get, `{"url":"https://good.org\\@evil.org/"}`, "host http host template [] and 1\nhost http host argument [] and 1"},
		{"the host of the tool's own URL", post, `{"board":"x"}`, "channel out target template [\"api.example.org\"]\nhost out host template [\"api.example.org\"]"},
		{"no duplicate of the target's host", fetch, `{"board":"x"}`, `host http host template ["api.example.org"]`},
		{"a path target", write, `{"name":"../etc/passwd"}`, `file write path template ["/srv/../etc/passwd"]`},
		{"the program's digest", script(), `{"code":"x"}`, fmt.Sprintf("program program_sha256 argument [%q]", approval.Digest([]byte("x")))},
		{"two programs", script(), `{"code":"x","Code":"y"}`, "program program_sha256 argument [] and 1"},
		{"no program", script(), `{}`, "program program_sha256 argument [] and 1"},
		{"no data", mail, ``, "mail send target template [] and 1"},
	} {
		r := &approval.Request{Type: approval.TypeAction, ToolName: c.tool.Name, RequestData: approval.Raw(c.data)}
		require.Equal(t, c.want, factLines(c.tool, r), c.why)
	}
}

// Amounts of one currency are one fact. An amount whose currency is not certain has none.
func TestAmountFacts(t *testing.T) {
	tool := approval.Tool{Name: "pay", Args: map[string]approval.Argument{
		"sum": {Type: "amount", Currency: "unit"}, "fee": {Type: "amount", Currency: "EUR"}, "tip": {Type: "amount", Currency: "EUR"},
		"points": {Type: "amount"}, "unit": {Type: "text"},
	}}
	coded := approval.Tool{Name: "pay", Args: map[string]approval.Argument{"sum": {Type: "amount", Currency: "EUR"}, "EUR": {Type: "text"}}}
	named := approval.Tool{Name: "pay", Args: map[string]approval.Argument{"amount": {Type: "amount", Currency: "USD"}, "fee": {Type: "amount", Currency: "EUR"}}}
	for _, c := range []struct {
		why  string
		tool approval.Tool
		data string
		want string
	}{
		{"one with the name of the fact", named, `{"amount":9,"fee":1}`, "money amount argument [\"1\"] EUR\nmoney amount argument [\"9\"] USD"},
		{"of one currency", tool, `{"fee":1.50,"tip":"2"}`, `money amount argument ["1.50" "2"] EUR`},
		{"of two", tool, `{"sum":9,"unit":"USD","fee":1}`, "money amount argument [\"1\"] EUR\nmoney amount argument [\"9\"] USD"},
		{"an argument names the same one", tool, `{"sum":9,"unit":"EUR","fee":1}`, `money amount argument ["9" "1"] EUR`},
		{"the argument is missing", tool, `{"sum":9}`, `money amount argument ["9"]`},
		{"the argument is null", tool, `{"sum":9,"unit":null}`, `money amount argument ["9"]`},
		{"the argument is no currency", tool, `{"sum":9,"unit":"EUR or USD"}`, `money amount argument ["9"]`},
		{"the argument is a list", tool, `{"sum":9,"unit":["EUR"]}`, `money amount argument ["9"]`},
		{"another field may be read as the argument", tool, `{"sum":9,"unit":"EUR","Unit":"USD"}`, `money amount argument ["9"]`},
		{"it comes first", tool, `{"Unit":"USD","sum":9,"unit":"EUR"}`, `money amount argument ["9"]`},
		{"an argument counts before a code", coded, `{"sum":9,"EUR":"USD"}`, `money amount argument ["9"] USD`},
		{"no currency is declared", tool, `{"points":9}`, `money amount argument ["9"]`},
		{"an undeclared amount beside them", tool, `{"fee":1,"amount":99}`, "money amount argument [] and 1\nmoney amount argument [\"1\"] EUR and 1"},
	} {
		r := &approval.Request{Type: approval.TypeAction, ToolName: c.tool.Name, RequestData: approval.Raw(c.data)}
		require.Equal(t, c.want, factLines(c.tool, r), c.why)
	}
}

func TestCommandFacts(t *testing.T) {
	for _, c := range []struct{ why, data, want string }{
		{"words", `{"argv":["git","-C","/srv/x","diff","--output=../y","--","a/b","https://x/y","-n",".."]}`, `command program command ["git"]
command path command ["/srv/x" "../y" "a/b" ".."]`},
		{"no paths", `{"argv":["uname","-a"]}`, `command program command ["uname"]`},
		{"home", `{"command":["ls","~"]}`, "command program command [\"ls\"]\ncommand path command [\"~\"]"},
		{"a line for a shell", `{"command":"ls /"}`, "command program command [] and 1"},
		{"two command lines", `{"argv":["ls"],"cmd":["rm"]}`, "command program command [] and 1"},
		{"an empty list", `{"argv":[]}`, "command program command [] and 1"},
		{"a word that is not text", `{"argv":["ls",{}]}`, "command program command [] and 1"},
		{"no command line", `{}`, "command program command [] and 1"},
	} {
		exec := &approval.Request{Type: approval.TypeAction, ActionType: "exec_cmd", RequestData: approval.Raw(c.data)}
		require.Equal(t, c.want, factLines(approval.Tool{}, exec), c.why)
		require.True(t, facts.RunsProgram(facts.Of(approval.Tool{}, exec, nil, noon())), c.why)
		tool := approval.Tool{Name: "exec", Capability: "code:exec"}
		require.Equal(t, c.want, factLines(tool, &approval.Request{ToolName: "exec", RequestData: approval.Raw(c.data)}), c.why)
	}
	other := &approval.Request{Type: approval.TypeAction, ActionType: "write_file", RequestData: approval.Raw(`{"argv":["rm"]}`)}
	require.Empty(t, factLines(approval.Tool{}, other), "only exec_cmd has a command line")
	require.False(t, facts.RunsProgram(facts.Of(approval.Tool{}, other, nil, noon())))
}

// Values beyond the limits are counted.
func TestHostFactsAreCapped(t *testing.T) {
	tool := approval.Tool{Name: "mail", Args: argTypes("to", "recipients", "cc", "recipients")}
	many := strings.TrimSuffix(strings.Repeat(`"a",`, 150), ",")
	r := &approval.Request{ToolName: "mail", RequestData: approval.Raw(`{"to":[` + many + `],"cc":["` + strings.Repeat("x", 501) + `","b"]}`)}
	f := facts.Of(tool, r, nil, noon()).Host[0]
	require.Len(t, f.Values, 100)
	require.Equal(t, 52, f.Omitted, "50 too many, one too long, one more")
	digest := facts.Of(tool, r, nil, noon()).Host[1]
	require.Equal(t, []string{approval.Digest(r.RequestData)}, digest.Values)
}

func TestHostIn(t *testing.T) {
	for in, want := range map[string]string{
		"https://example.org/a": "example.org", "Example.ORG.": "example.org", "http://example.org:80": "example.org",
		"example.org:8443/x": "example.org:8443", "https://[2001:DB8::1]:443/": "[2001:db8::1]", "[::1]:9": "[::1]:9",
		"https://a_b-c.org?x=1#y": "a_b-c.org", "127.0.0.1": "127.0.0.1", "file+x://h/": "h",
		"": "", "/etc/passwd": "", "//evil.org/": "", "https://": "", "https://user@evil.org": "", "https://good.org%2eevil.org": "",
		"https://good.org\\.evil.org": "", "https://good.org .evil.org": "", "https://go\tod.org": "", "https://ex\u0430mple.org": "",
		"https://[::1": "", "https://[::1]x": "", "https://[evil.org]": "", "h:port": "", "h:123456": "", "1 2://x": "", "a:b:c": "", "javascript:alert(1)": "",
		"https://.": "", "http://../root": "", "good.com..": "", ".good.com": "", "good..com": "",
	} {
		host, ok := facts.HostIn(in)
		require.Equal(t, want, host, "%q", in)
		require.Equal(t, want != "", ok, "%q", in)
	}
}
