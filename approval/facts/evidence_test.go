package facts_test

import (
	"bytes"
	"crypto/ed25519"
	"encoding/base64"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/facts"
)

// prover is the configured prover's key.
func prover() ed25519.PrivateKey { return ed25519.NewKeyFromSeed(bytes.Repeat([]byte{7}, 32)) }

func provers() facts.Provers {
	return facts.Provers{"lab": prover().Public().(ed25519.PublicKey)}
}

const code = "send('bob@example.com')\n"

// script is a tool whose argument is a program.
func script() approval.Tool {
	return approval.Tool{Name: "script", Args: argTypes("code", facts.TypeProgram)}
}

// someData is the request_data that someProof is for.
const someData = `{"code":"send('bob@example.com')\n"}`

// someProof is a proof of code without its signature.
func someProof(change func(p map[string]any)) map[string]any {
	p := map[string]any{
		"tool": "script", "args_sha256": approval.Digest([]byte(someData)), "expires": "2026-11-21T12:05:00Z",
		"program": code, "program_sha256": approval.Digest([]byte(code)), "trusted": []string{"send"},
		"contracts": []string{"at most one mail"}, "prover": "lab",
		"effects":  []any{map[string]any{"domain": "email", "op": "send", "args": map[string]any{"recipient": "bob@example.com"}, "status": "proven"}},
		"coverage": []any{map[string]any{"domain": "email", "status": "covered", "missing": []string{}}},
	}
	if change != nil {
		change(p)
	}
	return p
}

func raw(t testing.TB, v any) approval.Raw {
	t.Helper()
	b, err := json.Marshal(v, json.Deterministic(true))
	require.NoError(t, err)
	return b
}

func signWith(t testing.TB, key ed25519.PrivateKey, p map[string]any) approval.Raw {
	t.Helper()
	b, err := facts.ProofBytes(raw(t, p))
	require.NoError(t, err)
	p["signature"] = base64.StdEncoding.EncodeToString(ed25519.Sign(key, b))
	return raw(t, p)
}

func requestWith(t testing.TB, proof approval.Raw) *approval.Request {
	return &approval.Request{
		RequestID: someID, Type: approval.TypeAction, ToolName: "script", Proof: proof,
		RequestData: approval.Raw(someData),
	}
}

func TestProofVerified(t *testing.T) {
	for why, change := range map[string]func(p map[string]any){
		"as it is":                   nil,
		"without its program's text": func(p map[string]any) { delete(p, "program") },
		"with nothing in it": func(p map[string]any) {
			for _, name := range []string{"program", "trusted", "contracts", "effects", "coverage"} {
				delete(p, name)
			}
		},
		"statuses of another kind are signed": func(p map[string]any) { p["effects"].([]any)[0].(map[string]any)["status"] = "maybe" },
	} {
		proof := signWith(t, prover(), someProof(change))
		e := facts.Of(script(), requestWith(t, proof), provers(), noon())
		require.True(t, e.Proof.Verified, "%s: %s", why, e.Proof.Why)
		require.Equal(t, "lab", e.Proof.Prover, why)
		require.Empty(t, e.Proof.Why, why)
		require.Same(t, e.Proof, e.Verified(), why)
	}
	proof := signWith(t, prover(), someProof(nil))
	proof = bytes.ReplaceAll(proof, []byte(`,`), []byte(" ,\n\t"))
	proof = bytes.ReplaceAll(proof, []byte(`":`), []byte("\" : "))
	before := bytes.Clone(proof)
	e := facts.Of(script(), requestWith(t, proof), provers(), noon())
	require.True(t, e.Proof.Verified, "an intermediary may change white space: %s", e.Proof.Why)
	require.Equal(t, string(before), string(proof), "the request's bytes are unchanged")
	require.Equal(t, approval.Raw(`{"recipient":"bob@example.com"}`), e.Proof.Effects[0].Args)
}

