package secrets_test

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/permesso-dev/permesso/approval"
)

const (
	account = "DE89 3704 0044 0532 0130 00" // the example of its standard
	payCard = "4539 5787 6362 1486"
)

// foundIn are the kinds in the argument v, of a type.
func foundIn(t *testing.T, argType, value string) (kinds []string) {
	f := &approval.Facts{Tool: "pay", Declared: map[string]approval.Argument{"v": {Type: argType}}}
	f.Args, _ = json.Marshal(map[string]string{"v": value})
	for _, x := range scanner(t).Scan(f) {
		kinds = append(kinds, x.Kind)
	}
	return kinds
}

// A person must see where money goes: an account asks, unless its argument is declared as what a
// request goes to, and no mask hides it.
func TestAccountsAskAndAreNeverHidden(t *testing.T) {
	for argType, asks := range map[string]bool{
		"text": true, "json": true, "list": true, "table": true, "diff": true, "program": true, "command": true, "": true,
		"recipients": false, "host": false, "url": false, "path": false, "amount": false,
	} {
		require.Equal(t, asks, len(foundIn(t, argType, account)) > 0, argType)
	}
	require.Empty(t, foundIn(t, "text", strings.Replace(account, "89", "88", 1)), "wrong check digits")
	require.Empty(t, foundIn(t, "text", account+"0"), "too long")
	for why, text := range map[string]string{
		"alone": account, "a word": strings.ReplaceAll(account, " ", ""), "in a text": "pay Ann, " + account + ", today",
		"encoded": b64(account), "reversed": reversed(strings.ReplaceAll(account, " ", ""), 0),
	} {
		r := scanner(t).Redactor(ofType("text", text))
		require.Empty(t, r.Tokens(text), why)
		require.Empty(t, r.Withheld(text), why)
		require.Empty(t, r.Unmaskable(), why)
		require.Empty(t, r.Spans(text), why)
	}
}

// A card number is withheld as a whole: a mask would hide which card it is.
func TestCardNumbers(t *testing.T) {
	bare := strings.ReplaceAll(payCard, " ", "")
	for why, c := range map[string]struct {
		text  string
		found bool
	}{
		"groups":                 {"card " + payCard + ".", true},
		"hyphens":                {"card " + strings.ReplaceAll(payCard, " ", "-"), true},
		"no groups":              {"card=" + bare, true},
		"a date after it":        {payCard + " 09/28 123", true},
		"numbers around it":      {"2 " + payCard + " 3", true},
		"another last digit":     {strings.Replace(payCard, "1486", "1487", 1), false},
		"other groups":           {"453 9578 7636 21486", false},
		"two kinds of groups":    {"4539 5787-6362 1486", false},
		"no issuer":              {"9539578763621485", false},
		"a longer number":        {bare + "0", false},
		"a fraction after it":    {bare + ".5", false},
		"a word after it":        {bare + "x", false},
		"a part of a name":       {"x_" + bare, false},
		"the digits of a number": {"0." + bare, false},
		"of an order":            {"order no: " + bare, false},
		"with an ID's name":      {`{"messageId": "` + bare + `"}`, false},
	} {
		require.Equal(t, c.found, len(foundIn(t, "text", c.text)) > 0, why)
		r := scanner(t).Redactor(ofType("text", c.text))
		require.Empty(t, r.Tokens(c.text), why)
		require.Equal(t, c.found, r.Withheld(c.text) != "" && len(r.Unmaskable()) > 0, why)
	}
	require.Empty(t, find(scanner(t), `{"a":"4539 5787","b":" 6362 1486"}`), "two values are no number")
}

