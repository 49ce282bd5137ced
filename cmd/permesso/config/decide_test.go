package config_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/cmd/permesso/config"
)

const approversConfig = `
[workspaces.open]
approvers = ["ann", "bob"]
[workspaces.annes]
approvers = ["ann", "bob"]
principal = "ann"
[workspaces.empty]
approvers = []
[workspaces.remote]
approvers = ["ann", "bob"]
local_decisions = false
[workspaces.closed]
local_decisions = false

[approvers.ann]
telegram = 123456789
email = "Ann@Example.org"
local = 1000
[approvers.bob]
email = "bob@kilo.example"
[approvers.eve]
telegram = 666
local = 1006
[approvers.shadow]
`

func TestMayDecide(t *testing.T) {
	c, err := config.Parse("p.toml", []byte(approversConfig))
	require.NoError(t, err)
	tg := func(id string) approval.Person { return approval.Person{Channel: "telegram", ID: id, Name: "x"} }
	mail := func(id string) approval.Person { return approval.Person{Channel: "email", ID: id, Name: "x"} }
	local := func(id, name string) approval.Person {
		return approval.Person{Channel: "local", ID: id, Name: name}
	}
	root := local("0", "operator:root")

	for _, row := range []struct {
		why  string
		ws   string
		who  approval.Person
		name string // "": refused
	}{
		{"a listed numeric id", "open", tg("123456789"), "ann"},
		{"the name in the channel does not count", "open", approval.Person{Channel: "telegram", ID: "5", Name: "ann"}, ""},
		{"an approver who is not on this list", "open", tg("666"), ""},
		{"ids are compared as text, not as numbers", "open", tg("0123456789"), ""},
		{"a trailing blank", "open", tg("123456789 "), ""},
		{"an id of one channel on another", "open", mail("123456789"), ""},
		{"an address on Telegram", "open", tg("bob@kilo.example"), ""},
		{"a uid on Telegram", "open", tg("1000"), ""},

		{"a listed address", "open", mail("bob@kilo.example"), "bob"},
		{"case in the domain", "open", mail("Ann@EXAMPLE.ORG"), "ann"},
		{"case before the @", "open", mail("ANN@example.org"), ""},
		{"a Kelvin sign instead of k", "open", mail("bob@\u212Ailo.example"), ""},
		{"a subdomain", "open", mail("bob@mail.kilo.example"), ""},
		{"a domain that begins with the right one", "open", mail("bob@kilo.example.net"), ""},
		{"two @: the last one counts", "open", mail("bob@kilo.example@evil.example"), ""},
		{"a right address with a display name", "open", mail("Bob <bob@kilo.example>"), ""},

		{"the principal", "annes", tg("123456789"), "ann"},
		{"the principal by another id", "annes", mail("Ann@example.org"), "ann"},
		{"the principal at the terminal", "annes", local("1000", "operator:ann"), "ann"},
		{"listed, but not the principal", "annes", mail("bob@kilo.example"), ""},
		{"the operator, who could write the decision anyway", "annes", root, "operator:root"},
		{"another approver's UID is not the operator", "annes", local("1006", "operator:eve"), ""},

		{"an empty list: no decision by a channel", "empty", tg("123456789"), ""},
		{"an empty list: no decision by a local approver", "empty", local("1000", "operator:ann"), ""},
		{"an empty list: the operator may decide", "empty", root, "operator:root"},

		{"the UID of an approver has the approver's name", "open", local("1000", "operator:something"), "ann"},
		{"the operator, unlisted", "open", local("1001", "operator:carol"), "operator:carol"},
		{"a local name without the prefix is not used", "open", local("1001", "ann"), "operator:1001"},
		{"an empty local name", "open", local("1001", ""), "operator:1001"},
		{"only the prefix", "open", local("1001", "operator:"), "operator:1001"},

		{"local_decisions = false: no operator", "remote", root, ""},
		{"local_decisions = false: no approver's UID, which that user's agents have too", "remote", local("1000", "operator:ann"), ""},
		{"local_decisions = false: other channels work", "remote", tg("123456789"), "ann"},
		{"no list and no local decisions: not the operator", "closed", root, ""},
		{"no list and no local decisions: no approver", "closed", tg("123456789"), ""},

		{"an unknown workspace", "other", tg("123456789"), ""},
		{"an unknown workspace: not the operator", "other", root, ""},
		{"no workspace", "", root, ""},
		{"no person", "open", approval.Person{}, ""},
		{"an empty Telegram id: bob has none", "open", tg(""), ""},
		{"an empty address: shadow has none", "open", mail(""), ""},
		{"an empty UID", "open", local("", "operator:root"), ""},
		{"an id without a channel", "open", approval.Person{ID: "123456789"}, ""},
		{"an unknown channel", "open", approval.Person{Channel: "carrier-pigeon", ID: "123456789"}, ""},
		{"a script", "open", approval.Person{Channel: "script", ID: "0", Name: "operator:root"}, ""},
		{"a script with an approver's id", "open", approval.Person{Channel: "script", ID: "123456789", Name: "ann"}, ""},
		{"case in the channel", "open", approval.Person{Channel: "Local", ID: "0"}, ""},
	} {
		t.Run(row.why, func(t *testing.T) {
			name, ok := c.MayDecide(row.ws, row.who)
			require.Equal(t, row.name, name)
			require.Equal(t, row.name != "", ok)
		})
	}
}

