package mailserver

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"text/template"
	"time"

	"github.com/stretchr/testify/require"
)

// The people of the village. All but Eve, whose domain publishes nothing, live
// in domains with a DKIM key or none needed; every one has a mailbox here.
const (
	Gate = "permesso@gate.test" // the gate
	Ann  = "ann@human.test"     // an approver
	Bob  = "bob@human.test"     // somebody else of the same domain
	Eve  = "eve@elsewhere.test" // a stranger: no DKIM, no DMARC

	// Password is that of everybody.
	Password = "open-sesame-7"

	// Later is refused for the time being (451), Never for good (550).
	Later = "later@human.test"
	Never = "never@human.test"
)

var users = []string{Gate, Ann, Bob, Eve}

// patience is how long anything here may take on a busy machine.
const patience = time.Minute

// Village is a running set of servers. The addresses are "127.0.0.1:port".
type Village struct {
	SMTP  string // submission: STARTTLS, then AUTH PLAIN or LOGIN
	SMTPS string // submission with TLS from the first byte
	MX    string // where other servers deliver: plain, no login
	IMAP  string // STARTTLS before login
	IMAPS string
	LMTP  string
	DNS   string // UDP

	CAFile string // PEM: who signed the servers' certificates, for 127.0.0.1 and localhost
	Dir    string // everything, also the servers' logs

	keys    keys
	txt     map[string]string
	smtpd   *server
	dovecot *server
	dnsmasq *server
}

// Start has the servers up when it returns, and ends them with the test. A
// failed test prints what they wrote.
func Start(t testing.TB) *Village {
	t.Helper()
	requirements(t)
	v := &Village{Dir: folder(t)}
	_, key, ca := Certificates(t, v.Dir)
	toNobody(t, key)
	v.CAFile = ca
	v.keys = newKeys(t)
	v.txt = map[string]string{
		selector + "._domainkey.human.test":    v.keys.ed25519Record(),
		rsaSelector + "._domainkey.human.test": v.keys.rsaRecord(t),
		"_dmarc.human.test":                    "v=DMARC1; p=reject",
	}
	v.smtpd = &server{name: "smtpd", dir: v.Dir}
	v.dovecot = &server{name: "dovecot", dir: v.Dir}
	v.dnsmasq = &server{name: "dnsmasq", dir: v.Dir}
	t.Cleanup(func() {
		for _, s := range []*server{v.smtpd, v.dovecot, v.dnsmasq} {
			s.stop()
			if t.Failed() {
				t.Logf("%s wrote:\n%s", s.name, s.log())
			}
		}
	})
	// A port that is free may be taken before its server binds it: then all move.
	for try := 1; ; try++ {
		err := v.open(t)
		if err == nil {
			return v
		}
		if try == 5 {
			require.NoError(t, err)
		}
		v.smtpd.stop()
		v.dovecot.stop()
		v.dnsmasq.stop()
	}
}

// open writes the settings for fresh ports and starts everything side by side.
func (v *Village) open(t testing.TB) error {
	ports := freePorts(t, 7)
	for i, at := range []*string{&v.SMTP, &v.SMTPS, &v.MX, &v.IMAP, &v.IMAPS, &v.LMTP, &v.DNS} {
		*at = net.JoinHostPort("127.0.0.1", strconv.Itoa(ports[i]))
	}
	v.configure(t)
	var wait sync.WaitGroup
	errs := make([]error, 3)
	for i, start := range []func() error{v.startSMTPD, v.startDovecot, v.startDNS} {
		wait.Go(func() { errs[i] = start() })
	}
	wait.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// StopDovecot kills it, as a power cut would: no submission, no IMAP, no LMTP.
func (v *Village) StopDovecot() { v.dovecot.stop() }

// StartDovecot starts it again, on the same ports.
func (v *Village) StartDovecot(t testing.TB) {
	t.Helper()
	require.NoError(t, v.startDovecot())
}

// StopSMTPD kills OpenSMTPD: submission refuses for the time being, and nothing is
// delivered.
func (v *Village) StopSMTPD() { v.smtpd.stop() }

// StartSMTPD starts it again, on the same port.
func (v *Village) StartSMTPD(t testing.TB) {
	t.Helper()
	require.NoError(t, v.startSMTPD())
}

// Publish adds a TXT record, or replaces one: dnsmasq starts anew.
func (v *Village) Publish(t testing.TB, name, txt string) {
	t.Helper()
	v.txt[name] = txt
	v.dnsmasq.stop()
	require.NoError(t, v.startDNS())
}

// LookupTXT asks the village's DNS, as net.LookupTXT does.
func (v *Village) LookupTXT(name string) ([]string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	return v.Resolver().LookupTXT(ctx, name)
}

// Resolver asks the village's DNS whatever a net.Resolver can be asked.
func (v *Village) Resolver() *net.Resolver {
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "udp", v.DNS)
	}}
}

func (v *Village) startSMTPD() error {
	return v.smtpd.start([]string{v.MX},
		// A spool and a control socket of its own, whatever the machine has.
		[]string{"--bind", filepath.Join(v.Dir, "spool"), "/var/spool", "--bind", filepath.Join(v.Dir, "run"), "/run"},
		"smtpd", "-d", "-f", filepath.Join(v.Dir, "smtpd.conf"))
}

