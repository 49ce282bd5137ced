package home

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/mod/sumdb/note"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/codec"
	"github.com/permesso-dev/permesso/approval/event"
	"github.com/permesso-dev/permesso/approval/store"
	"github.com/permesso-dev/permesso/chat"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/console"
	"github.com/permesso-dev/permesso/ipc"
	"github.com/permesso-dev/permesso/security/audit"
	"github.com/permesso-dev/permesso/security/receipt"
)

// OpenAudit opens the log to write to it: its entries are committed by the store. The caller
// holds the lock.
func (h *Home) OpenAudit(k *Keys) (*audit.Log, error) {
	known, err := h.AuditKeys()
	if err != nil {
		return nil, err
	}
	log, err := h.openAudit(k, known)
	if err != nil || !log.Torn() {
		return log, err
	}
	// Readers need the segment that the next entry begins.
	if err := errors.Join(log.Append(event.Entry{Event: event.LogAlarm, Detail: "bytes after the last entry do not count"}), log.Close()); err != nil {
		return nil, err
	}
	return h.openAudit(k, known)
}

// openAudit opens the log once. After an alarm, or at the first start with a journal, the
// head of the log is not the one that the journal has.
func (h *Home) openAudit(k *Keys, known note.Verifiers) (*audit.Log, error) {
	head := h.Store.LogHead()
	log, err := audit.OpenFrom(h.FS, h.Layout.Audit(), time.Now, audit.Keys{Signer: k.Signer.NoteSigner(), Known: known}, head)
	if err != nil {
		return nil, console.VerifyFirst(err)
	}
	log.Committer = h.Store
	h.Store.SetLog(log)
	if !bytes.Equal(head, log.Head()) {
		err = h.Store.CommitLogHead()
	}
	return log, err
}

// AppendAudit adds one entry to the log of a home that the caller has locked. When it
// returns, the entry is durable.
func (h *Home) AppendAudit(e event.Entry) error {
	k, err := h.MakeKeys() // to sign, too
	if err != nil {
		return err
	}
	log, err := h.OpenAudit(k)
	if err != nil {
		return err
	}
	return errors.Join(log.Append(e), log.Close())
}

// AuditKeys returns the keys that may have signed the log.
func (h *Home) AuditKeys() (note.Verifiers, error) {
	v, err := receipt.LoadVerifier(h.FS, h.Layout.Keys())
	if errors.Is(err, fs.ErrPermission) {
		return nil, Unreadable(h.Layout.Home)
	}
	if err != nil {
		return nil, err
	}
	return v.Known(), nil
}

// AuditFoot returns the last line of a message, "" without a checkpoint.
func AuditFoot(c *audit.Checkpoint) string {
	if c == nil {
		return ""
	}
	return "log " + c.Foot()
}

// AuditFoot returns the last line of a message for a command that only reads.
func (h *Home) AuditFoot() string {
	known, err := h.AuditKeys()
	if err != nil {
		return ""
	}
	c, err := audit.Newest(h.FS, h.Layout.Audit(), known)
	if err != nil {
		return "" // audit verify reports it
	}
	return AuditFoot(c)
}

// EntryLine formats an entry as one line. Values may come from an agent, so they are escaped.
func EntryLine(e event.Entry) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d %s %s", e.Seq, e.Time.Local().Format(time.DateTime), chat.Escape(string(e.Event)))
	for _, v := range []struct{ name, text string }{
		{"", e.Workspace},
		{"", e.RequestID},
		{"", e.Tool},
		{"by", e.By},
		{"id", e.ByID},
		{"via", e.Via},
		{"rule", e.Rule},
		{"reason", e.Reason},
		{"detail", e.Detail},
		{"taints", strings.Join(e.Taints, " ")},
	} {
		if v.text == "" {
			continue
		}
		b.WriteByte(' ')
		if v.name != "" {
			b.WriteString(v.name + "=")
		}
		if strings.Contains(v.text, " ") {
			b.WriteString(chat.Quote(v.text))
		} else {
			b.WriteString(chat.Escape(v.text))
		}
	}
	return b.String()
}

// RotateKey writes the audit entry before the new key takes effect: an entry
// without a rotation is possible, never the reverse.
func (h *Home) RotateKey() (public string, err error) {
	release, err := h.Lock(context.Background())
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, release()) }()
	k, err := h.MakeKeys()
	if err != nil {
		return "", err
	}
	log, err := h.OpenAudit(k)
	if err != nil {
		return "", err
	}
	k.Signer, err = receipt.Rotate(h.FS, h.Layout.Keys(), time.Now(), func(old, next string) error {
		by := Operator()
		err := log.Append(event.Entry{
			Event: event.KeyRotated, By: by.Name, ByID: by.StableID(), Via: "cli",
			Detail: fmt.Sprintf("from %s to %s", old, next),
		})
		return errors.Join(err, log.Checkpoint())
	})
	if err := errors.Join(err, log.Close()); err != nil {
		return "", err
	}
	// The new key signs the whole log again.
	if log, err = h.OpenAudit(k); err != nil {
		return "", err
	}
	return k.Signer.Public(), errors.Join(log.Checkpoint(), log.Close())
}

// TrustedKeys returns the keys to verify with: all keys of this home if keyFile
// is empty or one of them, otherwise keyFile alone.
func (h *Home) TrustedKeys(keyFile string) (note.Verifiers, error) {
	if keyFile == "" {
		return h.AuditKeys()
	}
	b, err := os.ReadFile(keyFile)
	if err != nil {
		return nil, err
	}
	given := strings.TrimSpace(string(b))
	v, err := receipt.NewVerifier(given)
	if err != nil {
		return nil, err
	}
	keys, err := receipt.PublicKeys(h.FS, h.Layout.Keys())
	if err == nil && slices.ContainsFunc(keys, func(k receipt.PublicKey) bool { return k.Key == given }) {
		return h.AuditKeys()
	}
	return v.Known(), nil
}

// Receipts is what this home knows of its receipts.
func Receipts(a *console.Console) console.Receipts {
	dir, err := Find(a)
	if err != nil {
		dir = "HOME"
	}
	return console.Receipts{Responses: ipc.Layout{Home: dir}.Responses("WORKSPACE"), Keys: func() (*receipt.Verifier, error) {
		h, err := Load(a)
		if err != nil {
			return nil, err
		}
		return receipt.LoadVerifier(h.FS, h.Layout.Keys())
	}}
}

// MarkRedeemed marks the receipt of a request as used. The error wraps fs.ErrExist if
// it was used before, fs.ErrNotExist if the request has no record yet.
func (h *Home) MarkRedeemed(ctx context.Context, k *Keys, key approval.Key, by string) error {
	rec, err := h.Viewer(k).Record(ctx, key)
	if err != nil {
		return err
	}
	if rec == nil {
		return fmt.Errorf("read record of %s: %w", key, fs.ErrNotExist)
	}
	mark := fmt.Appendf(nil, `{"redeemed_at":%q,"by":%q}`, codec.Time(time.Now()), by)
	return h.Store.Commit(ctx, store.Put(approval.DocRedeemed, key, mark))
}
