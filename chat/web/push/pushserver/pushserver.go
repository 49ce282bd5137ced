// Package pushserver simulates a push service and the browsers behind it, for tests. It decrypts as RFC 8291 says and
// verifies signatures as RFC 8292 says, in its own way.
package pushserver

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/ecdh"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"math/big"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/permesso-dev/permesso/chat/deliver/channeltest"
)

// Message is a message that a browser got.
type Message struct {
	Browser string // its name
	Topic   string
	Urgency string
	TTL     int
	Payload []byte
}

// Browser is a subscribed browser.
type Browser struct {
	Name           string
	Endpoint       string
	Key, Auth      string // as it gives them to a page
	ApplicationKey string // the key that it subscribed with

	private *ecdh.PrivateKey
	auth    []byte
}

// Server is a push service.
type Server struct {
	URL string

	channeltest.Calls[Message]
	browsers map[string]*Browser
}

// New starts a service on loopback, which ends with the test.
func New(t *testing.T) *Server {
	s := &Server{browsers: map[string]*Browser{}}
	web := httptest.NewUnstartedServer(s)
	s.URL = "http://" + web.Listener.Addr().String() // before the first call
	web.Start()
	t.Cleanup(web.Close)
	return s
}

// Subscribe subscribes a new browser with the key of an application.
func (s *Server) Subscribe(name, applicationKey string) *Browser {
	private, err := ecdh.P256().GenerateKey(rand.Reader)
	if err != nil {
		panic(err)
	}
	b := &Browser{Name: name, Endpoint: s.URL + "/send/" + name, ApplicationKey: applicationKey, private: private, auth: make([]byte, 16)}
	_, _ = rand.Read(b.auth)
	b.Key, b.Auth = encode(private.PublicKey().Bytes()), encode(b.auth)
	s.Lock()
	defer s.Unlock()
	s.browsers[name] = b
	return b
}

// Unsubscribe makes a browser unknown.
func (s *Server) Unsubscribe(name string) {
	s.Lock()
	defer s.Unlock()
	delete(s.browsers, name)
}

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodGet {
		s.forBrowser(w, r)
		return
	}
	s.Lock()
	defer s.Unlock()
	code, _ := s.Take(func() (int, string) { return s.take(r) })
	switch code {
	case http.StatusTooManyRequests:
		w.Header().Set("Retry-After", "1")
	case http.StatusFound, http.StatusTemporaryRedirect:
		w.Header().Set("Location", s.URL+"/elsewhere")
	}
	w.WriteHeader(code)
}

// forBrowser answers a scenario that plays the browser: GET /subscribe/NAME?key=KEY, and GET /messages/NAME for the
// payloads so far.
func (s *Server) forBrowser(w http.ResponseWriter, r *http.Request) {
	var answer any
	if name, ok := strings.CutPrefix(r.URL.Path, "/subscribe/"); ok {
		b := s.Subscribe(name, r.URL.Query().Get("key"))
		answer = map[string]string{"endpoint": b.Endpoint, "p256dh": b.Key, "auth": b.Auth}
	} else {
		texts := []string{}
		for _, m := range s.Messages() {
			if "/messages/"+m.Browser == r.URL.Path {
				texts = append(texts, string(m.Payload))
			}
		}
		answer = texts
	}
	_ = json.NewEncoder(w).Encode(answer) // the scenario may have ended
}

var topicForm = regexp.MustCompile(`^[A-Za-z0-9_-]{1,32}$`)

// take handles one call as RFC 8030 says.
func (s *Server) take(r *http.Request) (code int, why string) {
	b := s.browsers[strings.TrimPrefix(r.URL.Path, "/send/")]
	m := Message{Topic: r.Header.Get("Topic"), Urgency: r.Header.Get("Urgency")}
	ttl, err := strconv.Atoi(r.Header.Get("TTL"))
	body, readErr := io.ReadAll(io.LimitReader(r.Body, 4097))
	switch {
	case b == nil:
		return http.StatusGone, "no such subscription"
	case r.Method != http.MethodPost:
		return http.StatusMethodNotAllowed, "not POST"
	case err != nil || ttl < 0:
		return http.StatusBadRequest, "TTL is missing"
	case m.Topic != "" && !topicForm.MatchString(m.Topic):
		return http.StatusBadRequest, "Topic is not valid"
	case m.Urgency != "high" && m.Urgency != "low":
		return http.StatusBadRequest, "Urgency is not as expected"
	case r.Header.Get("Content-Encoding") != "aes128gcm":
		return http.StatusBadRequest, "Content-Encoding is not aes128gcm"
	case readErr != nil || len(body) > 4096:
		return http.StatusRequestEntityTooLarge, "too large"
	}
	if err := verify(r.Header.Get("Authorization"), s.URL, b.ApplicationKey, time.Now()); err != nil {
		return http.StatusForbidden, err.Error()
	}
	m.Browser, m.TTL = b.Name, ttl
	if m.Payload, err = Decrypt(b.private, b.auth, body); err != nil {
		return http.StatusBadRequest, err.Error() // a real service cannot see it
	}
	s.Kept = append(s.Kept, m)
	return http.StatusCreated, ""
}

