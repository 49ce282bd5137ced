package mailserver

import (
	"bytes"
	"context"
	_ "embed"
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

// The configurations, with the addresses of [Servers] filled in.
var (
	//go:embed smtpd.conf
	smtpdConf string
	//go:embed dovecot.conf
	dovecotConf string
)

// The users. Each has a mailbox on the servers. Eve's domain publishes no DNS records.
const (
	Gate = "permesso@gate.test" // the gate
	Ann  = "ann@human.test"     // an approver
	Bob  = "bob@human.test"     // another user of the same domain
	Eve  = "eve@elsewhere.test" // not an approver: no DKIM, no DMARC

	// Password is the password of every user.
	Password = "open-sesame-7"

	// Later is refused temporarily (451), Never permanently (550).
	Later = "later@human.test"
	Never = "never@human.test"
)

var users = []string{Gate, Ann, Bob, Eve}

// startTimeout is the timeout for any operation, long enough for a busy machine.
const startTimeout = time.Minute

// Servers are running servers. The addresses are "127.0.0.1:port".
type Servers struct {
	SMTP  string // submission: STARTTLS, then AUTH PLAIN or LOGIN
	SMTPS string // submission with TLS from the first byte
	MX    string // where other servers deliver: plain, no login
	IMAP  string // STARTTLS before login
	IMAPS string
	LMTP  string
	DNS   string // UDP

	CAFile string // PEM: the servers' certificate, for 127.0.0.1 and localhost

	OAuth      string // where Dovecot asks about access tokens; "": it accepts none
	Mechanisms string // the mechanisms for access tokens
	Dir        string // all files, including the servers' logs

	keys    keys
	txt     map[string]string
	smtpd   *process
	dovecot *process
	dnsmasq *process
}

// Start starts the servers, waits until they listen, and stops them at the end of the
// test. A failed test prints their logs.
func Start(t testing.TB) *Servers {
	t.Helper()
	return start(t, &Servers{})
}

// StartWithOAuth is [Start] with servers that also accept the access tokens of o, by these
// mechanisms: "oauthbearer", "xoauth2", or both.
func StartWithOAuth(t testing.TB, o *OAuth, mechanisms string) *Servers {
	t.Helper()
	return start(t, &Servers{OAuth: o.URL + "/tokeninfo?access_token=", Mechanisms: mechanisms})
}

func start(t testing.TB, v *Servers) *Servers {
	t.Helper()
	checkRequirements(t)
	v.Dir = makeDir(t)
	var key string
	v.CAFile, key = Certificate(t, v.Dir)
	chownToServerUser(t, key)
	v.keys = newKeys(t)
	v.txt = map[string]string{
		selector + "._domainkey.human.test":    v.keys.ed25519Record(),
		rsaSelector + "._domainkey.human.test": v.keys.rsaRecord(t),
		"_dmarc.human.test":                    "v=DMARC1; p=reject",
	}
	v.smtpd = &process{name: "smtpd", dir: v.Dir}
	v.dovecot = &process{name: "dovecot", dir: v.Dir}
	v.dnsmasq = &process{name: "dnsmasq", dir: v.Dir}
	all := []*process{v.smtpd, v.dovecot, v.dnsmasq}
	t.Cleanup(func() {
		for _, s := range all {
			s.stop()
			if t.Failed() {
				t.Logf("%s wrote:\n%s", s.name, s.log())
			}
		}
	})
	// Another process may take a free port before the server binds it: then try new ports.
	for try := 1; ; try++ {
		err := v.open(t)
		if err == nil {
			return v
		}
		if try == 5 {
			require.NoError(t, err)
		}
		for _, s := range all {
			s.stop()
		}
	}
}

// open writes the configuration for new ports and starts the servers in parallel.
func (v *Servers) open(t testing.TB) error {
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
	return errors.Join(errs...)
}

// StopDovecot kills Dovecot: no submission, no IMAP, no LMTP.
func (v *Servers) StopDovecot() { v.dovecot.stop() }

// StartDovecot starts it again, on the same ports.
func (v *Servers) StartDovecot(t testing.TB) {
	t.Helper()
	require.NoError(t, v.startDovecot())
}

// StopSMTPD kills OpenSMTPD: submission refuses temporarily, and nothing is delivered.
func (v *Servers) StopSMTPD() { v.smtpd.stop() }

// StartSMTPD starts it again, on the same port.
func (v *Servers) StartSMTPD(t testing.TB) {
	t.Helper()
	require.NoError(t, v.startSMTPD())
}

// LookupTXT is net.LookupTXT with the test DNS server.
func (v *Servers) LookupTXT(name string) ([]string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	r := &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "udp", v.DNS)
	}}
	return r.LookupTXT(ctx, name)
}

