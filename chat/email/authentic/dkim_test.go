package authentic

import (
	"bytes"
	"context"
	"crypto"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/emersion/go-msgauth/dkim"
	"github.com/stretchr/testify/require"
)

// rfcKeys are the records of RFC 6376, appendix C, and RFC 8463, appendix A.2.
var rfcKeys = map[string]string{
	"brisbane._domainkey.example.com": "v=DKIM1; p=MIGfMA0GCSqGSIb3DQEBAQUAA4GNADCBiQ" +
		"KBgQDwIRP/UC3SBsEmGqZ9ZJW3/DkMoGeLnQg1fWn7/zYtIxN2SnFCjxOCKG9v3b4jYfcTNh5ijSsq631uBItLa7od+v" +
		"/RtdC2UzJ1lWT947qR+Rcac2gbto/NMqJ0fzfVjH4OuKhitdY9tf6mcwGjaNBcWToIMmPSPDdQPNUYckcQ2QIDAQAB",
	"brisbane._domainkey.football.example.com": "v=DKIM1; k=ed25519; p=11qYAYKxCrfVS/7TyWQHOg7hcvPapiMlrwIaaPcHURo=",
	"test._domainkey.football.example.com": "v=DKIM1; k=rsa; p=MIGfMA0GCSqGSIb3DQEBAQUAA4GNADCBiQ" +
		"KBgQDkHlOQoBTzWRiGs5V6NpP3idY6Wk08a5qhdR6wy5bdOKb2jLQiY/J16JYi0Qvx/byYzCNb3W91y3FutACDfzwQ/BC/e/8uBsCR+yz1" +
		"Lxj+PL6lHvqMKrM3rG4hstT5QjvHO9PzoxZyVYLzBfO2EeC3Ip3G+2kryOTIKT+l/K4w3QIDAQAB",
}

// fixed answers from a table. A name outside the table does not exist.
func fixed(records map[string]string) func(context.Context, string) ([]string, error) {
	return func(_ context.Context, name string) ([]string, error) {
		if record, ok := records[name]; ok {
			return []string{record}, nil
		}
		return nil, &net.DNSError{Err: "no such host", Name: name, IsNotFound: true}
	}
}

func rfcMail(t *testing.T, name string) []byte {
	b, err := os.ReadFile(filepath.Join("..", "..", "..", "testdata", "mail", "dkim", name))
	require.NoError(t, err)
	return bytes.ReplaceAll(b, []byte("\n"), []byte("\r\n"))
}

func TestVectorsOfTheRFCs(t *testing.T) {
	ctx, mail := context.Background(), rfcMail(t, "rfc8463.eml")
	for missing := range rfcKeys {
		// Each of the two signatures of RFC 8463 alone.
		records := map[string]string{}
		for name, record := range rfcKeys {
			if name != missing {
				records[name] = record
			}
		}
		address, how, err := senderBy((&Authenticator{DKIM: true, Lookup: fixed(records)}), ctx, mail)
		require.NoError(t, err, "without %s", missing)
		require.Equal(t, "joe@football.example.com by dkim football.example.com", address+" by "+how)
	}
	// The one of RFC 6376 is by the parent of the From domain: the signature is valid, and
	// the DMARC record decides whether it counts.
	mail = rfcMail(t, "rfc6376.eml")
	for policy, proved := range map[string]bool{"": false, "v=DMARC1; p=none": true, "v=DMARC1; p=none; adkim=r": true, "v=DMARC1; p=none; adkim=s": false} {
		records := map[string]string{"brisbane._domainkey.example.com": rfcKeys["brisbane._domainkey.example.com"]}
		if policy != "" {
			records["_dmarc.example.com"] = policy
		}
		address, how, err := senderBy((&Authenticator{DKIM: true, Lookup: fixed(records)}), ctx, mail)
		if !proved {
			require.ErrorContains(t, err, "it is signed by example.com", policy)
			continue
		}
		require.NoError(t, err, policy)
		require.Equal(t, "joe@football.example.com by dkim example.com", address+" by "+how)
		_, _, err = senderBy((&Authenticator{DKIM: true, Lookup: fixed(records)}), ctx, bytes.Replace(mail, []byte("hungry"), []byte("thirsty"), 1))
		require.ErrorContains(t, err, "body hash")
	}
}