var authorization = regexp.MustCompile(`^vapid t=([A-Za-z0-9_-]+)\.([A-Za-z0-9_-]+)\.([A-Za-z0-9_-]+), k=([A-Za-z0-9_-]+)$`)

// verify checks an Authorization header.
func verify(header, origin, key string, now time.Time) error {
	p := authorization.FindStringSubmatch(header)
	if p == nil {
		return fmt.Errorf("the authorization has another form")
	}
	if p[4] != key {
		return fmt.Errorf("signed by another key than that of the subscription")
	}
	var head struct{ Typ, Alg string }
	var claims struct {
		Aud, Sub string
		Exp      int64
	}
	if json.Unmarshal(decode(p[1]), &head) != nil || json.Unmarshal(decode(p[2]), &claims) != nil || head.Alg != "ES256" || head.Typ != "JWT" {
		return fmt.Errorf("the token is not a JWT with ES256")
	}
	until := time.Unix(claims.Exp, 0)
	if claims.Aud != origin || !until.After(now) || until.Sub(now) > 24*time.Hour || !strings.HasPrefix(claims.Sub, "https://") {
		return fmt.Errorf("the claims are wrong: %+v", claims)
	}
	public, err := ecdsa.ParseUncompressedPublicKey(elliptic.P256(), decode(key))
	signature := decode(p[3])
	if err != nil || len(signature) != 64 {
		return fmt.Errorf("the key or the signature has another size")
	}
	sum := sha256.Sum256([]byte(p[1] + "." + p[2]))
	r, s := new(big.Int).SetBytes(signature[:32]), new(big.Int).SetBytes(signature[32:])
	if !ecdsa.Verify(public, sum[:], r, s) {
		return fmt.Errorf("the signature is wrong")
	}
	return nil
}

// Decrypt decrypts a body as RFC 8291 says, with the keys of a browser.
func Decrypt(private *ecdh.PrivateKey, auth, body []byte) ([]byte, error) {
	if len(body) < 21 || len(body) < 21+int(body[20]) {
		return nil, fmt.Errorf("the header is cut")
	}
	salt, sender := body[:16], body[21:21+int(body[20])]
	public, err := ecdh.P256().NewPublicKey(sender)
	if err != nil {
		return nil, err
	}
	secret, err := private.ECDH(public)
	if err != nil {
		return nil, err
	}
	mac := func(key []byte, parts ...string) []byte {
		h := hmac.New(sha256.New, key)
		for _, p := range parts {
			h.Write([]byte(p))
		}
		return h.Sum(nil)
	}
	ikm := mac(mac(auth, string(secret)), "WebPush: info\x00", string(private.PublicKey().Bytes()), string(sender), "\x01")
	prk := mac(salt, string(ikm))
	block, err := aes.NewCipher(mac(prk, "Content-Encoding: aes128gcm\x00\x01")[:16])
	if err != nil {
		return nil, err
	}
	gcm, err := cipher.NewGCM(block)
	if err != nil {
		return nil, err
	}
	text, err := gcm.Open(nil, mac(prk, "Content-Encoding: nonce\x00\x01")[:12], body[21+len(sender):], nil)
	if err != nil {
		return nil, err
	}
	text = []byte(strings.TrimRight(string(text), "\x00"))
	if len(text) == 0 || text[len(text)-1] != 2 {
		return nil, fmt.Errorf("the record does not end as the last one does")
	}
	return text[:len(text)-1], nil
}

func encode(b []byte) string { return base64.RawURLEncoding.EncodeToString(b) }

func decode(s string) []byte {
	b, _ := base64.RawURLEncoding.DecodeString(s) // what is malformed is refused later
	return b
}