// A proof that no known prover signed for the program that would run is a claim,
// with a reason.
func TestProofUnverified(t *testing.T) {
	other := ed25519.NewKeyFromSeed(bytes.Repeat([]byte{8}, 32))
	signed := func(change func(p map[string]any)) approval.Raw { return signWith(t, prover(), someProof(change)) }
	after := func(change func(p map[string]any)) approval.Raw {
		p := someProof(nil)
		signWith(t, prover(), p)
		change(p)
		return raw(t, p)
	}
	const badSignature = "proof_signature"
	for _, c := range []struct {
		why, want string
		proof     approval.Raw
		tool      approval.Tool
		data      string
	}{
		{"unsigned", "proof_unsigned", raw(t, someProof(nil)), script(), ""},
		{"unsigned, and calls itself verified", `proof_unreadable error="unknown key \"verified\""`, raw(t, someProof(func(p map[string]any) { p["verified"] = true })), script(), ""},
		{"another key", badSignature, signWith(t, other, someProof(nil)), script(), ""},
		{"an unknown prover", "proof_unknown_prover", signed(func(p map[string]any) { p["prover"] = "moon" }), script(), ""},
		{"no prover", "proof_no_prover", signed(func(p map[string]any) { delete(p, "prover") }), script(), ""},
		{"a word as signature", badSignature, after(func(p map[string]any) { p["signature"] = "verified" }), script(), ""},
		{"half a signature", badSignature, after(func(p map[string]any) { p["signature"] = p["signature"].(string)[:44] }), script(), ""},
		{"another effect", badSignature, after(func(p map[string]any) {
			p["effects"].([]any)[0].(map[string]any)["args"] = map[string]any{"recipient": "eve@example.com"}
		}), script(), ""},
		{"another status", badSignature, after(func(p map[string]any) { p["effects"].([]any)[0].(map[string]any)["status"] = "not_proven" }), script(), ""},
		{"an effect removed", badSignature, after(func(p map[string]any) { p["effects"] = []any{} }), script(), ""},
		{"a trusted function added", badSignature, after(func(p map[string]any) { p["trusted"] = []string{"send", "system"} }), script(), ""},
		{"another contract", badSignature, after(func(p map[string]any) { p["contracts"] = []string{"at most ten mails"} }), script(), ""},
		{"another tool's name", badSignature, after(func(p map[string]any) { p["tool"] = "wipe" }), script(), ""},
		{"the digest of other arguments", badSignature, after(func(p map[string]any) { p["args_sha256"] = approval.Digest([]byte("{}")) }), script(), ""},
		{"a later end", badSignature, after(func(p map[string]any) { p["expires"] = "2027-11-21T12:05:00Z" }), script(), ""},
		{"the same end, in another zone", badSignature, after(func(p map[string]any) { p["expires"] = "2026-11-21T13:05:00+01:00" }), script(), ""},
		{"another coverage", badSignature, after(func(p map[string]any) { p["coverage"] = []any{} }), script(), ""},
		{"the digest of another program", badSignature, after(func(p map[string]any) { p["program_sha256"] = approval.Digest([]byte("x")) }), script(), ""},
		{"text and digest differ", "proof_digest", after(func(p map[string]any) { p["program"] = "rm()" }), script(), ""},
		{
			"signed for another program", "proof_other_program",
			signed(func(p map[string]any) { p["program"], p["program_sha256"] = "x", approval.Digest([]byte("x")) }), script(), "",
		},
		{"another program runs", "proof_other_program", signed(nil), script(), `{"code":"rm()"}`},
		{"a program with one more blank", "proof_other_program", signed(nil), script(), `{"code":"send('bob@example.com')\n "}`},
		{"no program", "proof_no_field field=code", signed(nil), script(), `{}`},
		{"a program that is not text", "proof_no_field field=code", signed(nil), script(), `{"code":["x"]}`},
		{"another recipient of the same program", "proof_other_arguments", signed(nil), script(), `{"code":"send('bob@example.com')\n","to":"mallory@example.net"}`},
		{"an argument more", "proof_other_arguments", signed(nil), script(), `{"code":"send('bob@example.com')\n","dry_run":false}`},
		{"an empty argument more", "proof_other_arguments", signed(nil), script(), `{"code":"send('bob@example.com')\n","to":null}`},
		{"other white space", "proof_other_arguments", signed(nil), script(), `{"code": "send('bob@example.com')\n"}`},
		{"the same text, escaped", "proof_other_arguments", signed(nil), script(), `{"code":"send(\u0027bob@example.com')\n"}`},
		{"signed for another tool", "proof_other_tool", signed(func(p map[string]any) { p["tool"] = "script2" }), script(), ""},
		{"signed for a tool in other letters", "proof_other_tool", signed(func(p map[string]any) { p["tool"] = "Script" }), script(), ""},
		{"it has expired", "proof_expired", signed(func(p map[string]any) { p["expires"] = "2026-11-21T11:59:59Z" }), script(), ""},
		{"it expires now", "proof_expired", signed(func(p map[string]any) { p["expires"] = "2026-11-21T12:00:00Z" }), script(), ""},
		{"it expires now, elsewhere", "proof_expired", signed(func(p map[string]any) { p["expires"] = "2026-11-21T13:00:00+01:00" }), script(), ""},
		{"no program at all", "proof_unbound", signed(nil), approval.Tool{Name: "script"}, ""},
		{"an unknown tool", "proof_unbound", signed(nil), approval.Tool{}, ""},
	} {
		r := requestWith(t, c.proof)
		if c.data != "" {
			r.RequestData = approval.Raw(c.data)
		}
		e := facts.Of(c.tool, r, provers(), noon())
		require.False(t, e.Proof.Verified, c.why)
		require.Equal(t, c.want, e.Proof.Why.String(), c.why)
		require.Empty(t, e.Proof.Prover, c.why)
		require.Nil(t, e.Verified(), c.why)
		for _, d := range facts.ByDomain(e) {
			require.Empty(t, d.Verified, c.why)
			require.False(t, d.Known(), c.why)
		}
	}
	none := facts.Of(script(), requestWith(t, signed(nil)), nil, noon())
	require.Equal(t, "proof_unknown_prover", none.Proof.Why.String(), "no prover is trusted by default")
	timeless := facts.Of(script(), requestWith(t, signed(nil)), provers(), time.Time{})
	require.Equal(t, "proof_expired", timeless.Proof.Why.String(), "without a time every proof has expired")
	weak := facts.Provers{"lab": ed25519.PublicKey("short")}
	require.False(t, facts.Of(script(), requestWith(t, signed(nil)), weak, noon()).Proof.Verified, "a key of another size does not panic")
}