// A phrase is no token: no mask hides it, and so it leaves with no chat.
func TestSeedPhrases(t *testing.T) {
	const phrase = "legal winner thank year wave sausage worth useful legal winner thank yellow" // of BIP-39
	for why, c := range map[string]struct {
		text  string
		found bool
	}{
		"alone":               {phrase, true},
		"in a sentence":       {"it is: " + phrase + ", keep it", true},
		"after other words":   {"actual test " + phrase, true},
		"in upper case":       {strings.ToUpper(phrase), true},
		"in a list":           {"1. " + strings.ReplaceAll(phrase, " ", "\n2. "), true},
		"another last word":   {strings.Replace(phrase, "yellow", "zebra", 1), false},
		"eleven words":        {strings.TrimSuffix(phrase, " yellow"), false},
		"another word in it":  {strings.Replace(phrase, "sausage", "cheese", 1), false},
		"with much between":   {strings.ReplaceAll(phrase, " ", strings.Repeat(" ", 13)), false},
		"the same word again": {strings.Repeat("zoo ", 23) + "vote", false},
	} {
		require.Equal(t, c.found, len(foundIn(t, "text", c.text)) > 0, why)
		r := scanner(t).Redactor(ofType("text", c.text))
		require.Empty(t, r.Tokens(c.text), why)
		require.Equal(t, c.found, r.Withheld(c.text) == "seed-phrase", why)
	}
	words, _ := json.Marshal(strings.Fields(phrase))
	require.NotEmpty(t, find(scanner(t), string(words)), "in a list of values")
}

// A name that the agent chooses is searched alone, and never masked.
func TestNamesOfRequests(t *testing.T) {
	for where, f := range map[string]*approval.Facts{
		"tool_name":   {Tool: "x-" + pat},
		"action_type": {ActionType: pat},
		"session_id":  {SessionID: b64(pat)},
	} {
		found := scanner(t).Scan(f)
		require.Len(t, found, 1, where)
		require.Equal(t, where, found[0].Where)
		p := &approval.Pending{ToolName: f.Tool, ActionType: f.ActionType, SessionID: f.SessionID, RequestData: approval.Raw(`{}`)}
		r := scanner(t).Redactor(p)
		require.Equal(t, []string{"github-pat"}, r.Unmaskable(), where)
		require.Equal(t, "github-pat", r.Withheld(f.Tool+f.ActionType+f.SessionID), where)
	}
	f := &approval.Facts{Args: approval.Raw(`{"note":"the password:"}`), Tool: "mail2.Send", SessionID: "k4Qz81x!"}
	require.Empty(t, scanner(t).Scan(f), "a text and a name form no password")
}

// What is disguised so that no mask can hide exactly it asks, and leaves with no chat.
func TestDisguisesAreNeverMasked(t *testing.T) {
	for name, disguise := range disguises {
		f := disguise("use "+pat+" for it", 1)
		p := &approval.Pending{ToolName: f.Tool, ActionType: f.ActionType, SessionID: f.SessionID, RequestData: f.Args}
		r := scanner(t).Redactor(p)
		if name == "plain" {
			require.NotContains(t, r.Shown(p), pat)
			require.Empty(t, r.Unmaskable())
			continue
		}
		var values map[string]string
		_ = json.Unmarshal(f.Args, &values)
		for _, v := range values {
			require.Empty(t, r.Tokens(v), name)
		}
		require.Equal(t, []string{"github-pat"}, r.Unmaskable(), name)
	}
}

// What is unpacked is bounded; what was not searched therefore asks.
func TestBombs(t *testing.T) {
	pack := func(text string) string {
		var b bytes.Buffer
		z := gzip.NewWriter(&b)
		_, err := z.Write([]byte(text))
		require.NoError(t, err)
		require.NoError(t, z.Close())
		return b64(b.String())
	}
	const tooLong = "too-long-to-search"
	large := pack(strings.Repeat(" ", 40<<20))
	many := strings.Repeat(pack(strings.Repeat(" ", 64<<10))+" ", 1000)
	for why, text := range map[string]string{"one": large, "many": many, "a key after it": large + " " + pack(pat)} {
		before := cpuTime(t)
		found := find(scanner(t), quoted(text))
		require.Less(t, cpuTime(t)-before, 4*time.Second, why)
		require.Contains(t, fmt.Sprint(found), tooLong, why)
		require.Less(t, found[len(found)-1].Length, 2<<20, "%s: bytes that were unpacked", why)
	}
	require.NotContains(t, fmt.Sprint(find(scanner(t), quoted(pack(strings.Repeat("hello ", 10_000))))), tooLong)
	cut := pack("use " + pat + " " + strings.Repeat("and more text ", 9))
	require.Contains(t, fmt.Sprint(find(scanner(t), quoted(cut[:len(cut)-12]))), "github-pat", "without its end")
	require.Contains(t, fmt.Sprint(find(scanner(t), quoted(pack(pack("use "+pat))))), "github-pat", "twice")
}

