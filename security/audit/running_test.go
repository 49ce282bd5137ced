package audit_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/ipc"
	"github.com/permesso-dev/permesso/security/audit"
	"github.com/permesso-dev/permesso/security/audit/audittest"
)

// What another program does to the files while they are open is an alarm at once, not only at
// the next start. What follows is kept.
func TestFilesChangedWhileOpen(t *testing.T) {
	const segment, checkpoints = "log.jsonl", "checkpoints.jsonl"
	cut := func(name string) func(*testing.T, string) {
		return func(t *testing.T, dir string) {
			t.Helper()
			require.NoError(t, os.Truncate(filepath.Join(dir, name), 10))
		}
	}
	remove := func(name string) func(*testing.T, string) {
		return func(t *testing.T, dir string) { t.Helper(); require.NoError(t, os.RemoveAll(filepath.Join(dir, name))) }
	}
	replace := func(name string) func(*testing.T, string) {
		return func(t *testing.T, dir string) {
			t.Helper()
			path := filepath.Join(dir, name)
			b, err := os.ReadFile(path)
			require.NoError(t, err)
			require.NoError(t, os.WriteFile(path+".new", b, 0o600))
			require.NoError(t, os.Rename(path+".new", path))
		}
	}
	grow := func(t *testing.T, dir string) {
		t.Helper()
		f, err := os.OpenFile(filepath.Join(dir, segment), os.O_WRONLY|os.O_APPEND, 0)
		require.NoError(t, err)
		_, err = f.WriteString("{}\n")
		require.NoError(t, err)
		require.NoError(t, f.Close())
	}
	for _, c := range []struct {
		what   string
		change func(t *testing.T, dir string)
		says   string
	}{
		{"cut", cut(segment), "log.jsonl was changed from "},
		{"grown", grow, "log.jsonl was changed from "},
		{"removed", remove(segment), "log.jsonl was removed"},
		{"replaced by a copy", replace(segment), "log.jsonl was replaced"},
		{"checkpoints cut", cut(checkpoints), "checkpoints.jsonl was changed from "},
		{"checkpoints removed", remove(checkpoints), "checkpoints.jsonl was removed"},
		{"checkpoints replaced", replace(checkpoints), "checkpoints.jsonl was replaced"},
		{"the folder removed", remove("."), "log.jsonl was removed"},
	} {
		for _, next := range []string{"a checkpoint", "an entry", "a stop"} {
			t.Run(c.what+", then "+next, func(t *testing.T) {
				folder := filepath.Join(t.TempDir(), "audit")
				require.NoError(t, os.Mkdir(folder, 0o700))
				l, err := audit.OpenSigned(ipc.OS(), folder, clock, testKeys(t))
				require.NoError(t, err)
				audittest.Attach(l)
				for n := 1; n <= 5; n++ {
					require.NoError(t, l.Append(entry(n)))
					require.NoError(t, l.Checkpoint())
				}
				alarm, err := audit.ReadAlarm(ipc.OS(), folder)
				require.NoError(t, err)
				require.Nil(t, alarm)
				c.change(t, folder)
				switch next {
				case "a checkpoint":
					require.NoError(t, l.Checkpoint())
				case "an entry":
					require.NoError(t, l.Append(entry(6)))
				default:
					require.NoError(t, l.Close())
				}
				alarm, err = audit.ReadAlarm(ipc.OS(), folder)
				require.NoError(t, err)
				require.NotNil(t, alarm)
				require.Contains(t, alarm.Reason, c.says)
				require.Contains(t, alarm.Reason, "while the daemon was running; entries up to 5 were durable")
				require.EqualValues(t, 5, alarm.Size)
				if next == "a stop" {
					return
				}
				require.NoError(t, l.Append(entry(7)))
				require.NoError(t, l.Close())
				signed, err := os.ReadFile(filepath.Join(folder, checkpoints))
				require.NoError(t, err)
				require.NotContains(t, string(signed), "\x00", "a file that was cut is not filled up")
				var kept []byte
				names, err := filepath.Glob(filepath.Join(folder, "log*.jsonl"))
				require.NoError(t, err)
				for _, name := range names {
					b, err := os.ReadFile(name)
					require.NoError(t, err)
					kept = append(kept, b...)
				}
				require.Contains(t, string(kept), `"request_id":"0000000000000007"`, "what follows is kept")
			})
		}
	}
}