// A proof of version 1 holds for a program only, on any tool and with any other
// arguments. It is a claim, whatever is added to it after it was signed.
func TestProofOfVersion1IsAClaim(t *testing.T) {
	sha := approval.Digest([]byte(code))
	unlimited := "permesso proof v1\n3:lab64:" + sha + "1:01:01:01:0"
	signature := base64.StdEncoding.EncodeToString(ed25519.Sign(prover(), []byte(unlimited)))
	limits := map[string]any{"tool": "script", "args_sha256": approval.Digest([]byte(someData)), "expires": "2026-11-21T12:05:00Z"}
	for _, c := range []struct{ without, want string }{
		{"tool args_sha256 expires", "proof_lacks field=tool"},
		{"args_sha256 expires", "proof_lacks field=args_sha256"},
		{"expires", "proof_lacks field=expires"},
		{"tool", "proof_lacks field=tool"},
		{"", "proof_signature"},
	} {
		p := map[string]any{"prover": "lab", "program_sha256": sha, "signature": signature}
		for name, v := range limits {
			if !slices.Contains(strings.Fields(c.without), name) {
				p[name] = v
			}
		}
		e := facts.Of(script(), requestWith(t, raw(t, p)), provers(), noon())
		require.Nil(t, e.Verified(), c.without)
		require.Equal(t, c.want, e.Proof.Why.String(), c.without)
		_, err := facts.ProofBytes(raw(t, p))
		if c.without != "" {
			require.EqualError(t, err, "proof has no "+e.Proof.Why.Args["field"])
		}
	}
}

