package seal_test

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/security/seal"
)

var id = approval.Key{Workspace: "personal", ID: "a7f3b2c1d4e5f6a7"}

func testKey(t testing.TB) *seal.Key {
	t.Helper()
	key, err := seal.NewKey(bytes.Repeat([]byte{7}, seal.KeySize))
	require.NoError(t, err)
	return key
}

func TestFormat(t *testing.T) {
	body := `{"version":1,"text":"a"}`
	h := hmac.New(sha256.New, bytes.Repeat([]byte{7}, seal.KeySize))
	h.Write([]byte(`7:pending8:personal16:a7f3b2c1d4e5f6a7{"version":1,"text":"a"`))
	want := `{"version":1,"text":"a","mac":"` + hex.EncodeToString(h.Sum(nil)) + `"}`

	file := testKey(t).Seal(approval.DocPending, id, []byte(body))
	require.Equal(t, want, string(file), "the published format, computed by hand")

	opened, err := testKey(t).Open(approval.DocPending, id, file)
	require.NoError(t, err)
	require.Equal(t, body, string(opened))
	require.Equal(t, want, string(file), "Open does not change the file")
}

func TestEmptyObject(t *testing.T) {
	key := testKey(t)
	file := key.Seal(approval.DocRecord, id, []byte("{}"))
	require.True(t, strings.HasPrefix(string(file), `{"mac":"`), "valid JSON, no stray comma")
	body, err := key.Open(approval.DocRecord, id, file)
	require.NoError(t, err)
	require.Equal(t, "{}", string(body))

	withComma := append([]byte("{,"), file[1:]...)
	_, err = key.Open(approval.DocRecord, id, withComma)
	require.ErrorIs(t, err, seal.ErrSeal, "the same MAC in another form")
}

func TestSealRefusesNonObjects(t *testing.T) {
	for _, body := range []string{"", "{", "}", "[]", "null", `{"a":1}` + "\n", ` {"a":1}`} {
		file := testKey(t).Seal(approval.DocPending, id, []byte(body))
		require.Nil(t, file, "body %q", body)
	}
	_, err := testKey(t).Open(approval.DocPending, id, nil)
	require.ErrorIs(t, err, seal.ErrSeal)
}

func TestZeroKeyOpensNothing(t *testing.T) {
	var zero seal.Key
	file := testKey(t).Seal(approval.DocPending, id, []byte(`{"a":1}`))
	_, err := zero.Open(approval.DocPending, id, file)
	require.ErrorIs(t, err, seal.ErrSeal)
	require.Nil(t, zero.Seal(approval.DocPending, id, []byte(`{"a":1}`)))
}

func TestNewKeyRefusesOtherLengths(t *testing.T) {
	for _, n := range []int{0, 31, 33} {
		_, err := seal.NewKey(make([]byte, n))
		require.Error(t, err, "%d bytes", n)
	}
}

func TestOpenRefuses(t *testing.T) {
	key := testKey(t)
	good := string(key.Seal(approval.DocDecision, id, []byte(`{"approved":true,"n":12}`)))
	at := strings.LastIndex(good, `,"mac"`)
	mac := good[at+len(`,"mac":"`) : len(good)-2]

	for _, c := range []struct{ why, file string }{
		{"nothing", ""},
		{"no MAC at all", `{"approved":true,"n":12}`},
		{"only the tail", good[at+1:]},
		{"content changed", strings.Replace(good, "true", "null", 1)},
		{"content added in front", `{"x":1,` + good[1:]},
		{"member added at the end", good[:len(good)-1] + `,"x":1}`},
		{"a blank inside the tail", good[:at] + `, "mac":"` + mac + `"}`},
		{"a blank at the end", good + " "},
		{"a line feed at the end", good + "\n"},
		{"a byte order mark", "\ufeff" + good},
		{"upper-case digits", good[:at] + `,"mac":"` + strings.ToUpper(mac) + `"}`},
		{"an escaped digit", good[:at] + `,"mac":"\u0030` + mac[1:] + `"}`},
		{"another name", good[:at] + `,"MAC":"` + mac + `"}`},
		{"shortened", good[:at] + `,"mac":"` + mac[2:] + `"}`},
		{"not hex", good[:at] + `,"mac":"` + strings.Repeat("g", 64) + `"}`},
		{"empty MAC", good[:at] + `,"mac":""}`},
		{"torn", good[:len(good)-1]},
		{"zeros", string(make([]byte, len(good)))},
	} {
		body, err := key.Open(approval.DocDecision, id, []byte(c.file))
		require.ErrorIs(t, err, seal.ErrSeal, c.why)
		require.Nil(t, body, c.why)
	}
}

