package mailserver

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/emersion/go-msgauth/dkim"
	"github.com/stretchr/testify/require"
)

// The selectors of human.test's two keys.
const (
	selector    = "mail"
	rsaSelector = "rsa"
)

// keys are the DKIM keys of human.test.
type keys struct {
	ed25519 ed25519.PrivateKey
	rsa     *rsa.PrivateKey
}

func newKeys(t testing.TB) keys {
	t.Helper()
	_, ed, err := ed25519.GenerateKey(rand.Reader)
	require.NoError(t, err)
	r, err := rsa.GenerateKey(rand.Reader, 2048)
	require.NoError(t, err)
	return keys{ed25519: ed, rsa: r}
}

func (k keys) ed25519Record() string {
	public := k.ed25519.Public().(ed25519.PublicKey)
	return "v=DKIM1; k=ed25519; p=" + base64.StdEncoding.EncodeToString(public)
}

func (k keys) rsaRecord(t testing.TB) string {
	t.Helper()
	public, err := x509.MarshalPKIXPublicKey(&k.rsa.PublicKey)
	require.NoError(t, err)
	return "v=DKIM1; k=rsa; p=" + base64.StdEncoding.EncodeToString(public)
}

// Sign adds human.test's DKIM signatures to an email, as its mail server would: one for
// each algorithm, over all headers and over one more From, Subject and Date, so that none
// can be added.
func (v *Servers) Sign(t testing.TB, raw []byte) []byte {
	t.Helper()
	for name, signer := range map[string]crypto.Signer{rsaSelector: v.keys.rsa, selector: v.keys.ed25519} {
		var out bytes.Buffer
		require.NoError(t, dkim.Sign(&out, bytes.NewReader(raw), &dkim.SignOptions{
			Domain: "human.test", Selector: name, Signer: signer, HeaderKeys: signed,
			HeaderCanonicalization: dkim.CanonicalizationRelaxed, BodyCanonicalization: dkim.CanonicalizationRelaxed,
		}))
		raw = out.Bytes()
	}
	return raw
}

var signed = []string{
	"From", "From", "To", "Subject", "Subject", "Date", "Date", "Message-ID", "In-Reply-To", "References",
	"Reply-To", "MIME-Version", "Content-Type", "Content-Transfer-Encoding",
}

// Certificate makes a certificate for 127.0.0.1 and localhost that is its own authority.
// It returns the PEM files in dir.
func Certificate(t testing.TB, dir string) (cert, private string) {
	t.Helper()
	now := time.Now()
	own := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "localhost"},
		NotBefore: now.Add(-time.Hour), NotAfter: now.Add(24 * time.Hour),
		DNSNames: []string{"localhost"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	der, err := x509.CreateCertificate(rand.Reader, own, own, &key.PublicKey, key)
	require.NoError(t, err)
	pkcs8, err := x509.MarshalPKCS8PrivateKey(key)
	require.NoError(t, err)
	cert, private = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	writePEM(t, cert, "CERTIFICATE", der, 0o644)
	writePEM(t, private, "PRIVATE KEY", pkcs8, 0o600)
	return cert, private
}

func writePEM(t testing.TB, name, kind string, der []byte, mode os.FileMode) {
	t.Helper()
	require.NoError(t, os.WriteFile(name, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), mode))
}