// An unreadable proof is a claim. It does not invalidate the request, and its
// bytes stay in the pending.
func TestProofUnreadable(t *testing.T) {
	many := func(what string, n int) string {
		return `[` + strings.TrimSuffix(strings.Repeat(what+",", n), ",") + `]`
	}
	sha := `"program_sha256":"` + approval.Digest([]byte(code)) + `"`
	for _, c := range []struct{ why, proof, want string }{
		{"nothing in it", `{}`, "program_sha256 must be 64 lower-case hex digits"},
		{"a key of another format", `{"guarantees":["x"]}`, `unknown key "guarantees"`},
		{"a number as program", `{"program":1}`, `key "program" must be a string, not a number`},
		{"a digest of the arguments that is none", `{` + sha + `,"args_sha256":"` + strings.Repeat("x", 64) + `"}`, "args_sha256 must be 64 lower-case hex digits"},
		{"a short digest of the arguments", `{` + sha + `,"args_sha256":"a7f3b2c1d4e5f6a7"}`, "args_sha256 must be 64 lower-case hex digits"},
		{"a tool with a blank", `{` + sha + `,"tool":"x post"}`, "tool must be a tool's name"},
		{"a date as end", `{` + sha + `,"expires":"2026-11-21"}`, "expires must be a time such as 2026-11-21T12:00:00Z"},
		{"an end without a zone", `{` + sha + `,"expires":"2026-11-21T12:00:00"}`, "expires must be a time such as 2026-11-21T12:00:00Z"},
		{"an end without an end", `{` + sha + `,"expires":"never"}`, "expires must be a time such as 2026-11-21T12:00:00Z"},
		{"a number as end", `{` + sha + `,"expires":1795262400}`, `key "expires" must be a string, not a number`},
		{"upper-case digits", `{"program_sha256":"` + strings.ToUpper(approval.Digest([]byte(code))) + `"}`, "program_sha256 must be 64 lower-case hex digits"},
		{"effects that are not a list", `{` + sha + `,"effects":{}}`, `key "effects" must be a list, not an object`},
		{"effects without a domain", `{` + sha + `,"effects":[{"op":"send"}]}`, "an effect names no domain"},
		{"coverage without a domain", `{` + sha + `,"coverage":[{"domain":" "}]}`, "coverage names no domain"},
		{"arguments that are not an object", `{` + sha + `,"effects":[{"domain":"mail","args":["bob"]}]}`, "args of an effect must be an object"},
		{"deep arguments", `{` + sha + `,"effects":[{"domain":"mail","args":` + nested(12) + `}]}`, "args of an effect are nested deeper than 8 levels"},
		{"long arguments", `{` + sha + `,"effects":[{"domain":"mail","args":{"a":"` + strings.Repeat("x", 9000) + `"}}]}`, "args of an effect are longer than 8192 bytes"},
		{"many effects", `{` + sha + `,"effects":` + many(`{"domain":"mail"}`, 201) + `}`, "effects and coverage may have 200 entries each"},
		{"many contracts", `{` + sha + `,"contracts":` + many(`"x"`, 201) + `}`, "contracts may have 200 entries"},
		{"a long contract", `{` + sha + `,"contracts":["` + strings.Repeat("x", 2001) + `"]}`, "an entry of contracts is longer than 2000 bytes"},
		{"a long program", `{` + sha + `,"program":"` + strings.Repeat("x", 128<<10+1) + `"}`, "program is longer than 131072 bytes"},
		{"a long name", `{` + sha + `,"prover":"` + strings.Repeat("x", 65) + `"}`, "prover or signature is too long"},
	} {
		e := facts.Of(script(), requestWith(t, approval.Raw(c.proof)), provers(), noon())
		require.NotNil(t, e.Proof, c.why)
		require.Equal(t, &approval.Proof{Why: approval.Because("proof_unreadable", "error", c.want)}, e.Proof, c.why)
	}
	// Duplicate keys are malformed JSON in any part of a request.
	_, err := approval.ParseRequest([]byte(request(`"proof":{"a":1,"a":2}`)), someID)
	require.ErrorIs(t, err, approval.ErrMalformed)
	_, err = approval.ParseRequest([]byte(request(`"proof":{"any":{"other":["format"]}}`)), someID)
	require.NoError(t, err)
	require.Nil(t, facts.Of(script(), requestWith(t, nil), provers(), noon()).Proof, "without a proof there is no claim")
}

