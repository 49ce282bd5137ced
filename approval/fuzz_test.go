package approval_test

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/codec"
)

// maxError bounds errors about untrusted bytes.
const maxError = 300

// seeds adds the golden document, damaged variants of it, and the samples of odd
// JSON.
func seeds(f *testing.F, name string) {
	f.Helper()
	golden, err := os.ReadFile(filepath.Join("..", "testdata", "documents", name+".json"))
	require.NoError(f, err)
	f.Add(golden)
	f.Add(golden[:len(golden)/2])
	f.Add(append(golden[:len(golden):len(golden)], golden...))
	f.Add([]byte(strings.Replace(string(golden), ":", " : ", 3)))
	f.Add([]byte(strings.Replace(string(golden), `"request_id"`, `"Request_ID"`, 1)))
	f.Add([]byte(strings.Replace(string(golden), "}", `,"x":{"a":1,"a":2}}`, 1)))
	f.Add([]byte(strings.Replace(string(golden), "1e400", nested(40), 1)))
	samples, err := filepath.Glob(filepath.Join("..", "testdata", "json", "*.json"))
	require.NoError(f, err)
	for _, file := range samples {
		b, err := os.ReadFile(file)
		require.NoError(f, err)
		f.Add(b)
	}
}

// FuzzRequest: any input is either a valid request or refused with one of two
// short errors.
func FuzzRequest(f *testing.F) {
	seeds(f, "request")
	f.Add([]byte(request(`"type":"question"`, `"title":"a"`, `"options":["a","b"]`)))
	f.Add([]byte(`{"request_id":"` + someID + `","action_type":"custom:x","expires_in_sec":60}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := approval.ParseRequest(b, someID)
		if err != nil {
			requireRefused(t, b, r, err)
			return
		}
		require.NoError(t, r.Validate(someID), "an accepted request is valid")
		require.Equal(t, someID, r.RequestID)
		require.NoError(t, codec.CheckDepth(b, codec.MaxDepth))
		require.True(t, jsontext.Value(b).IsValid(), "strictly valid JSON")
		requireVerbatim(t, b, "request_data", r.RequestData)
		_, err = codec.Fields(r.RequestData)
		require.NoError(t, err, "an object")

		once, err := r.Encode()
		require.NoError(t, err)
		again, err := approval.ParseRequest(once, someID)
		require.NoError(t, err)
		twice, err := again.Encode()
		require.NoError(t, err)
		require.Equal(t, string(once), string(twice))
		require.Equal(t, string(r.RequestData), string(again.RequestData))
	})
}

func requireRefused(t *testing.T, b []byte, r *approval.Request, err error) {
	t.Helper()
	require.Nil(t, r)
	require.NotEqual(t, errors.Is(err, approval.ErrIncomplete), errors.Is(err, approval.ErrMalformed), "one or the other: %v", err)
	require.Less(t, len(err.Error()), maxError)
	if errors.Is(err, approval.ErrIncomplete) {
		require.False(t, jsontext.Value(b).IsValid(), "complete JSON is not incomplete")
		_, worse := approval.ParseRequest(append(b[:len(b):len(b)], 0), someID)
		require.ErrorIs(t, worse, approval.ErrMalformed, "more bytes can make an incomplete request malformed")
	}
}

// requireVerbatim finds one key of an object independently, through a map of raw
// values.
func requireVerbatim(t *testing.T, object []byte, key string, got approval.Raw) {
	t.Helper()
	var members map[string]jsontext.Value
	require.NoError(t, json.Unmarshal(object, &members))
	if want, there := members[key]; there && want.Kind() != 'n' {
		require.Equal(t, string(want), string(got), key)
		require.Contains(t, string(object), string(got), key)
	}
}

// fuzzSealed fuzzes a document with a MAC. Only the daemon writes it, but later
// versions and damaged disks must not cause a panic or a value that encodes
// differently.
func fuzzSealed(f *testing.F, name string, verbatim ...string) {
	f.Helper()
	seeds(f, name)
	var doc document
	for _, d := range documents() {
		if d.name == name {
			doc = d
		}
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		v, err := doc.parse(b)
		if err != nil {
			require.True(t, reflect.ValueOf(v).IsNil(), "a document despite an error")
			require.Less(t, len(err.Error()), maxError)
			return
		}
		require.True(t, jsontext.Value(b).IsValid(), "strictly valid JSON")
		once := reencoded(t, v)
		for _, key := range verbatim {
			var members map[string]jsontext.Value
			require.NoError(t, json.Unmarshal(once, &members))
			requireVerbatim(t, b, key, members[key])
		}
		again, err := doc.parse(once)
		require.NoError(t, err, "an encoded document can be parsed")
		require.Equal(t, string(once), string(reencoded(t, again)))
	})
}

func reencoded(t *testing.T, v any) []byte {
	t.Helper()
	b, err := v.(interface{ Encode() ([]byte, error) }).Encode()
	require.NoError(t, err)
	return b
}

func FuzzPending(f *testing.F)  { fuzzSealed(f, "pending", "request_data", "proof") }
func FuzzDecision(f *testing.F) { fuzzSealed(f, "decision") }
func FuzzClaim(f *testing.F)    { fuzzSealed(f, "claim", "request", "pending", "decision") }
func FuzzRecord(f *testing.F)   { fuzzSealed(f, "record", "request", "pending", "decision", "response") }
func FuzzResponse(f *testing.F) { fuzzSealed(f, "response", "result") }
