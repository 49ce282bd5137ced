package config

import "strings"

// channelNtfy only notifies: no person is known by it.
const channelNtfy = "ntfy"

// Ntfy is [channels.ntfy]: where notifications are published.
type Ntfy struct {
	Server    string // base URL
	TopicFile string
	TokenFile string // "": no token
	UIURL     string // of the web UI, as phones reach it; "": a tap opens nothing
}

// ntfyChannel reads [channels.ntfy].
func (s *section) ntfyChannel() {
	s.cfg.Ntfy = &Ntfy{
		Server: strings.TrimRight(s.text("server"), "/"), TopicFile: s.text("topic_file"), TokenFile: s.text("token_file"), UIURL: strings.TrimRight(s.text("ui_url"), "/"),
	}
	s.require(s.node.key, `topic_file = "/etc/permesso/ntfy.topic"`, "channel ntfy needs %s", "topic_file")
}

// warnUnconfiguredNtfy warns of workspaces whose notifications would not be sent.
func (s *section) warnUnconfiguredNtfy() {
	for name := range s.users(channelNtfy) {
		if s.cfg.Ntfy == nil {
			s.warn(s.node.at("workspaces", name, "channels").val, "workspaces."+name+".channels", "add [channels.ntfy]", "channel ntfy is not configured: it notifies no person")
		}
	}
}

func ntfyKeys() []Key {
	secretFile := must("absolute path", absolutePath, "must be an absolute path")
	address := checked("https URL, or http on this machine", webAddress(true))
	return []Key{
		{Name: "server", Default: `"https://ntfy.sh"`, Help: "or one of your own", Hint: `for example "https://ntfy.sh"`, valueType: address},
		{Name: "topic_file", Example: `"/etc/permesso/ntfy.topic"`, Help: "mode 600: its one line is the topic, which is a secret", Hint: "write the topic into a file that only the daemon can read: openssl rand -hex 16", valueType: secretFile},
		{Name: "token_file", Example: `"/etc/permesso/ntfy.token"`, Help: "mode 600: an access token, if the server wants one", Hint: "put the token into a file that only the daemon can read: chmod 600", valueType: secretFile},
		{Name: "ui_url", Example: `"https://gate.example.org"`, Help: "the web UI as phones reach it: a tap opens the request there", Hint: `for example "https://gate.example.org"`, valueType: address},
	}
}