func (v *Servers) startSMTPD() error {
	return v.smtpd.start([]string{v.MX},
		// A private spool and control socket, for a machine that runs OpenSMTPD itself.
		[]string{"--bind", filepath.Join(v.Dir, "spool"), "/var/spool", "--bind", filepath.Join(v.Dir, "run"), "/run"},
		"smtpd", "-d", "-f", filepath.Join(v.Dir, "smtpd.conf"))
}

// startDovecot removes the locks of a killed Dovecot. Dovecot would keep them: its new
// processes get the same PIDs in the namespace, so the locks look held.
func (v *Servers) startDovecot() error {
	locks, _ := filepath.Glob(filepath.Join(v.Dir, "boxes", "*", "*.lock")) // the pattern is valid
	for _, name := range locks {
		if err := os.Remove(name); err != nil {
			return err
		}
	}
	return v.dovecot.start([]string{v.SMTP, v.SMTPS, v.IMAP, v.IMAPS, v.LMTP}, nil,
		"setpriv", "--reuid=nobody", "--regid=nogroup", "--clear-groups",
		"dovecot", "-F", "-c", filepath.Join(v.Dir, "dovecot.conf"))
}

// startDNS waits for the TCP port, which dnsmasq opens, too. The records are in a file:
// on the command line a comma would split them.
func (v *Servers) startDNS() error {
	_, port, _ := net.SplitHostPort(v.DNS)
	var records strings.Builder
	for name, txt := range v.txt {
		fmt.Fprintf(&records, "txt-record=%s", name)
		for chunk := range slices.Chunk([]byte(txt), 200) { // a string of a record has at most 255 bytes
			fmt.Fprintf(&records, ",\"%s\"", chunk)
		}
		fmt.Fprintln(&records)
	}
	file := filepath.Join(v.Dir, "dnsmasq.conf")
	if err := os.WriteFile(file, []byte(records.String()), 0o644); err != nil {
		return err
	}
	return v.dnsmasq.start([]string{v.DNS}, nil, "dnsmasq", "-k", "--conf-file="+file,
		"--no-resolv", "--no-hosts", "--port="+port, "--listen-address=127.0.0.1", "--bind-interfaces",
		"--pid-file=", "--user=", "--log-facility=-", "--local=/#/")
}

// checkRequirements reports what is missing, with a hint.
func checkRequirements(t testing.TB) {
	t.Helper()
	require.Zero(t, os.Getuid(), "the mail servers need root to change users: run the tests as root, or in a container")
	for _, need := range []string{"bwrap", "setpriv", "dovecot", "smtpd", "dnsmasq"} {
		_, err := exec.LookPath(need)
		require.NoError(t, err, "make deps installs what is missing (and /usr/sbin belongs in PATH)")
	}
	version, err := exec.Command("dovecot", "--version").Output()
	require.NoError(t, err)
	require.Regexp(t, `^2\.3\.`, string(version), "Dovecot 2.4 has other settings: run the tests on Debian 12, or adapt dovecot.conf")
}

// makeDir creates a temporary folder with a short name, because Dovecot's sockets are in it.
// The servers' unprivileged user can enter it.
func makeDir(t testing.TB) string {
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

// Maildir is the maildir of a user, with new, cur and tmp below it.
func (v *Servers) Maildir(user string) string { return filepath.Join(v.Dir, "boxes", user) }

// configure writes the servers' files, and makes Dovecot's user the owner of its folders.
func (v *Servers) configure(t testing.TB) {
	t.Helper()
	write(t, filepath.Join(v.Dir, "smtpd.conf"), render(t, smtpdConf, v))
	write(t, filepath.Join(v.Dir, "dovecot.conf"), render(t, dovecotConf, v))
	write(t, filepath.Join(v.Dir, "oauth2.conf"),
		"tokeninfo_url = "+v.OAuth+"\nusername_attribute = email\nactive_attribute = active\nactive_value = true\n")
	var passwords strings.Builder
	for _, u := range users {
		fmt.Fprintf(&passwords, "%s:{PLAIN}%s\n", u, Password)
		for _, sub := range []string{"new", "cur", "tmp"} {
			require.NoError(t, os.MkdirAll(filepath.Join(v.Maildir(u), sub), 0o700))
		}
	}
	write(t, filepath.Join(v.Dir, "passwords"), passwords.String())
	for _, sub := range []string{"boxes", "base", "state"} {
		chownToServerUser(t, filepath.Join(v.Dir, sub))
	}
}

func write(t testing.TB, name, text string) {
	t.Helper()
	require.NoError(t, os.WriteFile(name, []byte(text), 0o644))
}

func render(t testing.TB, text string, v *Servers) string {
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

func chownToServerUser(t testing.TB, dir string) {
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
		return os.Lchown(name, uid, gid) //nolint:gosec // only the test and its servers use this folder
	}))
}

// freePorts finds free ports and closes them again. They are below the ports that the
// kernel gives to outgoing connections.
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
