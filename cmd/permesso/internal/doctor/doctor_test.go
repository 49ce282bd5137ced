package doctor

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval/hints"
	"github.com/permesso-dev/permesso/cmd/permesso/config"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/console"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/home"
)

// The doctor finds secret files by the names of configuration keys.
func TestDoctorChecksSecretFiles(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "open"), []byte("token"), 0o644))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "shut"), []byte("token"), 0o600))
	cfg, err := config.Parse("c.toml", fmt.Appendf(nil, "[channels.telegram]\ntoken_file = %q\n"+
		"webhook = { listen = \"127.0.0.1:8443\", url = \"https://gate.example.org/telegram\", secret_file = %q }\n"+
		"[channels.email]\nfrom = \"permesso@example.org\"\n"+
		"smtp = { address = \"mail.example.org:587\", username = \"permesso\", password_file = %q, ca_file = %q }\n"+
		"[tools.post]\ncapability = \"channel:out\"\n[tools.post.handler]\nkind = \"http\"\nmethod = \"POST\"\nurl = \"https://api.example.org/\"\n"+
		"secret_headers = { Token = %q, B = %q, C = \"none\" }\n",
		dir+"/open", dir+"/none", dir+"/shut", dir+"/ca", "Bearer "+dir+"/header", dir+"/bare"))
	require.NoError(t, err)
	for _, name := range []string{"ca", "header", "bare"} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(""), 0o644))
	}
	found := (&Doctor{Home: &home.Home{Config: cfg}}).checkSecrets()
	require.Len(t, found, 4, "%+v", found)
	for i, says := range []string{"other users may read " + dir + "/bare (mode 0644)", "other users may read " + dir + "/header", "missing secret file " + dir + "/none", "other users may read " + dir + "/open"} {
		require.Contains(t, found[i].What, says)
		require.Equal(t, SeverityError, found[i].Severity)
	}
}

// The zero finding is an error: a finding without a severity must not be
// overlooked.
func TestZeroFindingIsAnError(t *testing.T) {
	require.Equal(t, "error", Finding{}.Severity.String())
	d := &Doctor{Home: &home.Home{}, app: &console.Console{Out: &bytes.Buffer{}, Env: func(string) string { return "" }}}
	for _, row := range []struct {
		worst Severity
		code  int
	}{{SeverityError, console.ExitErrors}, {SeverityWarning, console.ExitWarnings}} {
		var e *console.Error
		require.ErrorAs(t, d.Report([]Finding{{Severity: SeverityOK}, {Severity: row.worst}, {Severity: SeverityInfo}}), &e)
		require.Equal(t, row.code, e.Code)
	}
	require.NoError(t, d.Report([]Finding{{Severity: SeverityInfo}, {Severity: SeverityOK}}))
}

// Many findings of one kind do not hide the others.
func TestDoctorLimitsSimilarFindings(t *testing.T) {
	var list []Finding
	for i := range 2000 {
		list = append(list, Finding{Severity: SeverityWarning, Workspace: "a", What: fmt.Sprint(i)})
	}
	list = append(list, Finding{Severity: SeverityWarning, Workspace: "b"}, Finding{Severity: SeverityError, Workspace: "z"})
	kept := limitFindings(list)
	require.Len(t, kept, 1+maxAlike+1+1)
	require.Equal(t, SeverityError, kept[0].Severity)
	require.Equal(t, "0", kept[1].What)
	require.Equal(t, Finding{Severity: SeverityWarning, Workspace: "a", What: "and 1990 more like this"}, kept[1+maxAlike])
	require.Equal(t, "b", kept[2+maxAlike].Workspace)
	require.Empty(t, limitFindings(nil))
	require.Len(t, limitFindings(list[:maxAlike]), maxAlike)
}

// A folder's name can hold any bytes; it must not look like another finding.
func TestFindingsAreOneLine(t *testing.T) {
	f := findingOf(SeverityError, "", hints.Add(errors.New("x\n✓ keys      well"), "do\nthis \x1b[2K"))
	require.NotContains(t, f.What+f.Cure, "\n")
	require.NotContains(t, f.What+f.Cure, "\x1b")
	require.Contains(t, f.Cure, "do; this")
}

func TestCompareClocks(t *testing.T) {
	now := time.Now()
	require.Empty(t, compareClocks(now, now.Add(time.Second)))
	for _, off := range []time.Duration{-time.Hour, 3 * time.Second} {
		found := compareClocks(now, now.Add(off))
		require.Len(t, found, 1)
		require.Contains(t, found[0].What, "differ by "+off.Abs().String())
	}
}

// The end-to-end test of a healthy home expects a finding of each of these.
func TestChecks(t *testing.T) {
	var names []string
	for _, c := range checks() {
		names = append(names, c.name)
	}
	require.Equal(t, strings.Fields("config home daemon folders journal path programs keys seals records audit mounts agents hooks disk fsync inotify clock stuck channels telegram"), names)
}
