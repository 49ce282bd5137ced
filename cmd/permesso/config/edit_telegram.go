package config

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
)

// NewTelegram are settings to add, so that an approver is asked through Telegram.
type NewTelegram struct {
	TokenFile string // "": that of the file or the environment
	ServerURL string // "": that of the file, or Telegram's
	Workspace string
	Approver  string
	ID        int64        // of the approver
	Chat      TelegramChat // of the workspace; zero: unchanged
}

// AddTelegram adds the settings to data, the content of the file called name. It
// changes no other setting and keeps comments. A conflict with an existing setting
// is an error, except for the workspace's chat, which is replaced. An error about
// the result is an *Error.
func (rd Reader) AddTelegram(name string, data []byte, t NewTelegram) ([]byte, error) {
	return rd.edit(name, data, t.addTo, t.addedTo)
}

// CheckServerURL checks a server_url; "" is valid.
func CheckServerURL(address string) error {
	if address == "" {
		return nil
	}
	if wrong := webAddress(true)(address); wrong != "" {
		return errors.New("server_url " + wrong)
	}
	return nil
}

// check refuses settings that would replace existing ones.
func (t NewTelegram) check(c *Config) error {
	w, exists := c.Workspaces[t.Workspace]
	id := strconv.FormatInt(t.ID, 10)
	switch old := c.Approvers[t.Approver].IDs[channelTelegram]; {
	case !exists:
		return fmt.Errorf("there is no workspace %s", quote(t.Workspace))
	case !namePattern().MatchString(t.Approver):
		return fmt.Errorf("%s: an approver's name is %s", quote(t.Approver), nameRule)
	case old != "" && old != id:
		return fmt.Errorf("approver %s already has the Telegram id %s, not %s", quote(t.Approver), old, id)
	case w.Principal != "" && w.Principal != t.Approver:
		return fmt.Errorf("only the principal %s may decide in workspace %s", quote(w.Principal), quote(t.Workspace))
	}
	for name, a := range c.Approvers {
		if a.IDs[channelTelegram] == id && name != t.Approver {
			return fmt.Errorf("the id %s already belongs to approver %s", id, quote(name))
		}
	}
	if old := c.Telegram; old != nil {
		if old.TokenFile != "" && t.TokenFile != "" && old.TokenFile != t.TokenFile {
			return fmt.Errorf("[channels.telegram] already has another token_file")
		}
		if old.ServerURL != "" && t.ServerURL != "" && old.ServerURL != t.ServerURL {
			return fmt.Errorf("[channels.telegram] already has another server_url")
		}
	}
	return nil
}

// addedTo reports whether after is before with these settings, and no other change.
func (t NewTelegram) addedTo(before, after *Config) bool {
	ws, person := "workspaces."+t.Workspace+".", "approvers."+t.Approver+"."
	if _, known := before.Approvers[t.Approver]; known {
		person += channelTelegram
	}
	w, was := after.Workspaces[t.Workspace], before.Workspaces[t.Workspace]
	return before.differsOnly(after, "channels.telegram.", person, ws+"approvers", ws+"channels", ws+channelTelegram+".") &&
		after.Telegram != nil && after.Telegram.TokenFile == cmp.Or(t.TokenFile, before.telegram().TokenFile) &&
		after.Telegram.ServerURL == cmp.Or(t.ServerURL, before.telegram().ServerURL) && after.Telegram.Feed == before.telegram().Feed &&
		after.Approvers[t.Approver].IDs[channelTelegram] == strconv.FormatInt(t.ID, 10) &&
		slices.Equal(w.Approvers, withName(was.Approvers, t.Approver)) && slices.Equal(w.Channels, withName(was.Channels, channelTelegram)) &&
		after.TelegramChats[t.Workspace] == cmp.Or(t.Chat, before.TelegramChats[t.Workspace])
}

// telegram returns [channels.telegram], zero without one.
func (c *Config) telegram() Telegram {
	if c.Telegram == nil {
		return Telegram{}
	}
	return *c.Telegram
}

func withName(all []string, name string) []string {
	if slices.Contains(all, name) {
		return all
	}
	return append(slices.Clone(all), name)
}

// addTo writes the settings.
func (t NewTelegram) addTo(f *file, before *Config) error {
	if err := t.check(before); err != nil {
		return err
	}
	var channel, approver []entry
	if before.telegram().TokenFile == "" {
		channel = append(channel, entry{"token_file", quoted(t.TokenFile)})
	}
	if before.telegram().ServerURL == "" {
		channel = append(channel, entry{"server_url", quoted(t.ServerURL)})
	}
	if before.Approvers[t.Approver].IDs[channelTelegram] == "" {
		approver = []entry{{channelTelegram, strconv.FormatInt(t.ID, 10)}}
	}
	f.add(channel, "channels", channelTelegram)
	f.add(approver, "approvers", t.Approver)
	f.add(t.workspace(f, before), "workspaces", t.Workspace)
	return nil
}

// workspace changes keys of the workspace, and returns those to add.
func (t NewTelegram) workspace(f *file, c *Config) (entries []entry) {
	w, section := c.Workspaces[t.Workspace], f.root.at("workspaces", t.Workspace)
	entries = append(f.addName(section, "approvers", t.Approver, w.Approvers), f.addName(section, "channels", channelTelegram, w.Channels)...)
	old, exists := c.TelegramChats[t.Workspace]
	if t.Chat == (TelegramChat{}) || t.Chat == old {
		return entries
	}
	chat := entry{channelTelegram, t.Chat.String()}
	switch n := section.written(channelTelegram); {
	case n != nil:
		f.replace(n.from, n.to, chat.key+" = "+chat.value)
	case exists:
		f.manualEdit("the chat of workspace "+quote(t.Workspace)+" is not on one line here", []entry{chat})
	default:
		entries = append(entries, chat)
	}
	return entries
}

// String formats the chat as TOML.
func (t TelegramChat) String() string {
	thread := ""
	if t.ThreadID != 0 {
		thread = strconv.Itoa(t.ThreadID)
	}
	return inlineTable([]entry{{"chat_id", strconv.FormatInt(t.ChatID, 10)}, {"thread_id", thread}})
}
