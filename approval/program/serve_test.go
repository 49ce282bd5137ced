package program

import (
	"bytes"
	"encoding/binary"
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
)

// TestServeAndClient evaluates through the protocol: it gives what Evaluate gives.
func TestServeAndClient(t *testing.T) {
	const source = `
guarantee(tools.send_email.only(to = ["a@example.com"]), none(tools.pay))
def main():
    page = tools.fetch(url = "https://example.com/")
    r = try_(tools.fetch, url = "https://example.com/" + page["next"])
    tools.send_email(to = "a@example.com", body = r.error)
    tools.send_email(to = "a@example.com", body = tools.fetch(url = "https://example.com/2")["text"])
    if %s:
        tools.pay()
`
	answers := map[int]approval.Answer{
		1: {Known: true, Result: approval.Raw(`{ "next" : "é"}`)},
		2: {Known: true, Failed: "gone"},
	}
	for _, condition := range []string{"False", "page", `tools.fetch(url = "https://example.com/3")`, "fail('x')"} {
		source := strings.Replace(source, "%s", condition, 1)
		want := run(t, source, answers)
		var got evaluated
		toChild, fromParent := io.Pipe()
		toParent, fromChild := io.Pipe()
		served := make(chan error)
		go func() {
			err := Serve(toChild, fromChild)
			_ = fromChild.Close()
			served <- err
		}()
		got.ev, got.err = Client(toParent, fromParent, approval.ProgramJob{Source: source, Tools: hostTools()}, func(c approval.Call) (approval.Answer, error) {
			got.calls = append(got.calls, c)
			return answers[len(got.calls)], nil
		})
		require.NoError(t, <-served)
		require.Equal(t, want, got)
	}
}

