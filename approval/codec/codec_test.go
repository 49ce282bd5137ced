package codec

import (
	"bufio"
	"io"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// Encode's own path for strings must give the library's output.
func TestStringEncodingMatchesLibrary(t *testing.T) {
	type doc struct {
		Text string `json:"text"`
	}
	for _, text := range []string{"", "a", "\"\\/\b\f\n\r\t", "\x00\x1f\x7f\u0080\u2028\u2029<>&", "\ufffd\U0010ffff", "\xff", "a\xc3", "\xed\xa0\x80"} {
		requireSameEncoding(t, text, doc{text})
	}
	rapid.Check(t, func(t *rapid.T) {
		text := string(rapid.SliceOf(rapid.Byte()).Draw(t, "bytes")) + rapid.String().Draw(t, "text")
		requireSameEncoding(t, text, doc{text})
	})
}

func requireSameEncoding(t require.TestingT, text string, v any) {
	got, err := Encode(v)
	want, otherErr := json.Marshal(v)
	require.Equal(t, otherErr != nil, err != nil, "%q: %v, %v", text, err, otherErr)
	if err == nil {
		require.Equal(t, string(want), string(got), "%q", text)
	}
}

func TestFields(t *testing.T) {
	fields, err := Fields(jsontext.Value(" { \"b\" : 1e400 , \"\\u0061\":\"x\\ny\", \"c\":{ \"d\" : [ ] },\"\":null } "))
	require.NoError(t, err)
	require.Equal(t, []Field{
		{Name: "b", Value: jsontext.Value("1e400")},
		{Name: "a", Value: jsontext.Value(`"x\ny"`)},
		{Name: "c", Value: jsontext.Value(`{ "d" : [ ] }`)},
		{Name: "", Value: jsontext.Value("null")},
	}, fields, "in the order written, values verbatim, names unescaped")

	text, ok := fields[1].Text()
	require.True(t, ok)
	require.Equal(t, "x\ny", text)
	for _, i := range []int{0, 2, 3} {
		_, ok := fields[i].Text()
		require.False(t, ok, "%s is not text", fields[i].Value)
	}
	_, ok = Field{Value: jsontext.Value(`"half`)}.Text()
	require.False(t, ok, "an unfinished string is not text")

	none, err := Fields(jsontext.Value("{}"))
	require.NoError(t, err)
	require.Empty(t, none)
	for _, bad := range []string{"", "null", "[]", `"x"`, "1", "{", `{"a"`, `{"a":`, `{"a":1`, `{"a":1,`, `{"a":1,"a":2}`, `{"a" 1}`, "{1:2}", "{\"a\":\"\xff\"}"} {
		_, err := Fields(jsontext.Value(bad))
		require.Error(t, err, bad)
	}
}

func TestFieldsAreCopies(t *testing.T) {
	object := []byte(`{"a":"ann"}`)
	fields, err := Fields(object)
	require.NoError(t, err)
	copy(object, `{"a":"eve"}`)
	require.Equal(t, `"ann"`, string(fields[0].Value), "fields are copies")
}

func TestReadLine(t *testing.T) {
	t.Parallel()
	r := bufio.NewReaderSize(strings.NewReader("one\n"+strings.Repeat("x", 99)+"\nlast"), 16)
	for _, want := range []string{"one\n", strings.Repeat("x", 99) + "\n"} {
		line, err := ReadLine(r, 100)
		require.NoError(t, err)
		require.Equal(t, want, string(line))
	}
	line, err := ReadLine(r, 100)
	require.ErrorIs(t, err, io.EOF)
	require.Equal(t, "last", string(line))
	_, err = ReadLine(bufio.NewReaderSize(strings.NewReader(strings.Repeat("x", 101)), 16), 100)
	require.ErrorContains(t, err, "a message is larger than")
}

func TestWritten(t *testing.T) {
	t.Parallel()
	const object = `{"a":1.50,"b\"":[ 1,2 ],"":null}`
	fields, err := Fields(jsontext.Value(object))
	require.NoError(t, err)
	require.Equal(t, []string{object}, []string{string(Object(fields))}, "byte for byte")
	require.Equal(t, "{}", string(Object(nil)))
	items, err := Items(jsontext.Value(`[1.50,{"a": 1},"x"]`))
	require.NoError(t, err)
	require.Equal(t, `[1.50,{"a": 1},"x"]`, string(Array(items)))
	require.Equal(t, "[]", string(Array(nil)))
	require.Equal(t, "\"a\\\"\u2028\ufffd\"", string(Quote("a\"\u2028\xff")))
}

// TestAt: a JSON pointer names one part of a value, as RFC 6901 says, or none.
func TestAt(t *testing.T) {
	const doc = `{"a":{"b/c~d":[1,"x",null]},"":7,"0":"zero","list":["p"]}`
	for pointer, want := range map[string]string{
		"": doc, "/a/b~1c~0d/1": `"x"`, "/a/b~1c~0d/2": "null", "/": "7", "/0": `"zero"`, "/list/0": `"p"`,
	} {
		v, ok := At(jsontext.Value(doc), pointer)
		require.True(t, ok, pointer)
		require.Equal(t, want, string(v), pointer)
	}
	for _, pointer := range []string{"a", "/x", "/a/b", "/list/1", "/list/00", "/list/-", "/list/0/0", "/a/b~1c~0d/1/0", "/list/", "/list/+0"} {
		_, ok := At(jsontext.Value(doc), pointer)
		require.False(t, ok, pointer)
	}
	_, ok := At(nil, "")
	require.False(t, ok)
}
