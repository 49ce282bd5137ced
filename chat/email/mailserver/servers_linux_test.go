package mailserver_test

import (
	"bufio"
	"bytes"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/emersion/go-msgauth/dkim"
	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/chat/email/mailserver"
)

// TestServers checks what other tests rely on.
func TestServers(t *testing.T) {
	start := time.Now()
	v := mailserver.Start(t)
	t.Logf("up in %s", time.Since(start))

	txt, err := v.LookupTXT("_dmarc.human.test")
	require.NoError(t, err)
	require.Equal(t, []string{"v=DMARC1; p=reject"}, txt)
	_, err = v.LookupTXT("_dmarc.elsewhere.test")
	require.ErrorContains(t, err, "no such host")

	gate, ann := v.Inbox(t, mailserver.Gate), v.Inbox(t, mailserver.Ann)
	v.Deliver(t, v.SignedReply(t, mailserver.Reply{Subject: "Re: può?", Text: "1\n\nciao, perché no\n"}), "permesso+TOKEN@gate.test")
	raw := gate.Next(t)
	require.Contains(t, string(raw), "Delivered-To: permesso+TOKEN@gate.test\r\n")
	ann.None(t, 10*time.Millisecond)
	checks, err := dkim.VerifyWithOptions(bytes.NewReader(raw), &dkim.VerifyOptions{LookupTXT: v.LookupTXT})
	require.NoError(t, err)
	require.Len(t, checks, 2)
	for _, c := range checks {
		require.NoError(t, c.Err, "the servers do not break the signatures")
		require.Equal(t, "human.test", c.Domain)
	}
}

// TestTwoInstances: two instances run in parallel, with a spool each.
func TestTwoInstances(t *testing.T) {
	a, b := mailserver.Start(t), mailserver.Start(t)
	inA, inB := a.Inbox(t, mailserver.Gate), b.Inbox(t, mailserver.Gate)
	b.Deliver(t, mailserver.Reply{Subject: "to b"}.Mail())
	require.Contains(t, string(inB.Next(t)), "to b")
	inA.None(t, 10*time.Millisecond)
}

// TestServersEndWithTest: the servers of a killed test end with it.
func TestServersEndWithTest(t *testing.T) {
	if os.Getenv("MAILSERVER_TO_KILL") != "" {
		v := mailserver.Start(t)
		fmt.Println("up:", v.MX, v.IMAP, v.DNS, v.Dir)
		select {}
	}
	cmd := exec.Command(os.Args[0], "-test.run=^TestServersEndWithTest$")
	cmd.Env = append(os.Environ(), "MAILSERVER_TO_KILL=1")
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	var addresses []string
	for lines := bufio.NewScanner(out); addresses == nil && lines.Scan(); {
		if rest, ok := strings.CutPrefix(lines.Text(), "up: "); ok {
			addresses = strings.Fields(rest)
		}
	}
	require.Len(t, addresses, 4)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(addresses[3])) })
	for _, at := range addresses[:3] {
		require.True(t, answers(at), at)
	}
	require.NoError(t, cmd.Process.Kill())
	require.Error(t, cmd.Wait())
	for _, at := range addresses[:3] {
		require.Eventually(t, func() bool { return !answers(at) }, time.Minute, 5*time.Millisecond, at)
	}
}

func answers(address string) bool {
	conn, err := net.DialTimeout("tcp", address, time.Second)
	if err != nil {
		return false
	}
	conn.Close()
	return true
}
