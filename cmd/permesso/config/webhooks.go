package config

import (
	"net"
	"net/url"
	"slices"
	"strings"

	"github.com/permesso-dev/permesso/approval/facts"
)

// Webhook is [webhooks.NAME]: a program elsewhere that hears of requests.
type Webhook struct {
	URL          string
	SecretFile   string
	Events       []string // what it hears of
	Workspaces   []string // nil: all
	AllowPrivate []string
}

// Private is what the webhook may reach besides the public network.
func (w Webhook) Private() (facts.Private, error) {
	u, err := url.Parse(w.URL)
	if err != nil {
		return facts.Private{}, err
	}
	return facts.NewPrivate(u.Hostname(), w.AllowPrivate)
}

const (
	eventSettled = "settled"
	webhookHint  = `[webhooks.NAME] with url = "https://hooks.example.org/permesso" and secret_file = "/etc/permesso/NAME.secret"`
)

// webhooks reads [webhooks.NAME].
func (s *section) webhooks() {
	s.each("webhooks", func(name string, sub *section) {
		sub.checkName("webhook", name)
		sub.require(sub.node.key, webhookHint, "a webhook needs %s", "url", "secret_file")
		w := Webhook{
			URL: sub.text("url"), SecretFile: sub.text("secret_file"), Events: []string{eventSettled}, Workspaces: sub.texts("workspaces"), AllowPrivate: sub.texts("allow_private"),
		}
		for _, key := range []string{"events", "workspaces"} {
			if sub.has(key) && len(sub.items(key)) == 0 {
				sub.fail(sub.position(key), key, "leave it out for all", "a webhook without %s sends nothing", key)
			}
		}
		for _, n := range sub.items("workspaces") {
			if _, ok := s.cfg.Workspaces[n.text]; !ok {
				sub.fail(n.val, "workspaces", didYouMean(n.text, sortedKeys(s.cfg.Workspaces), ""), "unknown workspace %s", quote(n.text))
			}
		}
		sub.checkDestination(w)
		if s.cfg.Webhooks == nil {
			s.cfg.Webhooks = map[string]Webhook{}
		}
		s.cfg.Webhooks[name] = w
	})
}

// checkDestination refuses a URL that no message could or should go to.
func (s *section) checkDestination(w Webhook) {
	if w.URL == "" {
		return // reported
	}
	fail := func(key string, text string) { s.fail(s.position(key), key, s.rowHint(key), "%s: %s", key, text) }
	if err := facts.CheckURL(w.URL); err != nil {
		fail("url", err.Error())
		return
	}
	u, err := url.Parse(w.URL)
	if err != nil || strings.ContainsAny(w.URL, "{}") {
		fail("url", "braces must be percent-encoded, as %7B and %7D")
		return
	}
	private, err := w.Private()
	if err != nil {
		fail("allow_private", err.Error())
		return
	}
	port := u.Port()
	if port == "" {
		port = map[string]string{"https": "443", "http": "80"}[u.Scheme]
	}
	if net.ParseIP(u.Hostname()) != nil {
		err = private.Check(net.JoinHostPort(u.Hostname(), port))
	}
	switch {
	case err != nil:
		fail("url", err.Error())
	case u.Scheme == "http" && !private.Names(u.Hostname()):
		fail("url", "must use https, unless allow_private names the host")
	}
}

func (s *section) rowHint(key string) string {
	k, _ := s.row(key)
	return k.hintText()
}

func webhookKeys() []Key {
	events := []string{eventSettled}
	return []Key{
		{Name: "url", Example: `"https://hooks.example.org/permesso"`, Help: "where messages are posted; redirects are not followed", Hint: `for example "https://hooks.example.org/permesso"`, valueType: anyText()},
		{Name: "secret_file", Example: `"/etc/permesso/ci.secret"`, Help: "mode 600: signs the messages; permesso webhook secret writes one", Hint: "permesso webhook secret FILE writes one", valueType: must("absolute path", absolutePath, "must be an absolute path")},
		{Name: "events", Example: `["settled"]`, Help: "settled: a request has ended", Hint: `events = ["settled"]`, valueType: listOf("list of settled", word(events...), validText(func(v string) bool { return slices.Contains(events, v) }), list(events))},
		{Name: "workspaces", Example: `["` + DefaultWorkspace + `"]`, Help: "only requests of these; default: all", Hint: `a list of names: workspaces = ["` + DefaultWorkspace + `"]`, valueType: listOf("list of names of workspaces", anyText(), anyItem, "")},
		{Name: "allow_private", Example: `["10.1.2.3:8080", "hooks.internal"]`, Help: "private addresses that the host may have", Hint: `allow_private = ["10.1.2.3", "hooks.internal"]`, valueType: listOf("list of hosts", anyText(), anyItem, "")},
	}
}