func TestMayDecideZeroValues(t *testing.T) {
	root := approval.Person{Channel: "local", ID: "0", Name: "operator:root"}
	for _, row := range []struct {
		why string
		c   *config.Config
	}{
		{"no configuration", nil},
		{"an empty configuration", &config.Config{LocalDecisions: true}},
		{"a workspace with zero values", &config.Config{Workspaces: map[string]approval.Workspace{"w": {}}}},
		{"an approver without a name, listed", &config.Config{
			Workspaces: map[string]approval.Workspace{"w": {Approvers: []string{""}}},
			Approvers:  map[string]approval.Approver{"": {Local: "0"}},
		}},
		{"a principal who is not listed", &config.Config{
			Workspaces: map[string]approval.Workspace{"w": {Principal: "ann", LocalDecisions: true}},
			Approvers:  map[string]approval.Approver{"ann": {Name: "ann", Local: "0"}},
		}},
		{"a list with an undefined approver", &config.Config{
			Workspaces: map[string]approval.Workspace{"w": {Approvers: []string{"ann"}}},
		}},
	} {
		t.Run(row.why, func(t *testing.T) {
			name, ok := row.c.MayDecide("w", root)
			require.False(t, ok)
			require.Empty(t, name)
		})
	}
}

func TestMayDecideNamelessWorkspace(t *testing.T) {
	c := &config.Config{Workspaces: map[string]approval.Workspace{"": {LocalDecisions: true}}}
	_, ok := c.MayDecide("", approval.Person{Channel: "local", ID: "0", Name: "operator:root"})
	require.False(t, ok, "no person may decide a request without a workspace")
}

func TestMayDecideQuotedAddress(t *testing.T) {
	c := &config.Config{
		Workspaces: map[string]approval.Workspace{"w": {Approvers: []string{"ann"}}},
		Approvers:  map[string]approval.Approver{"ann": {Name: "ann", Email: `"ann@Home"@example.org`}},
	}
	_, ok := c.MayDecide("w", approval.Person{Channel: "email", ID: `"ann@Home"@Example.org`})
	require.True(t, ok, "the domain is after the last @")
	_, ok = c.MayDecide("w", approval.Person{Channel: "email", ID: `"ann@home"@example.org`})
	require.False(t, ok, "the part before it keeps its case")
}

func TestMayDecideByDefault(t *testing.T) {
	c := config.Default()
	name, ok := c.MayDecide("default", approval.Person{Channel: "local", ID: "1000", Name: "operator:ann"})
	require.True(t, ok)
	require.Equal(t, "operator:ann", name)
	_, ok = c.MayDecide("default", approval.Person{Channel: "telegram", ID: "1000"})
	require.False(t, ok, "no approver has a Telegram id")
}