func TestSealIsForOneDocument(t *testing.T) {
	key := testKey(t)
	file := key.Seal(approval.DocPending, approval.Key{Workspace: "ab", ID: "cd"}, []byte(`{"a":1}`))
	for _, c := range []struct {
		why  string
		kind approval.Doc
		key  approval.Key
	}{
		{"another kind", approval.DocDecision, approval.Key{Workspace: "ab", ID: "cd"}},
		{"another workspace", approval.DocPending, approval.Key{Workspace: "xx", ID: "cd"}},
		{"another id", approval.DocPending, approval.Key{Workspace: "ab", ID: "ce"}},
		{"workspace and id split elsewhere", approval.DocPending, approval.Key{Workspace: "abc", ID: "d"}},
		{"a length inside a name", approval.DocPending, approval.Key{Workspace: "ab2:cd", ID: ""}},
	} {
		_, err := key.Open(c.kind, c.key, file)
		require.ErrorIs(t, err, seal.ErrSeal, c.why)
	}
	other, err := seal.NewKey(make([]byte, seal.KeySize))
	require.NoError(t, err)
	_, err = other.Open(approval.DocPending, approval.Key{Workspace: "ab", ID: "cd"}, file)
	require.ErrorIs(t, err, seal.ErrSeal, "another key")
}

func TestEveryFlippedBitIsDetected(t *testing.T) {
	key := testKey(t)
	file := key.Seal(approval.DocClaim, id, []byte(`{"tool":"x_post","args":"{\"mac\":\"no\"}"}`))
	for i := range file {
		for bit := range 8 {
			file[i] ^= 1 << bit
			_, err := key.Open(approval.DocClaim, id, file)
			require.ErrorIs(t, err, seal.ErrSeal, "byte %d bit %d", i, bit)
			file[i] ^= 1 << bit
		}
	}
}

func TestOpenIsTheInverseOfSeal(t *testing.T) {
	key := testKey(t)
	rapid.Check(t, func(t *rapid.T) {
		inner := rapid.String().Draw(t, "inner")
		kind := approval.Doc(rapid.String().Draw(t, "kind"))
		k := approval.Key{Workspace: rapid.String().Draw(t, "ws"), ID: rapid.String().Draw(t, "id")}
		body := "{" + inner + "}"
		got, err := key.Open(kind, k, key.Seal(kind, k, []byte(body)))
		if err != nil || string(got) != body {
			t.Fatalf("%q came back as %q, %v", body, got, err)
		}
	})
}

func TestConcurrentUse(t *testing.T) {
	key := testKey(t)
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			body := []byte(`{"g":` + strings.Repeat("1", g+1) + `}`)
			for range 200 {
				got, err := key.Open(approval.DocPending, id, key.Seal(approval.DocPending, id, body))
				if err != nil || !bytes.Equal(got, body) {
					t.Errorf("goroutine %d: %q, %v", g, got, err)
					return
				}
			}
		})
	}
	wg.Wait()
}

func FuzzOpen(f *testing.F) {
	key := testKey(f)
	f.Add(key.Seal(approval.DocPending, id, []byte(`{"a":1}`)))
	f.Add(key.Seal(approval.DocPending, id, []byte(`{}`)))
	f.Add([]byte(`{,"mac":"`))
	f.Fuzz(func(t *testing.T, file []byte) {
		body, err := key.Open(approval.DocPending, id, file)
		if err != nil {
			require.ErrorIs(t, err, seal.ErrSeal)
			return
		}
		require.Equal(t, file, key.Seal(approval.DocPending, id, body), "Seal of the body gives the same file")
	})
}

// BenchmarkOpen opens 10,000 pendings of 1 KiB a round, as a start-up sweep does.
func BenchmarkOpen(b *testing.B) {
	key := testKey(b)
	file := key.Seal(approval.DocPending, id, []byte(`{"text":"`+strings.Repeat("x", 1000)+`"}`))
	b.ReportAllocs()
	for b.Loop() {
		for range 10_000 {
			if _, err := key.Open(approval.DocPending, id, file); err != nil {
				b.Fatal(err)
			}
		}
	}
}
