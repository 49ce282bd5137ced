package deliver

import (
	"encoding/json"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/read"
	"github.com/permesso-dev/permesso/chat"
)

// A record as the first version of the Telegram channel wrote it.
const firstRecord = `{"version":1,"state":"sent","pending_sha256":"5e","began":"2026-11-21T12:00:00Z","reminded":true,"last":2,"posts":[` +
	`{"n":1,"chat_id":-1001000000002,"thread_id":7,"language":"it","nonces":{"1":"ab","open":"cd"},"message_id":42,"sent_at":"2026-11-21T12:00:01Z",` +
	`"phase":"asked","shown":"0123456789abcdef","whole":true,"life":"f0","prompts":[{"message_id":43,"verb":"4"}]},` +
	`{"n":2,"chat_id":1001,"language":"en","nonces":{"1":"ef"},"digest":"99","life":"f0"}]}`

func TestRecordOfTheFirstVersion(t *testing.T) {
	p, err := parseRecord([]byte(firstRecord))
	require.NoError(t, err)
	require.Equal(t, Address{"-1001000000002", "7"}, p.Copies[0].address())
	require.Equal(t, ID("42"), p.Copies[0].Message)
	require.Equal(t, []prompt{{"43", "4"}}, p.Copies[0].Prompts)
	require.Equal(t, Address{Chat: "1001"}, p.Copies[1].address())
	require.Empty(t, p.Copies[1].Message)
	written, err := p.encode()
	require.NoError(t, err)
	require.Equal(t, []byte(firstRecord+"\n"), written, "so that an earlier version reads it") //nolint:testifylint // byte for byte
}

// Digests, feeds and quiet hours of the first version.
func TestStateOfTheFirstVersion(t *testing.T) {
	d := &digest{}
	require.NoError(t, json.Unmarshal([]byte(`{"id":"99","workspace":"personal","chat_id":1001,"thread_id":3,"language":"en","message_id":44,"requests":["a"],"added":"2026-11-21T12:00:00Z"}`), d))
	require.Equal(t, Address{"1001", "3"}, d.address())
	require.Equal(t, ID("44"), d.Message)
	to := Place{Address: Address{Chat: "-77"}}
	require.Equal(t, "feed-personal_-77_0.json", feedName("personal", to))
	require.Equal(t, "-77/0", placeName(to))
}

// A record may be removed after the pass has read it: its last card was edited meanwhile.
func TestSettleOfARemovedRecord(t *testing.T) {
	s := &session{Channel: &Channel{}, sent: newSentIndex(nil)}
	require.NoError(t, s.settle(approval.Key{Workspace: "w", ID: "a"}, &sentRecord{}, status{}))
}

// noStore keeps nothing.
type noStore struct{ chat.SentStore }

func (noStore) Save(approval.Key, []byte) error { return nil }
func (noStore) Remove(approval.Key) error       { return nil }

// The card of a line may show the outcome before the pass has seen the decision: the list is edited all the same.
func TestListOfARemovedRecord(t *testing.T) {
	k := approval.Key{Workspace: "w", ID: "0123456789abcdef"}
	s := &session{Channel: &Channel{Style: func(string) chat.Style { return chat.Style{} }}, sent: newSentIndex(noStore{}), ctx: t.Context()}
	s.outbox = &outbox{ctx: t.Context(), queues: map[ID]*queue{}, delay: func(ID, int) time.Duration { return time.Hour }}
	s.digests.all = map[string]*digest{"d": {ID: "d", Chat: "7"}}
	require.NoError(t, s.sent.update(k, func(p *sentRecord) error {
		p.Copies = []*sentCopy{{Number: 1, Chat: "7", Digest: "d", CardWanted: true}}
		return nil
	}))
	require.NoError(t, s.closeCard(t.Context(), k, s.sent.record(k).byNumber(1), status{Story: read.Story{Record: &approval.Record{}}}))
	require.Nil(t, s.sent.record(k))
	s.outbox.mu.Lock()
	defer s.outbox.mu.Unlock()
	require.Contains(t, s.outbox.queues, ID("7"))
	require.Len(t, s.outbox.queues["7"].jobs, 1)
	require.Equal(t, digestName("d"), s.outbox.queues["7"].jobs[0].name)
}

// A search goes from the newest message to the oldest: each is its own copy's, so that the buttons that it has work.
func TestFoundMessagesAreThoseOfTheirCopies(t *testing.T) {
	k := approval.Key{Workspace: "w", ID: "0123456789abcdef"}
	s := &session{Channel: &Channel{}, sent: newSentIndex(noStore{}), ctx: t.Context(), touched: make(chan approval.Key, 9)}
	require.NoError(t, s.sent.update(k, func(p *sentRecord) error {
		p.Copies = []*sentCopy{{Number: 1, Chat: "7", MaybeSent: true}, {Number: 2, Chat: "7", MaybeSent: true}, {Number: 3, Chat: "7", Message: "30"}}
		return nil
	}))
	c := &candidates{session: s, key: k, at: Address{Chat: "7"}}
	require.True(t, c.claim("20"), "one more is lost")
	require.False(t, c.claim("10"))
	require.False(t, c.claim("5"), "none is lost")
	for n, id := range []ID{"10", "20", "30"} {
		require.Equal(t, id, s.sent.record(k).byNumber(n+1).Message)
	}
}

func TestIDs(t *testing.T) {
	for text, want := range map[string]ID{`5`: "5", `-5`: "-5", `0`: "", `""`: "", `"05"`: "05", `"ann@example.org"`: "ann@example.org", `9007199254740993`: "9007199254740993"} {
		var id ID
		require.NoError(t, json.Unmarshal([]byte(text), &id), text)
		require.Equal(t, want, id)
		b, err := json.Marshal(id)
		require.NoError(t, err)
		var again ID
		require.NoError(t, json.Unmarshal(b, &again), text)
		require.Equal(t, id, again)
	}
	require.Error(t, json.Unmarshal([]byte(`1.5`), new(ID)))
	require.Regexp(t, "^[0-9a-f]{32}$", ID("ann@example.org").inName())
}

// Each attempt with an unknown result has a secret, and a reply with any of them is one to the card.
func TestSecretsOfManyAttempts(t *testing.T) {
	x := &sentCopy{}
	for i := range 80 {
		x.addSecret(strconv.Itoa(i))
	}
	l := Letter{secrets: x.Secrets}
	for i := range 80 {
		require.True(t, l.Carries(strconv.Itoa(i)), i)
	}
	for i := range 1000 {
		x.addSecret("again" + strconv.Itoa(i))
	}
	l.secrets = x.Secrets
	require.Len(t, x.Secrets, 100)
	require.True(t, l.Carries("0"))
	require.True(t, l.Carries("again999"))
}