// Different proofs have different bytes to sign, encoded as the comment at signed
// says.
func TestProofBytes(t *testing.T) {
	sha := approval.Digest([]byte(code))
	b, err := facts.ProofBytes(raw(t, someProof(nil)))
	require.NoError(t, err)
	require.Equal(t, "permesso proof v2\n3:lab6:script64:"+approval.Digest([]byte(someData))+"20:2026-11-21T12:05:00Z64:"+sha+"1:14:send1:116:at most one mail"+
		`1:15:email4:send31:{"recipient":"bob@example.com"}6:proven1:15:email7:covered1:0`, string(b))

	seen := map[string]string{}
	list := func(s string) string {
		return `{"tool":"t","args_sha256":"` + sha + `","expires":"2026-11-21T12:05:00Z","program_sha256":"` + sha + `",` + s + `}`
	}
	for _, proof := range []string{
		strings.Replace(list(`"trusted":["ab"]`), `"t"`, `"u"`, 1), strings.Replace(list(`"trusted":["ab"]`), "05:00Z", "06:00Z", 1),
		strings.Replace(list(`"trusted":["ab"]`), sha, strings.Repeat("0", 64), 1), list(`"trusted":["ab"]`), list(`"trusted":["a","b"]`), list(`"trusted":["a"],"contracts":["b"]`), list(`"contracts":["a","b"]`),
		list(`"trusted":[""]`), list(`"trusted":[]`), list(`"trusted":["1:a"]`), list(`"prover":"1"`),
		list(`"effects":[{"domain":"a","op":"bc"}]`), list(`"effects":[{"domain":"ab","op":"c"}]`), list(`"effects":[{"domain":"a","op":"b","status":"c"}]`),
		list(`"effects":[{"domain":"a","args":{"x":1}}]`), list(`"effects":[{"domain":"a","args":{"x":1.0}}]`), list(`"effects":[{"domain":"a","args":{"x":"1"}}]`),
		list(`"effects":[{"domain":"a"},{"domain":"b"}]`), list(`"effects":[{"domain":"b"},{"domain":"a"}]`), list(`"coverage":[{"domain":"a"}]`),
		list(`"coverage":[{"domain":"a","missing":["b"]}]`), list(`"coverage":[{"domain":"a","status":"b"}]`),
	} {
		b, err := facts.ProofBytes(approval.Raw(proof))
		require.NoError(t, err)
		if proof != list(`"trusted":[]`) {
			require.Empty(t, seen[string(b)], proof)
		}
		seen[string(b)] = proof
	}
	require.Len(t, seen, 22)
}

// Cards and rules use this one classification of evidence.
func TestByDomain(t *testing.T) {
	effect := func(domain, status string) approval.ProvenEffect {
		return approval.ProvenEffect{Domain: domain, Op: "x", Status: status}
	}
	e := approval.Evidence{
		Host: []approval.HostFact{{Domain: "mail", Name: "recipient", Values: []string{"bob"}}},
		Proof: &approval.Proof{
			Verified: true,
			Effects:  []approval.ProvenEffect{effect("email", "proven"), effect("Email ", "unknown"), effect("db", "proven"), effect("fs", "not_proven"), effect("own", "proven")},
			Coverage: []approval.ProofCoverage{{Domain: "net", Status: "covered"}, {Domain: "database", Status: "silent_gap"}, {Domain: "own", Status: "required_gap"}},
		},
	}
	var words []string
	for _, d := range facts.ByDomain(e) {
		words = append(words, fmt.Sprintf("%s v%d h%d u%d g%d %t c%d p%d known=%t", d.Domain, len(d.Verified), len(d.Host), len(d.Unknown), len(d.Gaps), d.Covered, len(d.Claimed), len(d.ClaimedCoverage), d.Known()))
	}
	require.Equal(t, []string{
		"database v1 h0 u0 g1 false c0 p0 known=true",
		"file v0 h0 u1 g0 false c0 p0 known=false",
		"host v0 h0 u0 g0 true c0 p0 known=true",
		"mail v1 h1 u1 g0 false c0 p0 known=false",
		"own v1 h0 u0 g1 false c0 p0 known=false",
	}, words)
	e.Proof.Verified = false
	for _, d := range facts.ByDomain(e) {
		require.False(t, d.Known() || d.Covered || len(d.Verified)+len(d.Unknown)+len(d.Gaps) > 0, d.Domain)
		require.Positive(t, len(d.Claimed)+len(d.ClaimedCoverage), d.Domain)
	}
	require.Empty(t, facts.ByDomain(approval.Evidence{}), "no evidence, no domains")
}

func TestUnknownProofWordsBecomeCareful(t *testing.T) {
	p := someProof(func(p map[string]any) {
		p["effects"].([]any)[0].(map[string]any)["status"] = "PROVEN"
		p["coverage"].([]any)[0].(map[string]any)["status"] = "perfect"
	})
	e := facts.Of(script(), requestWith(t, signWith(t, prover(), p)), provers(), noon())
	require.True(t, e.Proof.Verified)
	require.Equal(t, facts.Unknown, e.Proof.Effects[0].Status)
	require.Equal(t, facts.RequiredGap, e.Proof.Coverage[0].Status)
}