// TestClientBelievesNothing sends it what a process would send that is not ours.
func TestClientBelievesNothing(t *testing.T) {
	const (
		fetch = `{"kind":"call","tool":"fetch","data":{"url":"https://a.example"},"line":1}`
		end   = `{"kind":"end"}`
	)
	for _, tt := range []struct {
		messages []string
		want     string
	}{
		{[]string{fetch, end}, ""},
		{[]string{fetch, `{"kind":"call","tool":"store","data":{},"line":2}`, `{"kind":"end","needs":{"step":1,"line":2}}`}, ""},
		{[]string{}, "EOF"},
		{[]string{"{"}, "ends too early"},
		{[]string{`{"kind":"job"}`}, "unknown kind"},
		{[]string{`{"kind":"end","state":"approved"}`}, `unknown key "state"`},
		{[]string{`{"kind":"end","kind":"call"}`}, "duplicate key"},
		{[]string{`{"kind":"call","tool":"exec","data":{},"line":1}`}, "unknown tool"},
		{[]string{`{"kind":"call","tool":"store","data":[],"line":1}`}, "not a JSON object"},
		{[]string{`{"kind":"call","tool":"store","line":1}`}, "not a JSON object"},
		{[]string{`{"kind":"call","tool":"store","data":{},"line":0}`}, "not a line"},
		{[]string{`{"kind":"call","tool":"store","data":{},"line":9}`}, "not a line"},
		{[]string{`{"kind":"call","tool":"store","data":{ },"line":1}`}, "not in order"},
		{[]string{`{"kind":"call","tool":"store","data":{"value":1,"n":1},"line":1}`}, "not in order"},
		{[]string{`{"kind":"call","tool":"store","data":{"value":` + strings.Repeat("[", 28) + strings.Repeat("]", 28) + `},"line":1}`}, "nested deeper"},
		{[]string{`{"kind":"call","tool":"store","data":{"other":1},"line":1}`}, "has no argument other"},
		{[]string{`{"kind":"call","tool":"fetch","data":{},"line":1}`}, "needs the argument url"},
		{[]string{`{"kind":"call","tool":"fetch","data":{},"opaque":[{"arg":"url","step":1,"at":""}],"line":1}`}, "where none can be"},
		{[]string{`{"kind":"call","tool":"send_email","data":{"to":"a"},"opaque":[{"arg":"body","step":1,"at":""}],"line":1}`}, "that there is not"},
		{[]string{fetch, `{"kind":"call","tool":"send_email","data":{"to":"a"},"opaque":[{"arg":"body","step":1,"at":"x"}],"line":1}`}, "that there is not"},
		{[]string{fetch, `{"kind":"call","tool":"send_email","data":{"to":"a"},"opaque":[{"arg":"body","step":1,"at":"/~2"}],"line":1}`}, "that there is not"},
		{[]string{fetch, `{"kind":"call","tool":"send_email","data":{"body":"b","to":"a"},"opaque":[{"arg":"body","step":1,"at":""}],"line":1}`}, "has no argument body"},
		{[]string{`{"kind":"call","tool":"store","data":{"value":"` + strings.Repeat("a", approval.MaxTrace) + `"},"line":1}`}, "too large"},
		{[]string{strings.Repeat(" ", maxFromChild+1)}, "a message of"},
		{[]string{`{"kind":"end","needs":{"step":1,"line":1}}`}, "needs a result that there is not"},
		{[]string{`{"kind":"end","guarantees":[{"kind":"none","tool":"exec","line":1,"state":"proved"}]}`}, "says nothing"},
		{[]string{`{"kind":"end","guarantees":[{"kind":"only","tool":"pay","arg":"too","line":1,"state":"proved"}]}`}, "says nothing"},
		{[]string{`{"kind":"end","guarantees":[{"kind":"all","tool":"pay","line":1,"state":"proved"}]}`}, "says nothing"},
		{[]string{`{"kind":"end","guarantees":[{"kind":"sum","tool":"pay","arg":"amount","sum":"1e999999999","line":1,"state":"proved"}]}`}, "says nothing"},
		{[]string{`{"kind":"end","guarantees":[` + strings.Repeat(`{"kind":"none","tool":"pay","line":1,"state":""},`, 64) + `{"kind":"none","tool":"pay","line":1,"state":""}]}`}, "at most 64"},
		{[]string{`{"kind":"fault","line":-1,"text":"` + strings.Repeat("a", 1000) + `\u001b"}`}, "aaa…"},
	} {
		var in bytes.Buffer
		for _, m := range tt.messages {
			in.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(m))), m...))
		}
		_, err := Client(&in, io.Discard, approval.ProgramJob{Source: "a\nb", Tools: hostTools()}, func(approval.Call) (approval.Answer, error) {
			return approval.Answer{}, nil
		})
		if tt.want == "" {
			require.NoError(t, err, tt.messages)
			continue
		}
		require.ErrorContains(t, err, tt.want, "%.200s", tt.messages)
	}

	var in bytes.Buffer
	for range approval.MaxSteps + 1 {
		in.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(fetch))), fetch...))
	}
	calls := 0
	_, err := Client(&in, io.Discard, approval.ProgramJob{Source: "a", Tools: hostTools()}, func(approval.Call) (approval.Answer, error) {
		calls++
		return approval.Answer{}, nil
	})
	require.ErrorContains(t, err, "too many")
	require.Equal(t, approval.MaxSteps, calls)
}

// TestClientRefutes gives it the end of an evaluation that claims what is false.
func TestClientRefutes(t *testing.T) {
	var in bytes.Buffer
	for _, m := range []string{
		`{"kind":"call","tool":"store","data":{},"line":1}`,
		`{"kind":"end","guarantees":[{"kind":"none","tool":"store","line":1,"state":"proved"}]}`,
	} {
		in.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(m))), m...))
	}
	ev, err := Client(&in, io.Discard, approval.ProgramJob{Source: "a", Tools: hostTools()}, func(approval.Call) (approval.Answer, error) {
		return approval.Answer{}, nil
	})
	require.NoError(t, err)
	require.Equal(t, approval.GuaranteeRefuted, ev.Guarantees[0].State)
	require.Equal(t, 1, ev.Guarantees[0].Step)
}