func cpuTime(t *testing.T) time.Duration {
	var u unix.Rusage
	require.NoError(t, unix.Getrusage(unix.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// Placeholders, names and variables in the place of a secret are none.
func TestPlaceholders(t *testing.T) {
	s := scanner(t)
	for _, value := range strings.Split("changeme|$DB_PASSWORD|${DB_PASSWORD}|{{ .Values.password }}|<password>|********|xxxxxxxx|your-password-1|"+
		"process.env.DB_PASS1|os.environ.PASS1|config.db1.password|/run/secrets/db1|@/run/secrets/db1|vault:secret/db#pw|MY_DB_PASSWORD_1|%MY_PASS1%|null|None|example_1|password2", "|") {
		for _, form := range []string{"password: %s", `DB_PASSWORD="%s"`, "mysql -u root -p%s", "mysql://root:%s@db/shop", "the password is %s", "api_key = %s"} {
			text := fmt.Sprintf(form, value)
			require.Empty(t, find(s, `{"text":`+quoted(text)+`}`), text)
		}
	}
	require.Equal(t, "password", find(s, `{"password":"Blume-2024!"}`)[0].Kind)
}

const discordToken = "MTIzNDU2Nzg5MDEyMzQ1Njc4.GaB3dE." + "R7kQxX93kdJw81vRtB2mZ5nLpWq4YcT6uHsAbC"

// One secret is one finding, of the most specific kind.
func TestTheMostSpecificKind(t *testing.T) {
	for text, want := range map[string][]string{
		"GITHUB_TOKEN=" + pat:                             {"github-pat"},
		"password = " + pat:                               {"github-pat"},
		"DB_PASSWORD=zq7kQxX93kdJw81vRt":                  {"password"},
		"api_key=zq7kQxX93kdJw81vRt":                      {"named-key"},
		"api_key=XpdEIBiLwNReXWCKwMkgwSfx":                {"named-key"},
		"use " + discordToken + " now":                    {"discord-bot-token"},
		"postgres://shop:zq7kQxX93kd@db/shop":             {"password-url"},
		"Authorization: Bearer zq7kQxX93kdJw81vRtB2mZ5nL": {"authorization-header"},
	} {
		require.Equal(t, want, foundIn(t, "text", text), text)
	}
}

// What stands after a key in a sentence or an address does not hide it.
func TestAfterAKey(t *testing.T) {
	for _, after := range []string{"", ".", ". ", ", ", ")", "!", "?", "&x=1", "@example.org", "</b>", "]", "}", "|"} {
		text := "use glpat-R7kQxX93kdJw81vRtB2m" + after
		require.Equal(t, []string{"gitlab-pat"}, foundIn(t, "text", text), text)
		text = "it is hf_RkQxXkdJwvRtBmZnLpWqYcTuHsAbCdEfGh" + after
		require.Equal(t, []string{"huggingface-access-token"}, foundIn(t, "text", text), text)
	}
}

// A password in an address stays where it is, because all of an address must be seen. What only a
// name before it makes a secret could be words that the name hides.
func TestPasswordsThatNoMaskHides(t *testing.T) {
	for _, text := range []string{"see postgres://shop:zq7kQxX93kd@db/shop", "password: Blume-2024!", "password: delete-2024", "password: zq7kQxX93kd", "api_key: payEve900EURtoIBAN7x9", "Authorization: Basic ZGVsZXRlIGFsbCBmaWxlcw==", "WIFI:T:WPA;S:x;P:payEve900EUR;;", "curl -H 'Authorization: Bearer payEve900EURtoIBAN7x9' https://x.org"} {
		r := scanner(t).Redactor(ofType("text", text))
		require.Empty(t, r.Tokens(text))
		require.NotEmpty(t, r.Withheld(text))
	}
}
