package home

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

// mayDecide asks the authorizer of a configuration.
func mayDecide(c *config.Config, ws string, by approval.Person) (name string, ok bool) {
	return (&Home{Config: c}).Authorizer().May(ws, nil, by)
}

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
			name, ok := mayDecide(c, row.ws, row.who)
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
			Approvers:  map[string]approval.Approver{"": {IDs: map[string]string{"local": "0"}}},
		}},
		{"a principal who is not listed", &config.Config{
			Workspaces: map[string]approval.Workspace{"w": {Principal: "ann", LocalDecisions: true}},
			Approvers:  map[string]approval.Approver{"ann": {Name: "ann", IDs: map[string]string{"local": "0"}}},
		}},
		{"a list with an undefined approver", &config.Config{
			Workspaces: map[string]approval.Workspace{"w": {Approvers: []string{"ann"}}},
		}},
	} {
		t.Run(row.why, func(t *testing.T) {
			name, ok := mayDecide(row.c, "w", root)
			require.False(t, ok)
			require.Empty(t, name)
		})
	}
}

func TestMayDecideNamelessWorkspace(t *testing.T) {
	c := &config.Config{Workspaces: map[string]approval.Workspace{"": {LocalDecisions: true}}}
	_, ok := mayDecide(c, "", approval.Person{Channel: "local", ID: "0", Name: "operator:root"})
	require.False(t, ok, "no person may decide a request without a workspace")
}

func TestMayDecideQuotedAddress(t *testing.T) {
	c := &config.Config{
		Workspaces: map[string]approval.Workspace{"w": {Approvers: []string{"ann"}}},
		Approvers:  map[string]approval.Approver{"ann": {Name: "ann", IDs: map[string]string{"email": `"ann@Home"@example.org`}}},
	}
	_, ok := mayDecide(c, "w", approval.Person{Channel: "email", ID: `"ann@Home"@Example.org`})
	require.True(t, ok, "the domain is after the last @")
	_, ok = mayDecide(c, "w", approval.Person{Channel: "email", ID: `"ann@home"@example.org`})
	require.False(t, ok, "the part before it keeps its case")
}

func TestMayDecideByDefault(t *testing.T) {
	c := config.Default()
	name, ok := mayDecide(c, "default", approval.Person{Channel: "local", ID: "1000", Name: "operator:ann"})
	require.True(t, ok)
	require.Equal(t, "operator:ann", name)
	_, ok = mayDecide(c, "default", approval.Person{Channel: "telegram", ID: "1000"})
	require.False(t, ok, "no approver has a Telegram id")
}

func TestAgentsCannotDecide(t *testing.T) {
	onSocket := func(c *config.Config, uid string) (name string, ok bool) {
		return mayDecide(c, "a", approval.Person{Channel: "socket", ID: uid, Name: "operator:agent"})
	}
	c, err := config.Parse("p.toml", []byte(`
socket = "/run/permesso/permesso.sock"
[approvers.ann]
local = 1000
[approvers.far]
telegram = 1
[workspaces.a]
approvers = ["ann"]
agent_uid = 2000
[workspaces.b]
agent_uid = [2001, 2002]
`))
	require.NoError(t, err)
	require.Equal(t, "/run/permesso/permesso.sock", c.Socket)
	require.Equal(t, map[string][]string{"a": {"2000"}, "b": {"2001", "2002"}}, c.AgentUIDs)
	for _, uid := range []string{"2000", "2001", "2002"} {
		for _, ws := range []string{"a", "b"} {
			_, ok := mayDecide(c, ws, approval.Person{Channel: "local", ID: uid, Name: "operator:agent"})
			require.False(t, ok, "%s in %s: not even as operator", uid, ws)
		}
		_, ok := onSocket(c, uid)
		require.False(t, ok)
	}
	name, ok := mayDecide(c, "a", approval.Person{Channel: "local", ID: "1000"})
	require.True(t, ok)
	require.Equal(t, "ann", name)
	_, ok = mayDecide(c, "a", approval.Person{Channel: "local", ID: "3000"})
	require.True(t, ok, "the operator, who can read keys/")

	name, ok = onSocket(c, "1000")
	require.True(t, ok)
	require.Equal(t, "ann", name)
	for _, uid := range []string{"", "0", "3000", "01000", "1"} {
		_, ok = onSocket(c, uid)
		require.False(t, ok, "%q: there is no operator on the socket", uid)
	}
	_, ok = onSocket(nil, "1000")
	require.False(t, ok)
	// Parse would refuse this: a UID of an approver and an agent. The agent counts.
	c.AgentUIDs["a"] = []string{"1000"}
	_, ok = onSocket(c, "1000")
	require.False(t, ok)
	_, ok = mayDecide(c, "a", approval.Person{Channel: "local", ID: "1000"})
	require.False(t, ok)
}