// startDovecot removes the locks of one that was killed. Dovecot would do so itself
// if its processes did not get the same numbers again, and seem to hold them still.
func (v *Village) startDovecot() error {
	locks, _ := filepath.Glob(filepath.Join(v.Dir, "boxes", "*", "*.lock")) // the pattern is fine
	for _, name := range locks {
		if err := os.Remove(name); err != nil {
			return err
		}
	}
	return v.dovecot.start([]string{v.SMTP, v.SMTPS, v.IMAP, v.IMAPS, v.LMTP}, nil,
		"setpriv", "--reuid=nobody", "--regid=nogroup", "--clear-groups",
		"dovecot", "-F", "-c", filepath.Join(v.Dir, "dovecot.conf"))
}

// startDNS waits for the port that dnsmasq opens for TCP, too. The records go
// through a file: on the command line a comma would cut them.
func (v *Village) startDNS() error {
	_, port, _ := net.SplitHostPort(v.DNS)
	var records strings.Builder
	for name, txt := range v.txt {
		fmt.Fprintf(&records, "txt-record=%s,\"%s\"\n", name, strings.Join(pieces(txt, 200), "\",\""))
	}
	file := filepath.Join(v.Dir, "dnsmasq.conf")
	if err := os.WriteFile(file, []byte(records.String()), 0o644); err != nil {
		return err
	}
	return v.dnsmasq.start([]string{v.DNS}, nil, "dnsmasq", "-k", "--conf-file="+file,
		"--no-resolv", "--no-hosts", "--port="+port, "--listen-address=127.0.0.1", "--bind-interfaces",
		"--pid-file=", "--user=", "--log-facility=-", "--local=/#/")
}

// pieces cuts a text into strings that a TXT record can hold, at most 255 bytes each.
func pieces(s string, size int) []string {
	var all []string
	for chunk := range slices.Chunk([]byte(s), size) {
		all = append(all, string(chunk))
	}
	return all
}

// requirements says what is missing in a sentence, instead of a server's riddle.
func requirements(t testing.TB) {
	t.Helper()
	require.Zero(t, os.Getuid(), "the mail servers need root to change users\nhint: run the tests as root, or in a container")
	for _, need := range []string{"bwrap", "setpriv", "dovecot", "smtpd", "dnsmasq"} {
		_, err := exec.LookPath(need)
		require.NoError(t, err, "hint: make deps installs what is missing (and /usr/sbin belongs in PATH)")
	}
	version, err := exec.Command("dovecot", "--version").Output()
	require.NoError(t, err)
	require.Regexp(t, `^2\.3\.`, string(version), "Dovecot 2.4 has other settings\nhint: run the tests on Debian 12, or teach dovecotConf")
}

// folder is a temporary one with a short name, for Dovecot's sockets lie below
// it, that nobody can enter, in both senses.
func folder(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "mail") //nolint:usetesting // a socket's path has at most 107 bytes, and t.TempDir spells out the test's name
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
	require.NoError(t, os.Chmod(dir, 0o755))
	for _, sub := range []string{"spool", "run", "base", "state"} {
		require.NoError(t, os.Mkdir(filepath.Join(dir, sub), 0o755))
	}
	return dir
}

// Maildir is where a user's mails lie, with new, cur and tmp below it.
func (v *Village) Maildir(user string) string { return filepath.Join(v.Dir, "boxes", user) }

// configure writes what the servers read, and hands Dovecot's part to its user.
func (v *Village) configure(t testing.TB) {
	t.Helper()
	write(t, filepath.Join(v.Dir, "smtpd.conf"), fill(t, smtpdConf, v))
	write(t, filepath.Join(v.Dir, "dovecot.conf"), fill(t, dovecotConf, v))
	var passwords strings.Builder
	for _, u := range users {
		fmt.Fprintf(&passwords, "%s:{PLAIN}%s\n", u, Password)
		for _, sub := range []string{"new", "cur", "tmp"} {
			require.NoError(t, os.MkdirAll(filepath.Join(v.Maildir(u), sub), 0o700))
		}
	}
	write(t, filepath.Join(v.Dir, "passwords"), passwords.String())
	for _, sub := range []string{"boxes", "base", "state"} {
		toNobody(t, filepath.Join(v.Dir, sub))
	}
}

func write(t testing.TB, name, text string) {
	t.Helper()
	require.NoError(t, os.WriteFile(name, []byte(text), 0o644))
}

func fill(t testing.TB, text string, v *Village) string {
	t.Helper()
	port := func(address string) string {
		_, port, err := net.SplitHostPort(address)
		require.NoError(t, err)
		return port
	}
	var b bytes.Buffer
	require.NoError(t, template.Must(template.New("").Funcs(template.FuncMap{"port": port}).Parse(text)).Execute(&b, v))
	return b.String()
}

func toNobody(t testing.TB, dir string) {
	t.Helper()
	u, err := user.Lookup("nobody")
	require.NoError(t, err)
	uid, err := strconv.Atoi(u.Uid)
	require.NoError(t, err)
	gid, err := strconv.Atoi(u.Gid)
	require.NoError(t, err)
	require.NoError(t, filepath.WalkDir(dir, func(name string, _ os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return os.Lchown(name, uid, gid) //nolint:gosec // nobody else is in this folder
	}))
}

// freePorts finds ports that nobody listens on, and lets go of them. They lie
// below those that the kernel gives to outgoing connections.
func freePorts(t testing.TB, n int) []int {
	t.Helper()
	var ports []int
	for len(ports) < n {
		port := 10000 + rand.IntN(22000) //nolint:gosec // any port will do
		l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		if errors.Is(err, syscall.EADDRINUSE) {
			continue
		}
		require.NoError(t, err)
		defer l.Close()
		ports = append(ports, port)
	}
	return ports
}