func TestValuesOf(t *testing.T) {
	for _, c := range []struct {
		why, args, arg string
		values         []string
		complete       bool
	}{
		{"one", `{"recipient":"a"}`, "recipients", []string{"a"}, true},
		{"all aliases", `{"to":"a","cc":["b",["c"]],"BCC":"d","subject":"x"}`, "recipient", []string{"a", "b", "c", "d"}, true},
		{"numbers as written", `{"amount":1e2}`, "amount", []string{"1e2"}, true},
		{"absent", `{"subject":"x"}`, "recipient", nil, false},
		{"no arguments", `null`, "recipient", nil, false},
		{"an empty list", `{"to":[]}`, "to", nil, true},
		{"an object among the values", `{"to":["a",{"row":"email"}]}`, "to", []string{"a"}, false},
		{"null", `{"to":null}`, "to", nil, false},
	} {
		values, complete := facts.ValuesOf(approval.ProvenEffect{Args: approval.Raw(c.args)}, c.arg)
		require.Equal(t, c.values, values, c.why)
		require.Equal(t, c.complete, complete, c.why)
	}
}

// Large or nested arguments are read in linear time.
func TestEvidenceIsLinear(t *testing.T) {
	tool := script()
	tool.Capability, tool.Target = "fs:write", "/x/{to}"
	ones := strings.TrimSuffix(strings.Repeat("1,", 120_000), ",")
	for why, data := range map[string]string{
		"a long list":   `{"to":[` + ones + `]}`,
		"a deep one":    `{"to":` + strings.Repeat("[", 30) + ones + strings.Repeat("]", 30) + `}`,
		"lists of none": `{"to":[` + strings.TrimSuffix(strings.Repeat("[],", 80_000), ",") + `]}`,
		"a long text":   `{"to":"` + strings.Repeat("/", 240_000) + `"}`,
	} {
		r := requestWith(t, approval.Raw(`{}`))
		r.RequestData = approval.Raw(data)
		for _, declared := range facts.ArgTypes() {
			tool.Args = argTypes("to", declared)
			began := time.Now()
			facts.Of(tool, r, provers(), noon())
			facts.Fill(tool, r.RequestData)
			require.Less(t, time.Since(began), hostileLimit, why, declared)
		}
	}
}

func FuzzProof(f *testing.F) {
	f.Add([]byte(`{}`), []byte(`{"code":"x"}`))
	f.Add([]byte(signWith(f, prover(), someProof(nil))), []byte(someData))
	f.Add([]byte(raw(f, someProof(nil))), []byte(`{"code":["x"],"to":[[],{},null,1,true],"url":"//x@y/\\"}`))
	f.Add([]byte(`{"effects":[{"domain":"a","args":{"b":[1e400,"\u0000"]}}]}`), []byte(`{"code":"a","code":"b"}`))
	f.Fuzz(func(t *testing.T, proof, data []byte) {
		r := requestWith(t, approval.Raw(proof))
		r.RequestData = approval.Raw(data)
		tool := script()
		tool.Capability, tool.Target = "network:http", "{url}"
		tool.Args = argTypes("to", "recipients", "url", "url", "code", "program", "file", "path")
		e := facts.Of(tool, r, provers(), noon())
		require.Equal(t, string(proof), string(r.Proof), "the request's bytes are unchanged")
		p := &approval.Pending{Version: 1, RequestID: someID, SourceGroup: "w", Timestamp: noon(), ExpiresAt: noon(), Facts: e}
		b, err := p.Encode()
		require.NoError(t, err, "it can be encoded")
		again, err := approval.ParsePending(b, approval.Key{Workspace: "w", ID: someID})
		require.NoError(t, err, "and parsed")
		twice, err := again.Encode()
		require.NoError(t, err)
		require.Equal(t, string(b), string(twice))
		for _, h := range e.Host {
			require.LessOrEqual(t, len(h.Values), 100)
		}
		if e.Proof == nil {
			return
		}
		require.NotEqual(t, e.Proof.Verified, !e.Proof.Why.IsZero(), "either verified or with a reason")
		require.Less(t, len(e.Proof.Why.String()), maxError)
		if e.Proof.Verified {
			require.Equal(t, approval.Digest([]byte(code)), e.Proof.ProgramSHA256, "the fuzzer has no key")
			require.Equal(t, approval.Digest([]byte(someData)), approval.Digest(data))
		}
	})
}