// Every form that a current signer writes.
func TestSignedByTheLibrary(t *testing.T) {
	_, edKey, err := ed25519.GenerateKey(rand.Reader)
	require.NoError(t, err)
	keys := map[string]crypto.Signer{"ed25519": edKey}
	for _, bits := range []int{1024, 2048} {
		keys[fmt.Sprint("rsa", bits)], err = rsa.GenerateKey(rand.Reader, bits)
		require.NoError(t, err)
	}
	records := map[string]string{}
	for selector, key := range keys {
		records[selector+"._domainkey.human.test"] = recordOf(t, key)
	}
	a := &Authenticator{DKIM: true, Lookup: fixed(records)}
	canons := []dkim.Canonicalization{dkim.CanonicalizationSimple, dkim.CanonicalizationRelaxed}
	for selector, key := range keys {
		for _, head := range canons {
			for _, body := range canons {
				for _, names := range [][]string{nil, {"From", "Subject"}, {"From", "Subject", "Date", "From", "Subject", "Sender", "Content-Type"}} {
					signed := librarySigned(t, &dkim.SignOptions{
						Domain: "human.test", Selector: selector, Signer: key, HeaderCanonicalization: head, BodyCanonicalization: body,
						HeaderKeys: names, Expiration: time.Now().Add(time.Hour),
					})
					requireOnlyAsSigned(t, a, signed, fmt.Sprintln(selector, head, body, names))
				}
			}
		}
	}
}

func recordOf(t *testing.T, key crypto.Signer) string {
	if public, ok := key.Public().(ed25519.PublicKey); ok {
		return "v=DKIM1; k=ed25519; p=" + base64.StdEncoding.EncodeToString(public)
	}
	der, err := x509.MarshalPKIXPublicKey(key.Public())
	require.NoError(t, err)
	return "v=DKIM1; k=rsa; p=" + base64.StdEncoding.EncodeToString(der)
}

func librarySigned(t *testing.T, options *dkim.SignOptions) []byte {
	t.Helper()
	mail := strings.ReplaceAll("From: ricardo@human.test\r\nTo: permesso@home.test\r\nSubject: Re: Post to X"+
		"\r\nDate: Mon, 05 Jan 2026 10:00:00 +0000\r\nContent-Type: text/plain; charset=utf-8\r\n\r\n"+
		"4 but leave out  my name \r\n  \r\n> card\r\n\r\n\r\n\r\n\r\n", "\r\nDate", "\r\n  [appr_a7f3b2c1]\r\nDate")
	var signed bytes.Buffer
	require.NoError(t, dkim.Sign(&signed, strings.NewReader(mail), options))
	return signed.Bytes()
}

// requireOnlyAsSigned checks that the email is proved unchanged, also with the line ends
// of a maildir, and not after a change of a signed part.
func requireOnlyAsSigned(t *testing.T, a *Authenticator, mail []byte, what string) {
	t.Helper()
	for _, form := range [][]byte{mail, bytes.ReplaceAll(mail, []byte("\r\n"), []byte("\n"))} {
		address, how, err := senderBy(a, context.Background(), form)
		require.NoError(t, err, what)
		require.Equal(t, "ricardo@human.test by dkim human.test", address+" by "+how, what)
	}
	for _, change := range [][2]string{{"\r\n4 but", "\r\n5 but"}, {"ricardo@", "mallory@"}, {"appr_a7", "appr_b7"}, {"> card", "> card\r\n1"}} {
		require.Contains(t, string(mail), change[0])
		_, _, err := senderBy(a, context.Background(), bytes.Replace(mail, []byte(change[0]), []byte(change[1]), 1))
		require.ErrorContains(t, err, "is not valid", "%s %s", what, change[1])
	}
}