// What tells the entrances apart: each row is one person in one workspace, and the name
// under which each entrance lets that person decide ("": it does not).
func TestEntrances(t *testing.T) {
	const text = approversConfig + `
[workspaces.agents]
approvers = ["ann"]
agent_uid = 1500
`
	c, err := config.Parse("p.toml", []byte(text))
	require.NoError(t, err)
	ids := map[string]map[string]string{ // by person: the id at each entrance
		"ann":      {"local": "1000", "socket": "1000", "key": "5c0f", "telegram": "123456789", "email": "Ann@example.org"},
		"bob":      {"local": "1001", "socket": "1001", "key": "5c0f", "telegram": "77", "email": "bob@kilo.example"},
		"eve":      {"local": "1006", "socket": "1006", "key": "5c0f", "telegram": "666", "email": "eve@example.org"},
		"stranger": {"local": "1002", "socket": "1002", "key": "5c0f", "telegram": "5", "email": "x@example.org"},
		"agent":    {"local": "1500", "socket": "1500", "key": "5c0f", "telegram": "1500", "email": "agent@example.org"},
	}
	for _, row := range []struct {
		person, ws string
		may        map[string]string // by entrance
	}{
		{"ann", "open", map[string]string{"local": "ann", "socket": "ann", "key": "ann", "telegram": "ann", "email": "ann"}},
		{"ann", "annes", map[string]string{"local": "ann", "socket": "ann", "key": "ann", "telegram": "ann", "email": "ann"}},
		{"ann", "remote", map[string]string{"key": "ann", "telegram": "ann", "email": "ann"}},
		{"ann", "empty", nil},
		{"ann", "closed", nil},
		{"ann", "nosuch", nil},
		// bob has no local UID: with access to HOME he is the operator, without it a stranger.
		{"bob", "open", map[string]string{"local": "operator:1001", "key": "bob", "email": "bob"}},
		{"bob", "annes", map[string]string{"local": "operator:1001"}},
		{"bob", "remote", map[string]string{"key": "bob", "email": "bob"}},
		{"eve", "open", nil},
		{"stranger", "open", map[string]string{"local": "operator:1002"}},
		{"stranger", "empty", map[string]string{"local": "operator:1002"}},
		{"stranger", "closed", nil},
		{"agent", "open", nil},
		{"agent", "agents", nil},
	} {
		for entrance, id := range ids[row.person] {
			name, ok := mayDecide(c, row.ws, approval.Person{Channel: entrance, ID: id, Name: row.person})
			require.Equal(t, row.may[entrance], name, "%s in %s by %s", row.person, row.ws, entrance)
			require.Equal(t, name != "", ok)
		}
	}
	// A request's own principal counts at every entrance, but not for the operator.
	for entrance, id := range ids["ann"] {
		name, _ := (&Home{Config: c}).Authorizer().May("open", &approval.Pending{Principal: "bob"}, approval.Person{Channel: entrance, ID: id, Name: "ann"})
		require.Empty(t, name, entrance)
	}
	name, _ := (&Home{Config: c}).Authorizer().May("open", &approval.Pending{Principal: "bob"}, approval.Person{Channel: "local", ID: "0"})
	require.Equal(t, "operator:0", name)
}
